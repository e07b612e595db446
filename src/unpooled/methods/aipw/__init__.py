"""AIPW: doubly robust, inverse-probability-weighted and unadjusted estimates from sums over sites."""

from unpooled.methods.aipw.method import METHOD

__all__ = ["METHOD"]
