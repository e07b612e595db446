"""CausalFI: confounders with holes, completed so that they fit all that is known of a person."""

from unpooled.methods.causal_fi.method import METHOD

__all__ = ["METHOD"]
