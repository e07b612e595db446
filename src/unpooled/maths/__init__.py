"""Statistics and linear algebra that the methods share; nothing here is specific to one method.

Everything is computed in float64. JAX keeps compiled functions in the user's cache folder (code for given
shapes, never data), so that a second run starts in seconds; JAX_COMPILATION_CACHE_DIR overrides the folder.
"""

import os
from pathlib import Path

import jax

jax.config.update("jax_enable_x64", True)

if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
    caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    jax.config.update("jax_compilation_cache_dir", str(caches / "unpooled" / "programs"))
    # JAX locks a cache of limited size, so that no process reads what another has half written.
    jax.config.update("jax_compilation_cache_max_size", 2 * 1024**3)
if "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS" not in os.environ:
    # Most of our programs compile in less than JAX's threshold of one second; reading one takes milliseconds.
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.03)
