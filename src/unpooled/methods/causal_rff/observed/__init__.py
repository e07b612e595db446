"""Observed confounders: the outcome regressed on random Fourier features, coefficients shared in part."""
