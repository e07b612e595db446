"""Causal forests from histograms that are added up over the sites."""

from unpooled.methods.causal_forest.method import METHOD

__all__ = ["METHOD"]
