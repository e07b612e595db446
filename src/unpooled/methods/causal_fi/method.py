"""CausalFI's implementation of the `Method` interface."""

from __future__ import annotations

import numpy as np

from unpooled.methods.causal_fi import importance, paper
from unpooled.methods.causal_fi.chain import Sizes
from unpooled.methods.causal_fi.columns import layout_of, most_incomplete
from unpooled.methods.causal_fi.effects import AveragedOutcomes, conditional, individual
from unpooled.methods.causal_fi.expected import Asked, expected
from unpooled.methods.causal_fi.fit import STARTED, STARTING, TRIED, fit
from unpooled.methods.causal_fi.model import ImputationModel
from unpooled.methods.causal_fi.observed_posterior import MOST_DIMENSIONS, Coordinates
from unpooled.methods.causal_fi.posterior_sample import Length
from unpooled.methods.causal_fi.sampler import LIKELIHOOD, AugmentationSampler
from unpooled.methods.causal_fi.settings import CausalFIContext, CausalFISettings, by_site, outcome_family
from unpooled.methods.causal_fi.stages import Augmentation, ObservedLikelihood
from unpooled.methods.causal_fi.structures import STRUCTURES
from unpooled.methods.expected import Course
from unpooled.methods.method import Fit
from unpooled.models import dispersion
from unpooled.models.effects import AverageOfOutcomes
from unpooled.models.outcome_family import Gaussian
from unpooled.optimise.procedure import Procedure
from unpooled.protocol.records import Arrays, Draws, Scaling
from unpooled.protocol.rows import Rows
from unpooled.protocol.stage import Stage
from unpooled.study.family import Family


