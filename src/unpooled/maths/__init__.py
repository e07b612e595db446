"""Kernels, basis functions, Gaussian algebra: no word of the paper's methods.

Float64 throughout. Compiled functions are remembered between processes, beside the user's other caches
(they hold code for shapes, no data): a second run starts in seconds. JAX's own setting overrules it.
"""

import os
from pathlib import Path

import jax

jax.config.update("jax_enable_x64", True)

if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
    caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    jax.config.update("jax_compilation_cache_dir", str(caches / "unpooled" / "compiled"))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)
