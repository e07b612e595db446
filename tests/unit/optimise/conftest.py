"""A toy objective whose minimum is known, over sites that hold a few numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

from unpooled.coordinator.rounds import Conduct, Round
from unpooled.engines.in_process import InProcess
from unpooled.optimise.procedure import Procedure
from unpooled.protocol.messages import Statistics
from unpooled.protocol.records import Parameters
from unpooled.protocol.rows import Rows, make_rows
from unpooled.protocol.stage import ANY, Bounds, Objective
from unpooled.site.site import Adoption, Site
from unpooled.study import ColumnRoles

CENTRES = {"north": np.array([1.0, -2.0]), "south": np.array([3.0, 4.0])}
"""Every site pulls θ towards its own centre; with a prior at zero the minimum is Σ centres / 3."""


class Toy(Objective):
    """Bounds of the toys' parameters."""

    reveals: ClassVar[str] = "a toy"

    def bounds(self) -> Bounds:
        return dict.fromkeys(("at", "weight", "key", "none"), ANY)


class Pull(Toy):
    """Σ_s |θ − c_s|² weighted by `weight`, plus |θ|²: two exchanges, because F looks at S."""

    def statistics(self, parameters: Parameters, rows: Rows) -> Statistics:
        gap = parameters.free["at"] - rows.covariates[0]
        return Statistics({"gap": jnp.sum(gap**2)}, {"gap": gap})

    def value(self, parameters: Parameters, statistics: Statistics) -> Any:
        weight = parameters.fixed["weight"]
        return weight * (statistics.summed["gap"] + jnp.sum(parameters.free["at"] ** 2))


class Bound(Toy):
    """The same as a scalar bound with noise: one exchange (Algorithm 1)."""

    one_exchange: ClassVar[bool] = True

    def statistics(self, parameters: Parameters, rows: Rows) -> Statistics:
        return Statistics(jnp.sum((parameters.free["at"] - rows.covariates[0]) ** 2))

    def value(self, parameters: Parameters, statistics: Statistics) -> Any:
        return statistics.summed + jnp.sum(parameters.free["at"] ** 2)


class Cliff(Toy):
    """Not a number left of −1, a parabola about 0 elsewhere."""

    def statistics(self, parameters: Parameters, rows: Rows) -> Statistics:
        return Statistics({"at": parameters.free["at"][0]})

    def value(self, parameters: Parameters, statistics: Statistics) -> Any:
        return jnp.sqrt(parameters.free["at"][0] + 1.0) ** 4 - 2.0 * parameters.free["at"][0]


class Valley(Toy):
    """Rosenbrock's valley, its minimum at (1, 1), steep across and nearly flat along."""

    def statistics(self, parameters: Parameters, rows: Rows) -> Statistics:
        x, y = parameters.free["at"]
        return Statistics({"across": 50.0 * (y - x**2) ** 2, "along": 0.5 * (1.0 - x) ** 2})

    def value(self, parameters: Parameters, statistics: Statistics) -> Any:
        return 100.0 * (statistics.summed["across"] + statistics.summed["along"])


STAGES = {"pull": Pull(), "bound": Bound(), "cliff": Cliff(), "valley": Valley()}
Drive = Callable[[Procedure[Any]], tuple[Any, list[Round]]]


@pytest.fixture(scope="session")
def stages() -> dict[str, Objective]:
    return STAGES


@pytest.fixture(scope="session")
def engine() -> InProcess:
    sites = {}
    for index, (name, centre) in enumerate(CENTRES.items()):
        nothing = np.zeros(1)
        rows = make_rows(centre[None], nothing, nothing, fold=nothing, site=index)
        columns = ColumnRoles(treatment="w", outcome="y", covariates=("a", "b"))
        adopted: Any = Adoption(rows, rows, 1, None, None, None, None, None, STAGES, 0)  # type: ignore[arg-type]
        sites[name] = Site(name, pd.DataFrame(), columns, adopted=adopted)
    return InProcess(sites)


@pytest.fixture(scope="session")
def drive(engine: InProcess) -> Drive:
    def run(procedure: Procedure[Any]) -> tuple[Any, list[Round]]:
        conduct = Conduct(procedure, engine)
        rounds = list(conduct)
        return conduct.result, rounds

    return run