class CausalFIMethod:
    """See `unpooled.methods.method.Method`."""

    Settings = CausalFISettings
    Context = CausalFIContext
    takes_incomplete = True
    takes_weights = False
    takes_clusters = False

    def context(self, settings: CausalFISettings, scaling: Scaling, seed: int) -> CausalFIContext:
        return CausalFIContext(
            covariates=len(scaling.mean),
            columns=scaling.incomplete_columns,
            incomplete_mean=scaling.incomplete_mean,
            incomplete_sd=scaling.incomplete_sd,
            sites=scaling.sites,
            family=scaling.family,
            outcome_mean=scaling.outcome_mean,
            outcome_sd=scaling.outcome_sd,
            shift=by_site(settings.shifts, scaling),
            by_site=scaling.by_site,
        )

    def outcome_model(self, settings: CausalFISettings, family: Family) -> str:
        count = "Poisson" if settings.inference == "variational" else "negative binomial"
        return {
            "continuous": "by its mean, with Gaussian noise",
            "binary": "with a probit link",
            "count": f"by a {count} distribution with a log link",
        }[family]

    def stages(self, settings: CausalFISettings, context: CausalFIContext) -> dict[str, Stage]:
        if settings.inference == "variational":
            return paper.stages(settings, context)
        stages = dict[str, Stage]()
        for name in dict.fromkeys(("linear", *_names(settings))):
            model = _model(name, context)
            stages[f"augmentation/{name}"] = Augmentation(model)
            stages[f"effect/{name}"] = AverageOfOutcomes(
                AveragedOutcomes(model, settings.averaged == "completed")
            )
        if _may_be_weighted(settings, context):
            stages[LIKELIHOOD] = ObservedLikelihood(_model("linear", context))
        return stages

    def fit(self, settings: CausalFISettings, context: CausalFIContext, seed: int) -> Procedure[Fit]:
        if settings.inference == "variational":
            return (yield from paper.fit(settings, context, seed))
        assert context.by_site is not None
        layout = layout_of(context)
        sampler = AugmentationSampler(
            _sizes(context), layout, outcome_family(context), context.shift,
            column=most_incomplete(layout, context.by_site.observed),
            people=np.array(context.by_site.counts, dtype=float),
            weighted=_may_be_weighted(settings, context),
            seed=seed,
        )  # fmt: skip
        folds = self.folds(settings)
        return (yield from fit(sampler, _names(settings), folds=folds, length=_length(settings)))

    def folds(self, settings: CausalFISettings) -> int:
        chosen = settings.inference == "compatible" and settings.structure == "auto"
        return settings.folds if chosen else 0

    def features(self, settings: CausalFISettings, context: CausalFIContext) -> int:
        if settings.inference == "variational":
            return paper.features(settings, context)
        size = 1 + context.covariates + len(layout_of(context).mean)
        # The sums of people who are redrawn also hold the treatment's latent and the outcome.
        redrawn = size + 2 if len(layout_of(context).numbers) else 0
        grid = dispersion.FEATURES if context.family == "count" else 0
        weighted = importance.features(_sizes(context)) if _may_be_weighted(settings, context) else 0
        return max(
            redrawn, grid, weighted, *(len(STRUCTURES[name].groups(size)) for name in _names(settings))
        )

    def plans(self, settings: CausalFISettings) -> tuple[CausalFISettings, ...]:
        if settings.inference == "variational":
            return (settings,)
        fewer = settings.changed(importance=False)
        if settings.structure != "auto":
            return tuple(dict.fromkeys((settings, fewer)))
        single = (fewer.changed(structure=name) for name in ("softplus", "linear"))
        return tuple(dict.fromkeys((settings, fewer, fewer.changed(folds=2), *single)))

    def budget(self, settings: CausalFISettings, context: CausalFIContext) -> dict[str, int]:
        if settings.inference == "variational":
            return paper.budget(settings)
        length, found = _length(settings), dict[str, int]()
        for name in dict.fromkeys(("linear", *_names(settings))):
            trials = TRIED * max(self.folds(settings), 1) * len(STRUCTURES[name].starts)
            asked = STARTED * STARTING + trials + length.chains * length.most
            found |= {f"augmentation/{name}": asked, f"effect/{name}": length.chains * length.most}
        if _may_be_weighted(settings, context):
            found["effect/linear"] += importance.CHAINS * importance.STATES
            found[LIKELIHOOD] = importance.most_points(_sizes(context))
        return found

    def most_rounds(self, settings: CausalFISettings) -> int:
        if settings.inference == "variational":
            return paper.most_rounds(settings)
        return STARTED + TRIED + _length(settings).most + importance.ROUNDS + 1

    def expected(self, settings: CausalFISettings, context: CausalFIContext) -> Course:
        if settings.inference == "variational":
            return paper.expected(settings, context)
        layout, sizes = layout_of(context), _sizes(context)
        asked = Asked(sizes, layout, outcome_family(context), shifted=context.shift is not None)
        weighted = _may_be_weighted(settings, context) and context.shift is None
        names, folds = _names(settings), self.folds(settings)
        return expected(asked, names, _length(settings), folds=folds, sizes=sizes, weighted=weighted)

    def conditional_effects(
        self, settings: CausalFISettings, context: CausalFIContext, draws: Draws, rows: Rows, people: Rows
    ) -> np.ndarray:
        if settings.inference == "variational":
            return paper.conditional_effects(settings, context, draws, rows, people)
        model, known = _at(context, draws, int(people.site))
        return conditional(model, known, people)

    def individual_effects(
        self,
        settings: CausalFISettings,
        context: CausalFIContext,
        draws: Draws,
        rows: Rows,
        people: Rows | None,
        seed: int,
    ) -> np.ndarray:
        if settings.inference == "variational":
            return paper.individual_effects(settings, context, draws, rows, people)
        asked = rows if people is None else people
        model, known = _at(context, draws, int(asked.site))
        return individual(model, known, asked, settings.noise_correlation)


def _names(settings: CausalFISettings) -> tuple[str, ...]:
    return tuple(STRUCTURES) if settings.structure == "auto" else (settings.structure,)


def _length(settings: CausalFISettings) -> Length:
    return Length(settings.draws, settings.sweeps, settings.most_sweeps)


def _sizes(context: CausalFIContext) -> Sizes:
    return Sizes(context.covariates, len(layout_of(context).mean), context.sites)


def _may_be_weighted(settings: CausalFISettings, context: CausalFIContext) -> bool:
    """Whether importance sampling may be tried, as far as all parties know; see `importance`."""
    layout = layout_of(context)
    numbers = len(layout.mean) > 0 and not layout.discrete and isinstance(outcome_family(context), Gaussian)
    few = Coordinates(_sizes(context)).size <= MOST_DIMENSIONS
    return settings.importance and numbers and few and "linear" in _names(settings)


def _model(structure: str, context: CausalFIContext) -> ImputationModel:
    return ImputationModel(STRUCTURES[structure], layout_of(context), outcome_family(context))


def _at(context: CausalFIContext, draws: Draws, site: int) -> tuple[ImputationModel, Arrays]:
    """The model, and the draws available to one site."""
    return _model(draws.model, context), draws.at(site)


METHOD = CausalFIMethod()
