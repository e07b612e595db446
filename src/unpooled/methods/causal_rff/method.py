"""CausalRFF's implementation of the `Method` interface."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from unpooled.errors import StudyError
from unpooled.maths.fourier import frequencies
from unpooled.maths.streams import key_data, stream
from unpooled.methods.causal_rff.classes.candidate import (
    CLASSES,
    FOLD_ROUNDS,
    PEOPLE_PER_CLASS,
    ClassCandidate,
)
from unpooled.methods.causal_rff.classes.gibbs import kept
from unpooled.methods.causal_rff.classes.log_likelihoods import Classes, ColumnKinds
from unpooled.methods.causal_rff.classes.mixture import make_mixture
from unpooled.methods.causal_rff.effects import (
    ClassModel,
    HeldOutDensity,
    HeldOutDistances,
    Model,
    RegressionModel,
    each_draw,
    each_individual,
    each_outcome,
)
from unpooled.methods.causal_rff.expected import expected, of_classes, of_gaussian, of_regression
from unpooled.methods.causal_rff.fit import Candidate, fit
from unpooled.methods.causal_rff.observed.candidate import (
    FOLD_STEPS,
    STEPS,
    RegressionCandidate,
    make_terms,
    width,
)
from unpooled.methods.causal_rff.observed.regression import Regression, make_design
from unpooled.methods.causal_rff.paper import candidate as gaussian
from unpooled.methods.causal_rff.paper.functions import StructuralFunctions
from unpooled.methods.causal_rff.settings import CausalRFFContext, CausalRFFSettings, outcome_family
from unpooled.methods.expected import Course
from unpooled.methods.method import Fit
from unpooled.models import dispersion
from unpooled.models.effects import AverageOfOutcomes
from unpooled.optimise.procedure import Procedure
from unpooled.protocol.records import Draws, Scaling
from unpooled.protocol.rows import Rows
from unpooled.protocol.stage import Stage
from unpooled.study.family import Family


class CausalRFFMethod:
    """See `unpooled.methods.method.Method`."""

    Settings = CausalRFFSettings
    Context = CausalRFFContext
    takes_incomplete = False
    takes_weights = True
    takes_clusters = False

    def context(self, settings: CausalRFFSettings, scaling: Scaling, seed: int) -> CausalRFFContext:
        _require_people(settings, scaling.people)
        _require_family(settings, scaling.family)
        rates = np.asarray(scaling.binary_rate)
        continuous = np.flatnonzero(np.isnan(rates))
        columns = continuous if settings.fourier_columns == "continuous" else np.arange(len(rates))
        count = settings.frequencies if len(columns) else 0
        drawn = np.zeros((0, len(columns)))
        if count:
            drawn = frequencies(
                settings.kernel,
                len(columns),
                count,
                stream(seed, "frequencies"),
                orthogonal=settings.orthogonal,
            )
        return CausalRFFContext(
            covariates=len(rates),
            rates=rates,
            frequencies=drawn,
            fourier_columns=columns,
            sites=scaling.sites,
            people=scaling.people,
            family=scaling.family,
            outcome_mean=scaling.outcome_mean,
            outcome_sd=scaling.outcome_sd,
            **gaussian.drawn_frequencies(settings, len(rates), seed, used="gaussian" in _names(settings)),
        )

    def outcome_model(self, settings: CausalRFFSettings, family: Family) -> str:
        return {
            "continuous": "by its mean, with Gaussian noise",
            "binary": "with a logit link",
            "count": "with a log link and negative binomial noise, whose dispersion is learned in each arm",
        }[family]

    def stages(self, settings: CausalRFFSettings, context: CausalRFFContext) -> dict[str, Stage]:
        models, stages = _models(settings, context), dict[str, Stage]()
        if "observed" in models:
            design, differ = make_design(context), settings.site_terms != "none"
            stages["regression"] = Regression(
                design, outcome_family(context), width(settings, design), differ, context.link
            )
        if "categorical" in models:
            columns = _columns(context)
            stages |= {
                name: Classes(columns, outcome_family(context), drawn, context.link)
                for name, drawn in {"classes": False, "classes/drawn": True}.items()
            }
        if "gaussian" in models:
            stages |= gaussian.stages(settings, _functions(settings, context))
        stages |= {f"effect/{name}": AverageOfOutcomes(model) for name, model in models.items()}
        if len(models) > 1:
            stages["held_out"] = HeldOutDensity(tuple(models.values()))
            if context.family == "continuous":
                stages |= {f"held_out/{name}": HeldOutDistances(model) for name, model in models.items()}
        return stages

    def fit(self, settings: CausalRFFSettings, context: CausalRFFContext, seed: int) -> Procedure[Fit]:
        candidates, folds = _candidates(settings, context, seed), self.folds(settings)
        return (yield from fit(candidates, folds, seed, continuous=context.family == "continuous"))

    def folds(self, settings: CausalRFFSettings) -> int:
        return settings.folds if len(_names(settings)) > 1 else 0

    def features(self, settings: CausalRFFSettings, context: CausalRFFContext) -> int:
        widths = {
            "observed": lambda: make_design(context).width,
            "categorical": lambda: _most_classes(settings),
            "gaussian": lambda: _functions(settings, context).width,
        }
        grid = dispersion.FEATURES if context.family == "count" else 0
        return max(grid, *(widths[name]() for name in _names(settings)))

    def plans(self, settings: CausalRFFSettings) -> tuple[CausalRFFSettings, ...]:
        fewer_folds = (settings.changed(folds=2),) if len(_names(settings)) > 1 else ()
        sizes = dict.fromkeys(
            min(settings.frequencies, size) for size in (settings.frequencies, 16, 8, 4, 2, 0)
        )
        if settings.confounding == "latent":
            return (settings,)
        both = (settings, *fewer_folds)
        fewer = (plan.changed(frequencies=size) for plan in both for size in sizes)
        alone = (settings.changed(confounding="observed", folds=5, frequencies=size) for size in sizes)
        return tuple(dict.fromkeys((*fewer, *alone)))

    def budget(self, settings: CausalRFFSettings, context: CausalRFFContext) -> dict[str, int]:
        folds, lengths = self.folds(settings), len(make_design(context).lengths)
        models = len(_classes(settings, context)) * settings.starts
        chains = -(-settings.draws // kept(settings.sweeps))
        found = {
            "regression": lengths * max(STEPS, 1 + folds) + folds * FOLD_STEPS,
            "classes": settings.rounds * models + FOLD_ROUNDS * folds,
            "classes/drawn": settings.sweeps * chains,
            "held_out": folds,
            **gaussian.budget(settings, folds),
        }
        found |= {f"held_out/{name}": 1 for name in _names(settings)}
        return found | {f"effect/{name}": settings.draws for name in _names(settings)}

    def most_rounds(self, settings: CausalRFFSettings) -> int:
        names = _names(settings)
        held = len(names) > 1
        learning = {
            "observed": STEPS + FOLD_STEPS,
            "categorical": settings.rounds,
            "gaussian": settings.gaussian_rounds,
        }
        sampling = {"observed": 0, "categorical": max(settings.sweeps, FOLD_ROUNDS * held), "gaussian": 1}
        longest = [max(rounds[name] for name in names) for rounds in (learning, sampling)]
        return sum(longest) + held + 1

    def expected(self, settings: CausalRFFSettings, context: CausalRFFContext) -> Course:
        folds, sites, columns = self.folds(settings), context.sites, _columns(context)
        made = {
            "observed": lambda: of_regression(
                settings, make_design(context), width(settings, make_design(context)), folds, sites,
                family=context.family,
            ),
            "categorical": lambda: of_classes(
                settings, _classes(settings, context), len(columns.binary), len(columns.continuous), folds,
                sites, chances=context.binary_outcome,
            ),
            "gaussian": lambda: of_gaussian(settings, _functions(settings, context), folds, sites),
        }  # fmt: skip
        candidates = {name: made[name]() for name in _names(settings)}
        return expected(candidates, folds, continuous=context.family == "continuous")

    def conditional_effects(
        self, settings: CausalRFFSettings, context: CausalRFFContext, draws: Draws, rows: Rows, people: Rows
    ) -> np.ndarray:
        model = _models(settings, context)[draws.model]
        return each_draw(model, draws.at(int(people.site)), people)

    def outcomes_elsewhere(
        self,
        settings: CausalRFFSettings,
        context: CausalRFFContext,
        draws: Draws,
        people: Rows,
        distances: np.ndarray,
        seed: int,
    ) -> np.ndarray:
        if not draws.elsewhere:
            raise StudyError(
                "CausalRFF's model must say how a site that took no part would differ",
                found=f"the model '{draws.model}' with site_terms = '{settings.site_terms}'",
                remedy="set confounding = 'observed', with site_terms = 'offsets', 'deviations' or 'none'",
            )
        model = _models(settings, context)[draws.model]
        return each_outcome(model, {**draws.shared, **draws.elsewhere}, people)

    def elsewhere_words(self, settings: CausalRFFSettings) -> str:
        if not settings.differs_by_site:
            return "Given the covariates, outcomes in the population are those of the study's sites."
        return (
            "The population is another site. Its site terms come from the distribution of those of the "
            "study's sites, whatever its covariates are."
        )

    def individual_effects(
        self,
        settings: CausalRFFSettings,
        context: CausalRFFContext,
        draws: Draws,
        rows: Rows,
        people: Rows | None,
        seed: int,
    ) -> np.ndarray:
        model = _models(settings, context)[draws.model]
        asked = rows if people is None else people
        known = draws.at(int(asked.site))
        count = len(jax.tree.leaves(known)[0])
        keys = key_data(stream(seed, "individual effects", int(rows.site)), count)
        return each_individual(model, known, asked, keys, settings.noise_correlation)


def _names(settings: CausalRFFSettings) -> tuple[str, ...]:
    """Names of the candidates; "auto" always includes latent classes, which take few rounds."""
    latent = ("categorical", "gaussian") if settings.latent == "both" else (settings.latent,)
    auto = ("observed", "categorical", *(("gaussian",) if settings.latent != "categorical" else ()))
    return {"observed": ("observed",), "latent": latent, "auto": auto}[settings.confounding]


def _models(settings: CausalRFFSettings, context: CausalRFFContext) -> dict[str, Model]:
    """The models that run at the sites, by candidate."""
    made = {
        "observed": lambda: RegressionModel(make_design(context), outcome_family(context), context.link),
        "categorical": lambda: ClassModel(_columns(context), outcome_family(context), context.link),
        "gaussian": lambda: gaussian.make_model(
            settings, _functions(settings, context), outcome_family(context)
        ),
    }
    return {name: made[name]() for name in _names(settings)}


def _candidates(settings: CausalRFFSettings, context: CausalRFFContext, seed: int) -> dict[str, Candidate]:
    """The procedures that run at the coordinator, by candidate."""
    made = {"observed": _observed, "categorical": _categorical, "gaussian": _gaussian}
    return {name: made[name](settings, context, seed) for name in _names(settings)}


def _observed(settings: CausalRFFSettings, context: CausalRFFContext, seed: int) -> Candidate:
    design, sites = make_design(context), context.sites
    terms = make_terms(settings, design, sites=sites, family=context.family)
    counts = context.family == "count"
    return RegressionCandidate(design, terms, width(settings, design), sites, settings.draws, seed, counts)


def _categorical(settings: CausalRFFSettings, context: CausalRFFContext, seed: int) -> Candidate:
    rates = np.asarray(context.rates)
    return ClassCandidate(
        make_mixture(
            _most_classes(settings), _columns(context), binary=context.binary_outcome, link=context.link
        ),
        np.clip(rates[np.isfinite(rates)], 0.02, 0.98),
        sites=context.sites,
        classes=_classes(settings, context),
        starts=settings.starts,
        rounds=settings.rounds,
        sweeps=settings.sweeps,
        draws=settings.draws,
        seed=seed,
    )


def _gaussian(settings: CausalRFFSettings, context: CausalRFFContext, seed: int) -> Candidate:
    functions = _functions(settings, context)
    return gaussian.make_candidate(settings, functions, sites=context.sites, seed=seed)


def _functions(settings: CausalRFFSettings, context: CausalRFFContext) -> StructuralFunctions:
    return gaussian.make_functions(settings, context, _columns(context), binary=context.binary_outcome)


def _classes(settings: CausalRFFSettings, context: CausalRFFContext) -> tuple[int, ...]:
    """Numbers of classes to try, limited so that a class has enough people on average."""
    if settings.classes:
        return (settings.classes,)
    return tuple(k for k in CLASSES if k == min(CLASSES) or k * PEOPLE_PER_CLASS <= context.people)


def _require_people(settings: CausalRFFSettings, people: int) -> None:
    if "categorical" in _names(settings) and (settings.classes or 0) * PEOPLE_PER_CLASS > people:
        raise StudyError(
            f"latent classes need {PEOPLE_PER_CLASS} people each",
            found=f"classes = {settings.classes} for {people} people at all sites",
            remedy=f"set at most classes = {people // PEOPLE_PER_CLASS}, or remove it to choose by the bound",
        )


def _require_family(settings: CausalRFFSettings, family: str) -> None:
    if family == "count" and "gaussian" in _names(settings):
        raise StudyError(
            "the Gaussian latent confounder is a model of continuous and 0/1 outcomes",
            found=f"latent = '{settings.latent}' for an outcome that is a count",
            remedy="set latent = 'categorical', or family = 'continuous' to model means with Gaussian noise",
        )


def _most_classes(settings: CausalRFFSettings) -> int:
    return settings.classes or max(CLASSES)


def _columns(context: CausalRFFContext) -> ColumnKinds:
    binary = np.isfinite(np.asarray(context.rates))
    return ColumnKinds(jnp.asarray(np.flatnonzero(binary)), jnp.asarray(np.flatnonzero(~binary)))


METHOD = CausalRFFMethod()
