"""Whom to treat: what policies are worth, and whether predicted effects are in the right order."""
