"""What every test shares: float64 and a quiet, repeatable world."""

from __future__ import annotations

import gc
import os
import tempfile

# Workers, and the processes that tests start, use each other's compilations.
os.environ.setdefault(
    "JAX_COMPILATION_CACHE_DIR", os.path.join(tempfile.gettempdir(), f"unpooled-compiled-{os.getuid()}")
)
# JAX locks a cache of limited size, so that no process reads what another has half written.
os.environ.setdefault("JAX_COMPILATION_CACHE_MAX_SIZE", str(4 * 1024**3))
os.environ.setdefault("JAX_PLATFORMS", "cpu")
# Here much is compiled and little is run; in the environment, so that processes started by a test do so too.
os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
# XLA's older emitters compile our programs in about a third of the time of its fusion emitters.
os.environ["XLA_FLAGS"] = f"--xla_cpu_use_fusion_emitters=false {os.environ.get('XLA_FLAGS', '')}".strip()
os.environ.setdefault("MPLBACKEND", "Agg")

from collections.abc import Iterator
from pathlib import Path

import jax
import pytest
from hypothesis import settings

import unpooled.maths  # noqa: F401  (float64 before any array is made)

MOST_MAPS = 30_000
"""Of a process, where Linux allows 65,530; every compiled program takes a few, and past that XLA crashes."""


# Tracing makes many objects that live long; looking through them at JAX's pace takes a tenth of the time.
gc.set_threshold(200_000, 20, 20)


def pytest_collection_finish() -> None:
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="module", autouse=True)
def forget_old_programs() -> Iterator[None]:
    """Before a worker's compiled programs become too many, they go; what they left on disk stays."""
    yield
    maps = Path("/proc/self/maps")
    if maps.exists() and maps.read_bytes().count(b"\n") > MOST_MAPS:
        jax.clear_caches()


# Compilation makes the first example slow, so time is no sign of a defect; the same examples every time.
settings.register_profile("repeatable", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("repeatable")
