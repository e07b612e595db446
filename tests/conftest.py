"""What every test shares: float64 and a quiet, repeatable world."""

from __future__ import annotations

import os
import tempfile

# Workers must not read each other's half-written compilations.
worker = os.environ.get("PYTEST_XDIST_WORKER", "alone")
os.environ.setdefault(
    "JAX_COMPILATION_CACHE_DIR",
    os.path.join(tempfile.gettempdir(), f"unpooled-compiled-{os.getuid()}-{worker}"),
)
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("MPLBACKEND", "Agg")

from hypothesis import settings  # noqa: E402

import unpooled.maths  # noqa: E402, F401  (float64 before any array is made)

# Compilation makes the first example slow, so time is no sign of a defect; the same examples every time.
settings.register_profile("repeatable", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("repeatable")
