"""Kernels, basis functions, Gaussian algebra: no word of the paper's methods. Float64 throughout."""

import jax

jax.config.update("jax_enable_x64", True)
