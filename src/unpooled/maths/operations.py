"""How much work a JAX function is: products, numbers moved, and steps, counted without running it.

XLA's own analysis of a lowered program leaves out factorisations, which the CPU has from LAPACK, so the steps
of the traced function are counted instead. Shapes are all that is needed: no array is made, however large.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import prod
from typing import Any, NamedTuple

import jax


class Operations(NamedTuple):
    """The work of one call."""

    products: float = 0.0
    """Floating-point operations of products and factorisations of matrices."""
    numbers: float = 0.0
    """Numbers that the steps read or write; those of large arrays and random ones count several times."""
    steps: int = 0
    """Steps of the program, which its compilation takes time for; a loop's are counted once."""

    def plus(self, other: Operations, times: float = 1.0) -> Operations:
        """This work and another, which is repeated; the program of the other has its steps only once."""
        return Operations(
            self.products + times * other.products,
            self.numbers + times * other.numbers,
            self.steps + other.steps,
        )


RANDOM = 250.0
"""Numbers that a draw of random bits counts as."""
CACHED, BEYOND = 200_000, 2.5
"""Numbers that a core's cache holds, and how many each number of a larger array counts as."""
_FREE = {
    "reshape", "squeeze", "expand_dims", "broadcast_in_dim", "convert_element_type", "stop_gradient", "copy",
    "random_wrap", "random_unwrap", "transpose", "slice",
}  # fmt: skip
"""Steps that the compiler makes part of others."""


def operations(function: Callable[..., Any], *arguments: Any) -> Operations:
    """The work of `function(*arguments)`; arguments may be arrays or their shapes.

    >>> import jax.numpy as jnp
    >>> x = jax.ShapeDtypeStruct((1000, 20), jnp.float64)
    >>> operations(lambda x: jnp.exp(x.T @ x), x)
    Operations(products=800000.0, numbers=40800.0, steps=3)
    """
    return with_shapes(function, *arguments)[0]


def with_shapes(function: Callable[..., Any], *arguments: Any) -> tuple[Operations, Any]:
    """The work of `function(*arguments)`, and the shapes of what it returns."""
    traced, shapes = jax.make_jaxpr(function, return_shape=True)(*arguments)
    return _of(traced.jaxpr), shapes


def _of(program: Any) -> Operations:
    found = Operations()
    for step in program.eqns:
        found = found.plus(_one(step))
    return found


def _one(step: Any) -> Operations:
    name, inner = step.primitive.name, [_of(one) for one in _programs(step.params)]
    if name == "cond":
        worst = max(inner, key=lambda one: one.products + one.numbers)
        return Operations(worst.products, worst.numbers, 1 + sum(one.steps for one in inner))
    if inner:
        # How often a loop with a condition runs is not known before it runs; it is counted once.
        times = step.params["length"] if name == "scan" else 1
        found = Operations()
        for one in inner:
            found = found.plus(one, times)
        return found
    if name in _FREE:
        return Operations(steps=1)
    read, written = (sum(prod(one.aval.shape) for one in some) for some in (step.invars, step.outvars))
    products = _products(step)
    # Other steps are made parts of each other, so that most of what they read has just been written.
    size = read + written if products else max(read, written) if name.startswith("reduce") else written
    weight = RANDOM if name.startswith(("random_bits", "threefry")) else BEYOND if size > CACHED else 1.0
    return Operations(products or 0.0, weight * size, 1)


def _products(step: Any) -> float | None:
    """Floating-point operations of a product or factorisation; None for other steps."""
    shape: Any = step.invars[0].aval.shape if step.invars else ()
    match step.primitive.name:
        case "dot_general":
            (contracted, _), _ = step.params["dimension_numbers"]
            return 2.0 * prod(step.outvars[0].aval.shape) * prod(shape[axis] for axis in contracted)
        case "cholesky":
            return prod(shape) * shape[-1] / 3.0
        case "triangular_solve":
            return float(prod(step.outvars[0].aval.shape) * shape[-1])
        case "lu":
            return prod(shape) * shape[-1] / 1.5
        case "eigh":
            return 9.0 * prod(shape) * shape[-1]
    return None


def _programs(parameters: dict[str, Any]) -> Iterator[Any]:
    """The programs inside a step: of a loop, of a condition, of a function that is compiled by itself."""
    for value in parameters.values():
        for one in value if isinstance(value, tuple | list) else (value,):
            closed = getattr(one, "jaxpr", one)
            if hasattr(closed, "eqns"):
                yield closed
