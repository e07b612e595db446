"""CausalFI: incomplete confounders, imputed given everything that is observed of a person."""

from unpooled.methods.causal_fi.method import METHOD

__all__ = ["METHOD"]
