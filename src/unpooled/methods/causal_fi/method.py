"""CausalFI's face: what the coordinator and the sites call."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from unpooled.algorithms.exchange import Procedure
from unpooled.errors import StudyError
from unpooled.methods.causal_fi.augmenting import Augmenting, Model
from unpooled.methods.causal_fi.effects import AverageEffect, conditional, individual
from unpooled.methods.causal_fi.fit import SETTLING, STARTED, TRIED, Sampler, fit
from unpooled.methods.causal_fi.parameters import Sizes
from unpooled.methods.causal_fi.settings import Settings
from unpooled.methods.causal_fi.structures import STRUCTURES
from unpooled.methods.method import Fitted
from unpooled.methods.outcomes import OutcomeScale
from unpooled.protocol.addressing import at_site
from unpooled.protocol.messages import Tree
from unpooled.protocol.rows import Rows
from unpooled.protocol.stage import Stage


class CausalFI:
    """See `unpooled.methods.method.Method`."""

    Settings = Settings
    takes_incomplete = True

    def context(self, settings: Settings, scaling: Tree, seed: int) -> Tree:
        _require_numbers(scaling)
        return {
            "covariates": len(scaling["mean"]),
            "incomplete": len(scaling["incomplete_mean"]),
            "sites": len(scaling["counts"]),
            "outcome_sd": float(scaling["outcome_sd"]),
        }

    def stages(self, settings: Settings, context: Tree) -> dict[str, Stage]:
        stages = dict[str, Stage]()
        for name in dict.fromkeys(("linear", *_names(settings))):
            stages[f"augmenting/{name}"] = Augmenting(Model(STRUCTURES[name]))
            stages[f"effect/{name}"] = AverageEffect(Model(STRUCTURES[name]))
        return stages

    def fit(self, settings: Settings, context: Tree, seed: int) -> Procedure[Fitted]:
        sizes = Sizes(int(context["covariates"]), int(context["incomplete"]), int(context["sites"]))
        found = yield from fit(
            Sampler(sizes, seed), _names(settings), folds=self.folds(settings), sweeps=settings.sweeps,
            draws=settings.draws,
        )  # fmt: skip
        draws = {"structure": found.structure, "parameters": found.draws}
        return Fitted(draws, found.effects, found.diagnostics)

    def folds(self, settings: Settings) -> int:
        return settings.folds if settings.structure == "auto" else 0

    def features(self, settings: Settings, context: Tree) -> int:
        """What is kept by site: sums of the outcome model's slopes, in either arm."""
        return 1

    def most_rounds(self, settings: Settings) -> int:
        return STARTED + TRIED + SETTLING + settings.sweeps + 1

    def conditional_effects(
        self, settings: Settings, context: Tree, draws: Tree, rows: Rows, people: Rows
    ) -> np.ndarray:
        model, known = _at(draws, int(people.site))
        return conditional(model, known, people)

    def individual_effects(
        self, settings: Settings, context: Tree, draws: Tree, rows: Rows, people: Rows | None
    ) -> np.ndarray:
        asked = rows if people is None else people
        model, known = _at(draws, int(asked.site))
        outcome = OutcomeScale(jnp.asarray(context["outcome_sd"]), binary=False)
        return individual(model, outcome, known, asked, settings.noise_correlation)


def _require_numbers(scaling: Tree) -> None:
    """What is modelled so far."""
    others = sorted({kind for kind in scaling["incomplete_kinds"] if kind != "numeric"})
    if others:
        raise StudyError(
            "CausalFI completes columns of numbers",
            found=f"incomplete columns that are {' and '.join(others)}",
            remedy="leave these columns out, or complete them first and list them under `covariates`",
        )
    if scaling["family"] != "continuous":
        raise StudyError(
            "CausalFI models continuous outcomes",
            found=f'family = "{scaling["family"]}"',
            remedy='set family = "continuous": effects are then differences of means',
        )


def _names(settings: Settings) -> tuple[str, ...]:
    return tuple(STRUCTURES) if settings.structure == "auto" else (settings.structure,)


def _at(draws: Tree, site: int) -> tuple[Model, Tree]:
    """The model, and its draws as one site knows them."""
    return Model(STRUCTURES[draws["structure"]]), at_site(draws["parameters"], site)


METHOD = CausalFI()
