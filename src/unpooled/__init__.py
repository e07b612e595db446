"""Causal effects from data that cannot be pooled."""
