"""The figures. Each takes `ax=None`, draws in one style, and returns its Axes."""
