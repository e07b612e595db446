"""Robustness of a fitted study: the same analysis where its answer is known, or where it must not move."""
