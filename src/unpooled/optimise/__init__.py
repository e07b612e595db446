"""Optimisation at the coordinator: procedures that minimise an objective, independent of any method."""
