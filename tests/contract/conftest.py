"""The oracle is imported as `oracle`, whatever the import mode; XLA compiles quickly rather than well."""

from __future__ import annotations

import sys
from pathlib import Path

import jax

TESTS = str(Path(__file__).resolve().parents[1])
if TESTS not in sys.path:
    sys.path.insert(0, TESTS)
jax.config.update("jax_disable_most_optimizations", True)
