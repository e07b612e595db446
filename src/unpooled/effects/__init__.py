"""Summaries of draws of effects."""
