"""Summaries of posterior draws of effects."""
