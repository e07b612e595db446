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
from unpooled.coordinator.agreement import reach_agreement
from unpooled.coordinator.rounds import run
from unpooled.coordinator.run import adoption
from unpooled.disclosure.limits import NONE
from unpooled.engines.in_process import InProcess, open_sites
from unpooled.maths.kernels import JITTER
from unpooled.maths.streams import stream
from unpooled.methods.fedci import METHOD
from unpooled.methods.fedci.model import GRID, INTERCEPT_SD
from unpooled.methods.fedci.posterior import Posterior, posteriors
from unpooled.methods.fedci.settings import FedCIContext
from unpooled.methods.fedci.stages import Evidence, KernelEvidence
from unpooled.methods.method import with_settings
from unpooled.optimise.procedure import Procedure
from unpooled.protocol.messages import Statistics
from unpooled.protocol.records import Arrays, Parameters, Scaling, SiteSummaries
from unpooled.site.folds import folds
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


def scaling_of(**known: Any) -> Scaling:
    """A scaling of which only some fields matter; the others are empty."""
    arrays = ("mean", "sd", "correlation", "binary_rate", "site_distances")
    incomplete = ("incomplete_mean", "incomplete_sd")
    empty = {name: np.zeros(0) for name in (*arrays, *incomplete)}
    plain = {"outcome_mean": 0.0, "outcome_sd": 1.0, "family": "continuous"}
    by_site = SiteSummaries(known.pop("site_names", ()), known.pop("counts", ()), np.zeros(0))
    sizes = {"sites": len(by_site.counts), "people": sum(by_site.counts)}
    totals = {"incomplete_columns": (), "largest_site": max(by_site.counts, default=0), **sizes}
    return Scaling(**{**empty, **plain, **totals, "by_site": by_site, **known})


def posterior_of(evidence: Evidence, parameters: Parameters, statistics: Statistics) -> Posterior:
    """The posterior of weights and shifts under one θ."""
    asked, told = jax.tree.map(lambda leaf: np.asarray(leaf)[None], (parameters, statistics))
    (found,) = posteriors(evidence, asked.free, asked.fixed, told)
    return found


DIRECTIONS = np.array([[1.0, 0.3, -0.2], [-0.4, 0.2, 0.9]])
"""Where a ridge regression per arm might point."""


PROPENSITY = np.array([0.7, -0.5, 0.3])
"""Where a regression of the treatment might point."""


@dataclass
class World:
    """Sites that have adopted the study, one of its structures, and a point to look at."""

    engine: InProcess
    sites: dict[str, Any]
    context: FedCIContext
    settings: Any
    name: str
    evidence: Evidence
    free: dict[str, np.ndarray]
    noise: np.ndarray

    def run(self, procedure: Procedure[Any]) -> Any:
        return run(procedure, self.engine)

    def fixed(self, fold: int = -1) -> Arrays:
        return {
            "fold": np.array(fold),
            "noise": np.log(self.noise),
            "direction": DIRECTIONS / np.linalg.norm(DIRECTIONS, axis=1, keepdims=True),
            "rows": np.array([20.0, 15.0]),
            "propensity": PROPENSITY,
        }

    def parameters(self, fold: int = -1) -> Parameters:
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
            site_distances=np.asarray(self.context.site_distances),
            shifts=self.settings.inter_dependency,
            coupled=self.settings.arms_coupled,
            propensity=None if self.name == "paper" else PROPENSITY,
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
    basis = {"basis": 6} if structure in ("isotropic", "ard") else {}
    chosen = METHOD.Settings(**{"structure": structure, "draws": 40, **basis, **settings})
    study = with_settings(STUDY, "fedci", chosen.model_dump(mode="json"), seed=0)

    def adopted() -> Procedure[FedCIContext]:
        agreement = yield from reach_agreement(STUDY)
        scaling = replace(agreement.scaling, largest_site=50 if exact else 1000)
        yield adoption(study, agreement.schema, scaling)
        return METHOD.context(chosen, scaling, 0)

    context = run(adopted(), engine)
    for index, site in enumerate(opened.values()):  # one structure alone holds nobody out: folds all the same
        site.adopted = _with_folds(site.adopted, 4, index)
    evidence = METHOD.stages(chosen, context)[structure]
    assert isinstance(evidence, Evidence)
    noise = np.array([0.5, 0.6])
    return World(engine, opened, context, chosen, structure, evidence, point(evidence, noise, seed), noise)


def _with_folds(adoption: Any, count: int, index: int) -> Any:
    rows = adoption.rows
    people = folds(np.asarray(rows.treatment)[: adoption.count], count, stream(0, "folds", index))
    padded = np.pad(people, (0, len(rows.fold) - adoption.count), constant_values=-1)
    return replace(adoption, rows=eqx.tree_at(lambda r: r.fold, rows, jnp.asarray(padded)))


def point(evidence: Evidence, noise: np.ndarray, seed: int) -> dict[str, np.ndarray]:
    """Hyperparameters in general position: no zero, no symmetry to hide behind."""
    rng = np.random.default_rng(seed)
    start = evidence.structure.start(DIRECTIONS, noise)
    return {name: np.asarray(value) + 0.3 * rng.normal(size=np.shape(value)) for name, value in start.items()}
