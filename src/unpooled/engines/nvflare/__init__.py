"""NVIDIA FLARE carries a study between organisations. `nvflare` is imported only in this folder."""

from __future__ import annotations

from importlib.util import find_spec

from unpooled.errors import EngineError

if find_spec("nvflare") is None:
    raise EngineError(
        "studies between organisations need NVIDIA FLARE",
        found="it is not installed",
        remedy="pip install 'unpooled[nvflare]'",
    )
