"""Checks before and after a fit: overlap, balance, heterogeneity, missing values, and previews."""
