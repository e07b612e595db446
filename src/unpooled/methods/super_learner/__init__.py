"""Several methods side by side, weighted by how well they predict effects of held-out people."""

from unpooled.methods.super_learner.method import METHOD

__all__ = ["METHOD"]
