"""FedCI's face: what the coordinator and the sites call."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

from unpooled.methods.fedci import variational_effects as variational
from unpooled.methods.fedci.collapsed import Evidence, FeatureEvidence, KernelEvidence, Ridge
from unpooled.methods.fedci.draws import conditional_effects, individual_effects, mix
from unpooled.methods.fedci.effects import AverageEffect, HeldOut
from unpooled.methods.fedci.fit import fit
from unpooled.methods.fedci.settings import Settings
from unpooled.methods.fedci.structures import GRID, Kernel, Projection
from unpooled.methods.fedci.subsample import REFINEMENT, Thinned, share, thinned
from unpooled.methods.method import Fitted
from unpooled.optimise.procedure import Procedure
from unpooled.protocol.messages import Tree
from unpooled.protocol.rows import Rows
from unpooled.protocol.stage import Stage

EXACT_ROWS = 300
"""Up to so many rows at the largest site its remainder is kept exactly; beyond, only its diagonal."""
CANDIDATES = ("projection", "isotropic")
COMPONENTS = 2


class FedCI:
    """See `unpooled.methods.method.Method`."""

    Settings = Settings
    takes_incomplete = False

    def context(self, settings: Settings, scaling: Tree, seed: int) -> Tree:
        return {
            "correlation": np.asarray(scaling["correlation"]),
            "site_moments": np.asarray(scaling["site_moments"]),
            "inducing": pseudo_people(scaling, settings.basis, seed),
            "exact": bool(max(scaling["counts"]) <= EXACT_ROWS),
            "share": share(scaling["counts"]),
        }

    def stages(self, settings: Settings, context: Tree) -> dict[str, Stage]:
        if settings.inference == "variational":
            return variational.stages(settings, context)
        evidences = _evidences(settings, context)
        stages: dict[str, Stage] = {"ridge": Ridge(), **evidences}
        stages |= {f"effect/{name}": AverageEffect(evidence) for name, evidence in evidences.items()}
        if context["share"] < 1.0:
            stages |= {thinned(name): Thinned(evidence) for name, evidence in evidences.items()}
        if len(evidences) > 1:
            stages["held_out"] = HeldOut(tuple(evidences.values()))
        return stages

    def fit(self, settings: Settings, context: Tree, seed: int) -> Procedure[Fitted]:
        if settings.inference == "variational":
            return (yield from variational.fit(settings, context, seed))
        evidences, folds = _evidences(settings, context), self.folds(settings)
        result = yield from fit(settings, evidences, folds, seed, context["share"])
        site_effects = mix(result.effects, result.weights, settings.draws)
        draws = {"weights": result.weights, "structures": result.draws}
        return Fitted(draws, site_effects, {"weights": result.weights, "structures": result.diagnostics})

    def folds(self, settings: Settings) -> int:
        weighed = settings.inference == "collapsed" and len(_names(settings)) > 1
        return settings.folds if weighed else 0

    def features(self, settings: Settings, context: Tree) -> int:
        width = 1 + len(context["correlation"])
        if settings.inference == "variational":
            return width
        beyond = {"projection": COMPONENTS * len(GRID), "paper": 0}
        return width + max(beyond.get(name, settings.basis) for name in _names(settings))

    def most_rounds(self, settings: Settings) -> int:
        if settings.inference == "variational":
            return settings.rounds + 1
        allowed = [
            settings.evaluations or (Projection if name == "projection" else Kernel).evaluations
            for name in _names(settings)
        ]
        # Ridge; evaluations of two rounds; held-out errors; a Hessian of two; statistics; effects. Where
        # sites are large, further evaluations on everybody.
        return 1 + 2 * (max(allowed) + REFINEMENT) + (len(allowed) > 1) + 2 + 2

    def conditional_effects(
        self, settings: Settings, context: Tree, draws: Tree, rows: Rows, people: Rows
    ) -> np.ndarray:
        if settings.inference == "variational":
            return variational.conditional_effects(settings, context, draws, rows, people)
        return conditional_effects(_evidences(settings, context), draws, rows, people, settings.draws)

    def individual_effects(
        self, settings: Settings, context: Tree, draws: Tree, rows: Rows, people: Rows | None
    ) -> np.ndarray:
        if settings.inference == "variational":
            return variational.individual_effects(settings, context, draws, rows, people)
        evidences = _evidences(settings, context)
        return individual_effects(evidences, draws, rows, people, settings.draws, settings.noise_correlation)


def _evidences(settings: Settings, context: Tree) -> dict[str, Evidence]:
    return {name: _evidence(name, settings, context) for name in _names(settings)}


def _names(settings: Settings) -> tuple[str, ...]:
    return CANDIDATES if settings.structure == "auto" else (settings.structure,)


def _evidence(name: str, settings: Settings, context: Tree) -> Evidence:
    shared: dict[str, Any] = {
        "site_moments": jnp.asarray(context["site_moments"]),
        "family": settings.kernel,
        "shifts": settings.inter_dependency,
        "coupled": settings.arms_coupled,
    }
    if name == "projection":
        return FeatureEvidence(
            Projection(**shared, correlation=jnp.asarray(context["correlation"]), components=COMPONENTS)
        )
    inducing = jnp.asarray(context["inducing"])[: 0 if name == "paper" else None]
    structure = Kernel(**shared, inducing=inducing, ard=name == "ard", tied=name == "paper")
    return KernelEvidence(structure, diagonal=not context["exact"])


def pseudo_people(scaling: Tree, count: int, seed: int) -> np.ndarray:
    """Inducing inputs: nobody's rows, but draws with the covariates' correlations and rates."""
    correlation = np.asarray(scaling["correlation"])
    rng = np.random.default_rng([seed, 1])
    values, vectors = np.linalg.eigh(correlation)
    normal = rng.standard_normal((count, len(values))) * np.sqrt(np.maximum(values, 0.0)) @ vectors.T
    rates = np.asarray(scaling["binary_rate"])
    for column in np.flatnonzero(np.isfinite(rates)):
        rate = rates[column]
        ones = np.argsort(np.argsort(-normal[:, column])) < round(rate * count)
        normal[:, column] = (ones - rate) / scaling["sd"][column]
    return normal


METHOD = FedCI()
