"""Here much is compiled and little is run: XLA compiles quickly rather than well."""

from __future__ import annotations

import jax

jax.config.update("jax_disable_most_optimizations", True)
