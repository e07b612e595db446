"""One BLAS thread while a study runs: its matrices are small, and idle BLAS threads spin on the cores."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import scipy.linalg  # noqa: F401  JAX's linear algebra is SciPy's BLAS, which must be loaded to be found
from threadpoolctl import ThreadpoolController


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Sites side by side use the cores instead; the caller's setting comes back afterwards."""
    with _controller().limit(limits=1, user_api="blas"):
        yield


@cache
def _controller() -> ThreadpoolController:
    return ThreadpoolController()
