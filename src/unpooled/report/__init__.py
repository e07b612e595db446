"""A fitted study as a folder people can read: numbers, figures, and what left each site."""

from unpooled.report.results import claim, write_results

__all__ = ["claim", "write_results"]
