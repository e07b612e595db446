"""FedCI's implementation of the `Method` interface."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from unpooled.errors import StudyError
from unpooled.maths.streams import stream
from unpooled.methods.expected import Course
from unpooled.methods.fedci.candidate import FedCIEffects
from unpooled.methods.fedci.effects import GaussianProcessAverage, conditional_effects, individual_effects
from unpooled.methods.fedci.elsewhere import outcomes_elsewhere
from unpooled.methods.fedci.expansion import EVALUATIONS, EXPANSIONS, FIRST, Dispersion, dispersion_of
from unpooled.methods.fedci.expected import expected
from unpooled.methods.fedci.fit import fit
from unpooled.methods.fedci.held_out import HeldOutDistances, HeldOutErrors
from unpooled.methods.fedci.laplace import OWN_EXPANSIONS
from unpooled.methods.fedci.model import GRID, Kernel, Projection
from unpooled.methods.fedci.paper import effects as paper
from unpooled.methods.fedci.refinement import REFINEMENT
from unpooled.methods.fedci.refinement import STRETCH as REFINED
from unpooled.methods.fedci.ridge import Ridge
from unpooled.methods.fedci.settings import FedCIContext, FedCISettings
from unpooled.methods.fedci.stages import Evidence, FeatureEvidence, KernelEvidence
from unpooled.methods.fedci.subsample import Subsampled, interval, is_large, share, subsampled
from unpooled.methods.method import Fit
from unpooled.models.link import link_of
from unpooled.optimise.minimise import STRETCH
from unpooled.optimise.procedure import Procedure
from unpooled.protocol.records import Draws, Scaling
from unpooled.protocol.rows import Rows
from unpooled.protocol.stage import Stage
from unpooled.study.family import Family

EXACT_ROWS = 300
"""If the largest site has at most this many rows, the remainder is exact; otherwise only its diagonal is
used."""
CANDIDATES = ("projection", "isotropic")
"""Structures that `structure = "auto"` stacks."""
COMPONENTS = 2
"""Number of index functions of the projection structure."""


class FedCIMethod:
    """See `unpooled.methods.method.Method`."""

    Settings = FedCISettings
    Context = FedCIContext
    takes_incomplete = False
    takes_weights = True
    takes_clusters = False

    def context(self, settings: FedCISettings, scaling: Scaling, seed: int) -> FedCIContext:
        every = interval(scaling.sites, scaling.people)
        return FedCIContext(
            correlation=scaling.correlation,
            site_distances=scaling.site_distances,
            inducing=pseudo_people(scaling, settings.basis, seed),
            family=scaling.family,
            outcome_mean=scaling.outcome_mean,
            outcome_sd=scaling.outcome_sd,
            exact=scaling.largest_site <= EXACT_ROWS,
            large=every > 1 or is_large(scaling.largest_site),
            interval=every,
            share=None if scaling.by_site is None else share(scaling.counts),
        )

    def outcome_model(self, settings: FedCISettings, family: Family) -> str:
        if settings.inference == "variational":
            return "by its mean, with Gaussian noise"
        return {
            "continuous": "by its mean, with Gaussian noise",
            "binary": "by its log odds, with a variational approximation",
            "count": "by the log of its mean, as negative binomial, with a variational approximation",
        }[family]

    def stages(self, settings: FedCISettings, context: FedCIContext) -> dict[str, Stage]:
        if settings.inference == "variational":
            return paper.stages(settings, context)
        evidences = _evidences(settings, context)
        stages: dict[str, Stage] = {"ridge": Ridge(), **evidences}
        stages |= {f"effect/{name}": GaussianProcessAverage(evidence) for name, evidence in evidences.items()}
        if context.large:
            stages |= {
                subsampled(name): Subsampled(evidence, context.interval)
                for name, evidence in evidences.items()
            }
        if context.family == "count":
            stages |= {dispersion_of(name): Dispersion(evidence) for name, evidence in evidences.items()}
        if len(evidences) > 1:
            several = tuple(evidences.values())
            stages |= {"held_out": HeldOutErrors(several)}
            if context.family == "continuous":
                stages |= {"held_out/distances": HeldOutDistances(several)}
        return stages

    def fit(self, settings: FedCISettings, context: FedCIContext, seed: int) -> Procedure[Fit]:
        if settings.inference == "variational":
            return (yield from paper.fit(settings, context, seed))
        assert context.share is not None
        evidences, folds = _evidences(settings, context), self.folds(settings)
        return (yield from fit(settings, evidences, folds, seed, context.share))

    def folds(self, settings: FedCISettings) -> int:
        weighed = settings.inference == "collapsed" and len(_names(settings)) > 1
        return settings.folds if weighed else 0

    def features(self, settings: FedCISettings, context: FedCIContext) -> int:
        width = 1 + len(context.correlation)
        if settings.inference == "variational":
            return width
        return width + _beyond(settings)

    def plans(self, settings: FedCISettings) -> tuple[FedCISettings, ...]:
        if settings.inference == "variational":
            return (settings,)
        fewer_folds = (settings.changed(folds=2),) if len(_names(settings)) > 1 else ()
        one = "ard" if settings.structure == "ard" else "isotropic"
        sizes = dict.fromkeys(min(settings.basis, size) for size in (settings.basis, 20, 10, 5, 0))
        alone = (settings.changed(structure=one, basis=size) for size in sizes)
        smaller = (plan for plan in alone if _beyond(plan) <= _beyond(settings))
        return tuple(dict.fromkeys((settings, *fewer_folds, *smaller)))

    def budget(self, settings: FedCISettings, context: FedCIContext) -> dict[str, int]:
        if settings.inference == "variational":
            return paper.budget(settings)
        problems = 1 + self.folds(settings)
        found = {"ridge": problems, "held_out": 1, "held_out/distances": 1}
        for name, evidence in _evidences(settings, context).items():
            start = evidence.structure.start(np.ones((2, len(context.correlation))), np.ones(2))
            size = 1 + sum(np.size(leaf) for leaf in start.values())
            evaluations, rounds = settings.evaluations or evidence.structure.evaluations, 2
            if evidence.link is not None:
                evaluations = min(evaluations, FIRST) + sum(EVALUATIONS)
                rounds += OWN_EXPANSIONS
                found[dispersion_of(name)] = problems * EXPANSIONS
            draws = -(-settings.draws // evidence.structure.draws_per_theta)
            # Evaluations, a Hessian every `STRETCH` of them and a two-sided one, refinement, draws.
            hessians = (evaluations // STRETCH + 2 + REFINEMENT // REFINED) * size
            asked = problems * (evaluations + hessians) + REFINEMENT + rounds * draws
            found |= {name: asked, subsampled(name): asked, f"effect/{name}": draws}
        return found

    def most_rounds(self, settings: FedCISettings) -> int:
        if settings.inference == "variational":
            return settings.rounds + 1
        allowed = [
            settings.evaluations or (Projection if name == "projection" else Kernel).evaluations
            for name in _names(settings)
        ]
        # Ridge; evaluations and, for large sites, refinement with its Hessians (two rounds each); held-out
        # errors; Hessian (two rounds); draws (two rounds); effects.
        refined = REFINEMENT + REFINEMENT // REFINED - 1
        # Outcomes that are not continuous: further evaluations and draws, and dispersions.
        expanded = 2 * sum(EVALUATIONS) + EXPANSIONS + OWN_EXPANSIONS
        return 1 + 2 * (max(allowed) + refined) + expanded + (len(allowed) > 1) + 2 + 3

    def expected(self, settings: FedCISettings, context: FedCIContext) -> Course:
        if settings.inference == "variational":
            return paper.expected(settings, context)
        evidences = _evidences(settings, context)
        covariates, folds = len(context.correlation), self.folds(settings)
        subsample = {"large": context.large, "interval": context.interval}
        return expected(settings, evidences, folds, covariates, **subsample)

    def conditional_effects(
        self, settings: FedCISettings, context: FedCIContext, draws: Draws, rows: Rows, people: Rows
    ) -> np.ndarray:
        if settings.inference == "variational":
            return paper.conditional_effects(settings, context, draws, rows, people)
        return conditional_effects(_evidences(settings, context), draws.shared, rows, people, settings.draws)

    def held_out_effects(self, settings: FedCISettings, context: FedCIContext) -> FedCIEffects:
        return FedCIEffects(tuple(_evidences(settings, context).values()))

    def outcomes_elsewhere(
        self,
        settings: FedCISettings,
        context: FedCIContext,
        draws: Draws,
        people: Rows,
        distances: np.ndarray,
        seed: int,
    ) -> np.ndarray:
        if settings.inference == "variational":
            raise StudyError(
                "effects elsewhere need draws of the hyperparameters",
                found="inference = 'variational'",
                remedy="use inference = 'collapsed', which is the default",
            )
        evidences = _evidences(settings, context)
        return outcomes_elsewhere(evidences, draws.shared, people, distances, settings.draws, seed)

    def elsewhere_words(self, settings: FedCISettings) -> str:
        if not settings.inter_dependency:
            return "Given the covariates, outcomes in the population are those of the study's sites."
        return (
            "The population is another site. Its outcomes are shifted as those of the study's sites are, and "
            "much like those of sites with similar covariates."
        )

    def individual_effects(
        self,
        settings: FedCISettings,
        context: FedCIContext,
        draws: Draws,
        rows: Rows,
        people: Rows | None,
        seed: int,
    ) -> np.ndarray:
        if settings.inference == "variational":
            return paper.individual_effects(settings, context, draws, rows, people)
        evidences = _evidences(settings, context)
        return individual_effects(
            evidences, draws.shared, rows, people, settings.draws, settings.noise_correlation
        )


def _evidences(settings: FedCISettings, context: FedCIContext) -> dict[str, Evidence]:
    return {name: _evidence(name, settings, context) for name in _names(settings)}


def _names(settings: FedCISettings) -> tuple[str, ...]:
    return CANDIDATES if settings.structure == "auto" else (settings.structure,)


def _evidence(name: str, settings: FedCISettings, context: FedCIContext) -> Evidence:
    site_distances, family = jnp.asarray(context.site_distances), settings.kernel
    shifts, coupled = settings.inter_dependency, settings.arms_coupled
    link = link_of(context.family, context.outcome_mean, context.outcome_sd)
    if name == "projection":
        return FeatureEvidence(
            Projection(
                site_distances=site_distances,
                family=family,
                shifts=shifts,
                coupled=coupled,
                noisy=link is None,
                correlation=jnp.asarray(context.correlation),
                components=COMPONENTS,
                saturation=0.0 if link is None else link.saturation,
            ),
            link,
        )
    structure = Kernel(
        site_distances=site_distances,
        family=family,
        shifts=shifts,
        coupled=coupled,
        noisy=link is None,
        inducing=jnp.asarray(context.inducing)[: 0 if name == "paper" else None],
        ard=name == "ard",
        tied=name == "paper",
    )
    return KernelEvidence(structure, link, diagonal=not context.exact)


def _beyond(settings: FedCISettings) -> int:
    """The largest number of features beyond the columns [1, x] in any structure."""
    known = {"projection": COMPONENTS * len(GRID), "paper": 0}
    return max(known.get(name, settings.basis) for name in _names(settings))


def pseudo_people(scaling: Scaling, count: int, seed: int) -> np.ndarray:
    """Inducing inputs: simulated rows with the covariates' correlations and 0/1 rates, not real people."""
    correlation = np.asarray(scaling.correlation)
    rng = stream(seed, "inducing inputs")
    values, vectors = np.linalg.eigh(correlation)
    normal = rng.standard_normal((count, len(values))) * np.sqrt(np.maximum(values, 0.0)) @ vectors.T
    rates = np.asarray(scaling.binary_rate)
    for column in np.flatnonzero(np.isfinite(rates)):
        rate = rates[column]
        ones = np.argsort(np.argsort(-normal[:, column])) < round(rate * count)
        normal[:, column] = (ones - rate) / scaling.sd[column]
    return normal


METHOD = FedCIMethod()
