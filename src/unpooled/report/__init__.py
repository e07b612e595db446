"""Write a fitted study to a results folder: numbers, figures and a record of what left each site."""

from unpooled.report.results import claim, write_results

__all__ = ["claim", "write_results"]
