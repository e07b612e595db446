"""Boosted trees of the outcome in each arm and of the propensity, grown from sums over the sites."""

from unpooled.methods.boosted_arms.method import METHOD

__all__ = ["METHOD"]
