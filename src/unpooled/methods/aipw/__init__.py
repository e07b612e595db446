"""AIPW: doubly robust averages, inverse propensity weights and plain differences, from sums over sites."""

from unpooled.methods.aipw.method import METHOD

__all__ = ["METHOD"]
