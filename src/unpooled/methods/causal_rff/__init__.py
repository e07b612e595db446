"""CausalRFF: transfer between heterogeneous sites, with observed confounders or proxies of latent ones."""

from unpooled.methods.causal_rff.method import METHOD

__all__ = ["METHOD"]
