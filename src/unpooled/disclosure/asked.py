"""What a question asks, in numbers: its stages, how many θ it has, and the largest value among them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import numpy as np

from unpooled.protocol.messages import Question, Together

LONGEST, MOST = 100, 100
"""Of the names of stages: they come from outside and must not fill the disk."""


class Extent(NamedTuple):
    """The extent of one question."""

    stages: tuple[str, ...]
    """Names of the stages that are asked, in order of first occurrence."""
    batch: int
    """Number of θ: the leading axis of the parameters, added up over the parts of `Together`."""
    largest: float | None
    """Largest absolute finite number among parameters and cotangents; None if there is none."""


def extent(question: Question) -> Extent:
    """The extent of a question. It may come from a stranger, so nothing is assumed of its fields.

    >>> from unpooled.protocol.messages import Ask
    >>> from unpooled.protocol.records import Parameters
    >>> extent(Ask("ridge", Parameters({"x": np.array([[1.0], [-3.0]])})))
    Extent(stages=('ridge',), batch=2, largest=3.0)
    """
    parts = list(_parts(question))
    stages = dict.fromkeys(str(part.stage)[:LONGEST] for part in parts if hasattr(part, "stage"))
    largest = [_largest(array) for part in parts for array in _floats(part)]
    return Extent(
        tuple(stages)[:MOST],
        sum(_batch(part) for part in parts),
        max((value for value in largest if value is not None), default=None),
    )


def _parts(question: Any) -> Iterator[Any]:
    if isinstance(question, Together):
        for part in question.questions:
            yield from _parts(part)
    else:
        yield question


def _batch(part: Any) -> int:
    shapes = [
        np.shape(leaf) for leaf in jax.tree.leaves(getattr(part, "parameters", None)) if _is_array(leaf)
    ]
    return max((shape[0] for shape in shapes if shape), default=0)


def _floats(part: Any) -> Iterator[np.ndarray]:
    """Random keys and folds are whole numbers, and would hide how large the parameters are."""
    for leaf in jax.tree.leaves([getattr(part, name, None) for name in ("parameters", "cotangent")]):
        if isinstance(leaf, float) or (_is_array(leaf) and np.asarray(leaf).dtype.kind == "f"):
            yield np.asarray(leaf)


def _is_array(leaf: Any) -> bool:
    return isinstance(leaf, np.ndarray | jax.Array)


def _largest(array: np.ndarray) -> float | None:
    finite = np.abs(array[np.isfinite(array)])
    return float(finite.max()) if finite.size else None
