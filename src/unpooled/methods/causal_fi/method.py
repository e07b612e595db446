"""CausalFI's face: what the coordinator and the sites call."""

from __future__ import annotations

import numpy as np

from unpooled.methods.causal_fi import paper
from unpooled.methods.causal_fi.augmentation import Augmenting
from unpooled.methods.causal_fi.chain import Sizes
from unpooled.methods.causal_fi.columns import describe, layout_of
from unpooled.methods.causal_fi.effects import AverageEffect, conditional, individual
from unpooled.methods.causal_fi.families import family_of
from unpooled.methods.causal_fi.fit import SETTLING, STARTED, TRIED, Sampler, fit
from unpooled.methods.causal_fi.model import Model
from unpooled.methods.causal_fi.settings import Settings
from unpooled.methods.causal_fi.shifts import by_site
from unpooled.methods.causal_fi.structures import STRUCTURES
from unpooled.methods.method import Fitted
from unpooled.optimise.procedure import Procedure
from unpooled.protocol.addressing import at_site
from unpooled.protocol.messages import Tree
from unpooled.protocol.rows import Rows
from unpooled.protocol.stage import Stage


class CausalFI:
    """See `unpooled.methods.method.Method`."""

    Settings = Settings
    takes_incomplete = True

    def context(self, settings: Settings, scaling: Tree, seed: int) -> Tree:
        shift = by_site(settings.shifts, scaling)
        return {
            **({} if shift is None else {"shift": shift}),
            "covariates": len(scaling["mean"]),
            "columns": describe(scaling),
            "sites": len(scaling["counts"]),
            "family": scaling["family"],
            "outcome_mean": float(scaling["outcome_mean"]),
            "outcome_sd": float(scaling["outcome_sd"]),
        }

    def stages(self, settings: Settings, context: Tree) -> dict[str, Stage]:
        if settings.inference == "variational":
            return paper.stages(settings, context)
        stages = dict[str, Stage]()
        for name in dict.fromkeys(("linear", *_names(settings))):
            model = _model(name, context)
            stages[f"augmenting/{name}"] = Augmenting(model)
            stages[f"effect/{name}"] = AverageEffect(model, settings.averaged == "completed")
        return stages

    def fit(self, settings: Settings, context: Tree, seed: int) -> Procedure[Fitted]:
        if settings.inference == "variational":
            return (yield from paper.fit(settings, context, seed))
        layout = layout_of(context["columns"])
        sizes = Sizes(int(context["covariates"]), len(layout.mean), int(context["sites"]))
        found = yield from fit(
            Sampler(sizes, layout, family_of(context), context.get("shift"), seed), _names(settings),
            folds=self.folds(settings), sweeps=settings.sweeps, draws=settings.draws,
        )  # fmt: skip
        draws = {"structure": found.structure, "parameters": found.draws}
        return Fitted(draws, found.effects, found.diagnostics)

    def folds(self, settings: Settings) -> int:
        chosen = settings.inference == "compatible" and settings.structure == "auto"
        return settings.folds if chosen else 0

    def features(self, settings: Settings, context: Tree) -> int:
        """What is kept by site: sums of the outcome model's slopes, in either arm."""
        return 1

    def most_rounds(self, settings: Settings) -> int:
        if settings.inference == "variational":
            return paper.most_rounds(settings)
        return STARTED + TRIED + SETTLING + settings.sweeps + 1

    def conditional_effects(
        self, settings: Settings, context: Tree, draws: Tree, rows: Rows, people: Rows
    ) -> np.ndarray:
        if settings.inference == "variational":
            return paper.conditional_effects(settings, context, draws, rows, people)
        model, known = _at(context, draws, int(people.site))
        return conditional(model, known, people)

    def individual_effects(
        self, settings: Settings, context: Tree, draws: Tree, rows: Rows, people: Rows | None
    ) -> np.ndarray:
        if settings.inference == "variational":
            return paper.individual_effects(settings, context, draws, rows, people)
        asked = rows if people is None else people
        model, known = _at(context, draws, int(asked.site))
        return individual(model, known, asked, settings.noise_correlation)


def _names(settings: Settings) -> tuple[str, ...]:
    return tuple(STRUCTURES) if settings.structure == "auto" else (settings.structure,)


def _model(structure: str, context: Tree) -> Model:
    return Model(STRUCTURES[structure], layout_of(context["columns"]), family_of(context))


def _at(context: Tree, draws: Tree, site: int) -> tuple[Model, Tree]:
    """The model, and its draws as one site knows them."""
    return _model(draws["structure"], context), at_site(draws["parameters"], site)


METHOD = CausalFI()
