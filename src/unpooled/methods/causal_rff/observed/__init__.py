"""Observed confounders: regression of the outcome on random Fourier features, partially pooled over sites."""
