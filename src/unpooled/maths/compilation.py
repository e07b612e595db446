"""How much effort the compiler spends on a program.

Compilation takes longer than most fits. JAX's default options optimise programs for long use. Ours are small,
and many run once or twice per fit; these are compiled with less effort. A program's options depend on what it
computes and on its shapes, never on the machine or on what ran before, so that numbers can be reproduced
(docs/decisions/0024-compilation.md).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from threading import Lock
from typing import Any, Literal

import jax
import jax.numpy as jnp
from jaxtyping import PyTree

Effort = Literal["low", "high", "highest"]
SMALL, LARGE = 50_000, 1_000_000
"""Programs whose arguments hold at most `SMALL` numbers run quickly however they are compiled; with more than
`LARGE`, the seconds of the compiler's default options are well spent."""
_FASTER: dict[str, Any] = {"xla_cpu_use_fusion_emitters": False}
_OPTIONS: dict[Effort, dict[str, Any]] = {
    "low": {**_FASTER, "xla_backend_optimization_level": 0},
    "high": {**_FASTER, "xla_backend_optimization_level": 1},
    "highest": {},
}


def effort_of(arguments: PyTree, *, often: bool) -> Effort:
    """Low for programs that run seldom in a fit on few numbers, highest for those that run on very many."""
    size = sum(leaf.size for leaf in jax.tree.leaves(arguments) if hasattr(leaf, "size"))
    if size > LARGE:
        return "highest"
    return "high" if often or size > SMALL else "low"


@cache
def options(effort: Effort) -> dict[str, Any]:
    """The compiler's options; none if this version of XLA does not know them."""
    try:
        jax.jit(jnp.negative, compiler_options=_OPTIONS[effort]).lower(0.0).compile()
    except (jax.errors.JaxRuntimeError, TypeError):
        return {}
    return _OPTIONS[effort]


class Program:
    """A function that is compiled for every shape, with the effort that the shape asks for."""

    def __init__(self, function: Callable[..., Any], *, often: bool = False, **jit: Any) -> None:
        self._function, self._often, self._jit = function, often, jit
        self._by_effort: dict[Effort, Callable[..., Any]] = {}
        self._lock = Lock()

    def __call__(self, *arguments: Any) -> Any:
        effort = effort_of(arguments, often=self._often)
        # Sites of one process answer in threads, and the first of them must not compile beside the second.
        with self._lock:
            if effort not in self._by_effort:
                chosen = options(effort)
                self._by_effort[effort] = jax.jit(self._function, compiler_options=chosen, **self._jit)
        return self._by_effort[effort](*arguments)
