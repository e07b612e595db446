"""Draws of effects into numbers."""
