"""A tiny study that has been agreed and adopted, and the same study as the oracle sees it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd

from oracle import fedci as oracle
from unpooled.coordinator.agreement import Agreement, reach_agreement
from unpooled.coordinator.rounds import Conduct
from unpooled.disclosure.limits import NONE
from unpooled.engines.in_process import InProcess, open_sites
from unpooled.maths.kernels import JITTER
from unpooled.methods.fedci import METHOD
from unpooled.methods.fedci.collapsed import Evidence, KernelEvidence
from unpooled.methods.fedci.structures import GRID, INTERCEPT_SD
from unpooled.optimise.procedure import Procedure
from unpooled.protocol.messages import Adopt
from unpooled.protocol.records import Arrays, Parameters
from unpooled.site.site import folds
from unpooled.study import Study

STUDY = Study(treatment="w", outcome="y", covariates=["a", "b", "c"])
SIZES = {"north": 9, "south": 15, "east": 12}


def frames(sizes: dict[str, int] = SIZES, seed: int = 11) -> dict[str, pd.DataFrame]:
    """Sites of unequal sizes and unlike people, with an effect that differs from person to person."""
    rng = np.random.default_rng(seed)
    tables = {}
    for number, (name, rows) in enumerate(sizes.items()):
        x = rng.normal(0.4 * number, 1.0 + 0.2 * number, size=(rows, 3))
        w = (np.arange(rows) + rng.integers(2)) % 2
        rng.shuffle(w)
        y = np.sin(x[:, 0]) + 0.5 * x[:, 1] + w * (2.0 + x[:, 2]) + 0.3 * number + 0.4 * rng.normal(size=rows)
        tables[name] = pd.DataFrame({"a": x[:, 0], "b": x[:, 1], "c": x[:, 2], "w": w, "y": y})
    return tables


DIRECTIONS = np.array([[1.0, 0.3, -0.2], [-0.4, 0.2, 0.9]])
"""Where a ridge regression per arm might point."""


@dataclass
class World:
    """Sites that have adopted the study, one of its structures, and a point to look at."""

    engine: InProcess
    sites: dict[str, Any]
    context: Context
    settings: Any
    name: str
    evidence: Evidence
    free: dict[str, np.ndarray]
    noise: np.ndarray

    def run(self, procedure: Procedure[Any]) -> Any:
        conduct = Conduct(procedure, self.engine)
        for _ in conduct:
            pass
        return conduct.result

    def fixed(self, fold: int = -1) -> Arrays:
        return {
            "fold": np.array(fold),
            "noise": np.log(self.noise),
            "direction": DIRECTIONS / np.linalg.norm(DIRECTIONS, axis=1, keepdims=True),
            "rows": np.array([20.0, 15.0]),
        }

    def parameters(self, fold: int = -1) -> Arrays:
        return Parameters(self.free, self.fixed(fold))

    def rows(self, site: str) -> Any:
        return self.sites[site].adopted.rows

    # ---------------------------------------------------------------- the oracle's side

    def people(self, *, without_fold: int = -2) -> tuple[oracle.People, np.ndarray]:
        """Everybody of every site in one table, and their outcomes."""
        parts = []
        for name in self.sites:
            rows = jax.tree.map(np.asarray, self.rows(name))
            keep = (rows.present > 0) & (rows.fold != without_fold)
            site = np.full(keep.sum(), int(rows.site))
            parts.append((rows.covariates[keep], rows.treatment[keep], site, rows.outcome[keep]))
        covariates, arm, site, outcome = (np.concatenate(part) for part in zip(*parts, strict=True))
        return oracle.People(covariates, arm.astype(int), site, np.arange(len(arm))), outcome

    def model(
        self, free: dict[str, np.ndarray] | None = None, noise_correlation: float = 0.0
    ) -> oracle.Model:
        """The dense model at a point."""
        free = self.free if free is None else free
        kernel = isinstance(self.evidence, KernelEvidence)
        setting = oracle.Setting(
            family=self.settings.kernel,
            site_moments=np.asarray(self.context.site_moments),
            shifts=self.settings.inter_dependency,
            coupled=self.settings.arms_coupled,
            intercept_sd=INTERCEPT_SD,
            basis_jitter=JITTER,
            noise_jitter=1e-8 if kernel else 0.0,
        )
        if not kernel:
            covariance = np.asarray(self.context.correlation)
            return oracle.projection_model(
                free, setting, covariance=covariance, grid=GRID, noise_correlation=noise_correlation
            )
        return oracle.kernel_model(
            free,
            setting,
            inducing=np.asarray(self.evidence.structure.inducing),
            tied=self.name == "paper",
            diagonal=self.evidence.diagonal,
            noise_correlation=noise_correlation,
        )

    def objective(self, free: dict[str, np.ndarray], fold: int = -1) -> float:
        """−log marginal likelihood (without its n·log 2π/2) − log prior, the likelihood dense and pooled."""
        people, outcome = self.people(without_fold=-2 if fold < 0 else fold)
        likelihood = oracle.log_marginal_likelihood(self.model(free), people, outcome)
        prior = self.evidence.structure.log_prior(free, self.fixed(fold))
        return float(-likelihood - 0.5 * len(outcome) * np.log(2.0 * np.pi) - prior)


def build(
    structure: str,
    tables: dict[str, pd.DataFrame] | None = None,
    *,
    exact: bool = True,
    seed: int = 5,
    **settings: Any,
) -> World:
    """Agree and adopt for real; then stand at a point some way off the structure's start."""
    opened = open_sites(STUDY, frames() if tables is None else tables, NONE)
    engine = InProcess(opened)
    chosen = METHOD.Settings(**{"structure": structure, "basis": 6, "draws": 40, **settings})

    def adopted() -> Procedure[tuple[Agreement, Arrays]]:
        agreement = yield from reach_agreement(STUDY)
        context = {**METHOD.context(chosen, agreement.scaling, 0), "exact": exact}
        yield Adopt(
            schema=agreement.schema.model_dump(mode="json"),
            scaling=agreement.scaling,
            method="fedci",
            settings=chosen.model_dump(mode="json"),
            context=context,
            seed=0,
            sites=tuple(agreement.descriptions),
        )
        return agreement, context

    conduct = Conduct(adopted(), engine)
    for _ in conduct:
        pass
    _, context = conduct.result
    for index, site in enumerate(opened.values()):  # one structure alone holds nobody out: folds all the same
        site.adopted = _with_folds(site.adopted, 4, index)
    evidence = METHOD.stages(chosen, context)[structure]
    noise = np.array([0.5, 0.6])
    return World(engine, opened, context, chosen, structure, evidence, point(evidence, noise, seed), noise)


def _with_folds(adoption: Any, count: int, index: int) -> Any:
    rows = adoption.rows
    people = folds(np.asarray(rows.treatment)[: adoption.count], count, [0, 2, index])
    padded = np.pad(people, (0, len(rows.fold) - adoption.count), constant_values=-1)
    return replace(adoption, rows=eqx.tree_at(lambda r: r.fold, rows, jnp.asarray(padded)))


def point(evidence: Evidence, noise: np.ndarray, seed: int) -> dict[str, np.ndarray]:
    """Hyperparameters in general position: no zero, no symmetry to hide behind."""
    rng = np.random.default_rng(seed)
    start = evidence.structure.start(DIRECTIONS, noise)
    return {name: np.asarray(value) + 0.3 * rng.normal(size=np.shape(value)) for name, value in start.items()}
