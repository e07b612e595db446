"""Plain, slow NumPy versions of the equations: what the package is compared with."""
