"""Bounds on the parameters of a question: a site refuses θ that no honest fit asks for.

Extreme parameters turn smooth statistics into indicators of single people: a coefficient of 1e9 makes a
sigmoid a step, and a length-scale of 1e-4 makes a basis function a spike.
"""

from __future__ import annotations

from collections.abc import Iterator

import jax
import numpy as np

from unpooled.errors import MessageError
from unpooled.protocol.messages import Statistics
from unpooled.protocol.records import Parameters
from unpooled.protocol.stage import ANY, Stage

ONE_EACH = ("fold", "without", "draw", "temper")
"""Parameters that are one number for each θ: a number for each person would choose whom to sum over."""


def check_parameters(stage: Stage, parameters: Parameters, rows: int | None = None) -> None:
    """Refuse parameters that the stage does not have, that are not finite, or that are out of bounds.

    With limits, `rows` is the length of the site's padded table. No axis of a parameter but the first may be
    as long, because it would be broadcast over the people and so tell them apart.
    """
    bounds, batches = stage.bounds(), set()
    for name, values in _named(parameters):
        if name not in bounds:
            raise _out_of_bounds("a parameter that the stage does not have")
        if values.dtype.kind not in "iuf" or values.ndim == 0 or len(values) == 0:
            raise _out_of_bounds("a parameter that is not numeric, or without a value for each θ")
        if (name in ONE_EACH and values.ndim != 1) or (rows is not None and rows in values.shape[1:]):
            raise _out_of_bounds("a parameter with a value for each person")
        batches.add(len(values))
        if len(batches) > 1:
            raise _out_of_bounds("parameters for different numbers of θ")
        lowest, highest = bounds[name]
        if bounds[name] is ANY:
            continue
        if not np.all(np.isfinite(values)):
            raise _out_of_bounds("a number that is not finite")
        if np.any(values < lowest) or np.any(values > highest):
            raise _out_of_bounds(f"'{name}' out of bounds")


def check_finite(cotangent: Statistics) -> None:
    if not all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(cotangent)):
        raise _out_of_bounds("a number that is not finite")


def extent(parameters: Parameters) -> dict[str, tuple[float, float]]:
    """The smallest and largest value of each parameter."""
    found: dict[str, tuple[float, float]] = {}
    for name, values in _named(parameters):
        if values.size:
            lowest, highest = found.get(name, (np.inf, -np.inf))
            found[name] = (min(lowest, float(values.min())), max(highest, float(values.max())))
    return found


def _named(parameters: Parameters) -> Iterator[tuple[str, np.ndarray]]:
    """Every array, named by the innermost key of a dictionary on the way to it."""
    for part in (parameters.free, parameters.fixed, parameters.per_site):
        for path, leaf in jax.tree_util.tree_flatten_with_path(part)[0]:
            keys = [str(step.key) for step in path if isinstance(step, jax.tree_util.DictKey)]
            yield keys[-1] if keys else "", np.asarray(leaf)


def _out_of_bounds(found: str) -> MessageError:
    return MessageError(
        "a question must be within the bounds of its stage",
        found=found,
        remedy="run the same version of unpooled everywhere; an honest fit stays within them",
    )
