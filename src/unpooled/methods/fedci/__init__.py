"""FedCI: Bayesian causal inference with Gaussian processes across sites that share no rows."""

from unpooled.methods.fedci.method import METHOD

__all__ = ["METHOD"]
