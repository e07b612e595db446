"""What every test shares: float64 and a quiet, repeatable world."""

from __future__ import annotations

import os

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("MPLBACKEND", "Agg")

from hypothesis import settings

import unpooled.maths  # noqa: F401  (float64 before any array is made)

# Compilation makes the first example slow, so time is no sign of a defect; the same examples every time.
settings.register_profile("repeatable", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("repeatable")
