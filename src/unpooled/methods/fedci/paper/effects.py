"""The variational fit as a procedure, and effects under draws of (Ψ, Σ, g) by Lemma 2."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from unpooled.disclosure.by_site import Trace
from unpooled.methods.expected import Course, Expected, keys, numbers
from unpooled.methods.fedci import effects as by_structure
from unpooled.methods.fedci.effects import GaussianProcessAverage
from unpooled.methods.fedci.paper.bound import BOUNDS, Sample, make_bound, outcomes, sample, start
from unpooled.methods.fedci.settings import FedCIContext, FedCISettings
from unpooled.methods.fedci.stages import Evidence, KernelEvidence
from unpooled.methods.method import Fit
from unpooled.models.effects import OutcomeAverages, average_outcomes
from unpooled.optimise.objective import Minima
from unpooled.optimise.procedure import Procedure, ask
from unpooled.optimise.stochastic import stochastic, usual_rounds
from unpooled.protocol.messages import Statistics
from unpooled.protocol.records import Arrays, Draws, Parameters
from unpooled.protocol.rows import Rows
from unpooled.protocol.stage import Bounds, Stage

NAME = "variational"
"""Name of the bound's stage, and of the single structure in draws and diagnostics."""


class VariationalAverage(OutcomeAverages):
    """The site's mean outcomes under each draw from q; μ and the kernel are sent once for all draws."""

    evidence: KernelEvidence

    def bounds(self) -> Bounds:
        return BOUNDS

    def statistics(self, parameters: Parameters, rows: Rows) -> Statistics:
        average = GaussianProcessAverage(self.evidence)

        def one(draw: Arrays) -> Arrays:
            inner = _as_structure(self.evidence, parameters.free, draw)
            free, shift = inner.pop("free"), inner.pop("shift")
            asked = Parameters(free, inner, {"site_shift": shift[:, :, rows.site]})
            return jax.tree.map(lambda leaf: leaf[0], average.statistics(asked, rows).per_site)

        return Statistics(per_site=jax.lax.map(one, parameters.fixed))


def _as_structure(evidence: KernelEvidence, free: Arrays, draw: Arrays) -> Arrays:
    """One draw in the form used for structures: θ, β, g, and a random key."""
    drawn = outcomes(evidence, free, Sample(draw["factor"], draw["noise"], draw["shift"]))
    return {"free": drawn.free, "beta": drawn.beta, "shift": drawn.shift, "key": draw["key"]}


def stages(settings: FedCISettings, context: FedCIContext) -> dict[str, Stage]:
    """The stages of the bound and of the average effects."""
    bound = make_bound(settings, context)
    return {NAME: bound, f"effect/{NAME}": VariationalAverage(bound.evidence)}


def budget(settings: FedCISettings) -> dict[str, int]:
    """The number of θ for which each stage is asked at most."""
    return {NAME: settings.rounds + 1, f"effect/{NAME}": 1}


def expected(settings: FedCISettings, context: FedCIContext) -> Course:
    """The course of `fit`; all draws are sent as one θ."""
    sites, draws, rounds = len(context.site_distances), settings.draws, usual_rounds(settings.rounds)
    free = start(settings, context, seed=0)
    point = {"length": free["length"], "mean": free["mean"]}
    rest = {
        "factor": numbers(draws, 2, 2),
        "noise": numbers(draws, 2),
        "shift": numbers(draws, 2, sites),
        "key": keys(draws),
    }
    bound = Expected(NAME, rounds, Parameters(free, {"key": keys()}), rounds, gradient=True)
    return Course(rounds + 1, (bound, Expected(f"effect/{NAME}", 1, Parameters(point, rest))))


def fit(settings: FedCISettings, context: FedCIContext, seed: int) -> Procedure[Fit]:
    """Minimise the bound by Algorithm 1, then draw from q and ask for the sites' average effects."""
    bound = make_bound(settings, context)
    found = yield from stochastic(
        NAME, bound, start(settings, context, seed), seed,
        rounds=settings.rounds, rate=settings.learning_rate, rule=settings.optimiser,
    )  # fmt: skip
    key = jax.random.fold_in(jax.random.key(seed), settings.rounds)
    draws = _draw(bound.evidence, jax.tree.map(lambda leaf: leaf[0], found.free), key, settings.draws)
    point, rest = draws["free"], {name: draws[name] for name in ("factor", "noise", "shift", "key")}
    once = jax.tree.map(lambda leaf: np.asarray(leaf)[None], Parameters(point, rest))
    reply = yield from ask(f"effect/{NAME}", once)
    return Fit(Draws(draws), average_outcomes(reply.per_site), _diagnostics(found))


def _draw(evidence: KernelEvidence, free: Arrays, key: Array, count: int) -> Arrays:
    drawn = eqx.filter_jit(sample)(evidence, free, key, count)
    keys = jax.random.key_data(jax.random.split(jax.random.fold_in(key, 1), count))
    point = {"length": free["length"], "mean": free["mean"]}
    return {"free": point, **jax.tree.map(np.asarray, drawn._asdict()), "key": np.asarray(keys)}


def _diagnostics(found: Minima) -> Arrays:
    history = Trace(found.history)
    bound = {"objective": float(found.values[0]), "evaluations": found.evaluations, "history": history}
    return {"weights": {NAME: 1.0}, "structures": {NAME: bound}}


def conditional_effects(
    settings: FedCISettings, context: FedCIContext, draws: Draws, rows: Rows, people: Rows
) -> np.ndarray:
    """CATE draws [K, people] from the conditional of f in both arms given the site's own rows."""
    evidences, mixed = _mixed(settings, context, draws.shared)
    return by_structure.conditional_effects(evidences, mixed, rows, people, settings.draws)


def individual_effects(
    settings: FedCISettings, context: FedCIContext, draws: Draws, rows: Rows, people: Rows | None
) -> np.ndarray:
    """ITE draws (2w − 1)(y_obs − y_mis) [K, people], with Lemma 2's conditional of y_mis."""
    evidences, mixed = _mixed(settings, context, draws.shared)
    rho = settings.noise_correlation
    return by_structure.individual_effects(evidences, mixed, rows, people, settings.draws, rho)


def _mixed(
    settings: FedCISettings, context: FedCIContext, draws: Arrays
) -> tuple[dict[str, Evidence], Arrays]:
    """The draws as those of a single structure with weight one."""
    evidence = make_bound(settings, context).evidence
    free = jax.tree.map(jnp.asarray, draws["free"])
    each = {name: jnp.asarray(draws[name]) for name in ("factor", "noise", "shift", "key")}
    part = _compiled_as_structure(evidence, free, each)
    return {NAME: evidence}, {"weights": {NAME: 1.0}, "structures": {NAME: part}}


@eqx.filter_jit
def _compiled_as_structure(evidence: KernelEvidence, free: Arrays, draws: Arrays) -> Arrays:
    return jax.lax.map(lambda draw: _as_structure(evidence, free, draw), draws)
