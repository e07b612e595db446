"""Try to recover a site's rows from the honest transcript of a study.

    python benchmarks/attack_reconstruction.py --people 120 300 --limits default
    python benchmarks/attack_reconstruction.py --method aipw --stages outcome treatment --together

The attacker is the coordinator. It knows the protocol, the number of people in each arm and fold, every θ it
asked about, and what the site returned. It looks for rows that would have returned the same, by
Levenberg–Marquardt from starts with the right means and covariances. A sum over people has one term for each
of them, so that the derivatives with respect to a person's values depend on these alone; this makes a step
cheap. Statistics are first fitted as they are, and then with the small ones weighted up, which decides the
last digits.

Recovered rows are matched to the true ones. The same number of rows shows what guessing achieves: with every
column drawn at random from its marginal, and from a normal distribution with the means and covariances of the
site, which every method sends.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from scipy.linalg import cho_factor, cho_solve
from scipy.optimize import linear_sum_assignment, minimize

import unpooled as up
from unpooled.coordinator.run import run_study
from unpooled.disclosure.limits import NONE, Limits
from unpooled.engines.in_process import InProcess, open_sites
from unpooled.methods.method import with_settings
from unpooled.protocol.messages import Ask, Question, Replies, Reply, Statistics, Together
from unpooled.protocol.records import Parameters
from unpooled.protocol.rows import Rows
from unpooled.protocol.stage import Bounds, Stage
from unpooled.site.site import Adoption

VICTIM, COLUMNS = "victim", ("a", "b", "c")
LIMITS = {"off": NONE, "cell": Limits(rows=0, cell=5, share=float("inf")), "default": Limits()}
NEAR, NEARER = 0.1, 0.01
PHASES = ((0.0, 0.5), (0.4, 0.75), (0.8, 1.0))
"""Exponents by which small statistics are weighted up, and the share of the time at which each ends."""

Heard = list[tuple[Ask, Any]]


class Listening(InProcess):
    """An engine that keeps what one site is asked, and its replies."""

    def __init__(self, sites: Any) -> None:
        super().__init__(sites)
        self.heard: Heard = []

    def exchange(self, question: Question) -> tuple[dict[str, Reply], Any]:
        replies, traffic = super().exchange(question)
        own = question.to_site(self.sites.index(VICTIM))
        asked = own.questions if isinstance(own, Together) else (own,)
        reply = replies[VICTIM]
        returned = reply.replies if isinstance(reply, Replies) else (reply,)
        self.heard += [(ask, got) for ask, got in zip(asked, returned, strict=True) if isinstance(ask, Ask)]
        return replies, traffic


def tables(people: int, rng: np.random.Generator) -> dict[str, pd.DataFrame]:
    """The victim and a second site of the same size."""
    found = {}
    for name in (VICTIM, "other"):
        x = rng.standard_normal((people, len(COLUMNS)))
        w = np.arange(people) % 2
        y = np.tanh(1.5 * x[:, 0]) + 0.5 * x[:, 1] + w * (1.0 + x[:, 2]) + 0.3 * rng.standard_normal(people)
        found[name] = pd.DataFrame({**dict(zip(COLUMNS, x.T, strict=True)), "w": w, "y": y})
    return found


def transcript(people: int, limits: Limits, method: str, settings: Any, seed: int) -> tuple[Adoption, Heard]:
    """An ordinary fit, and what the victim was asked and returned."""
    study = up.Study(treatment="w", outcome="y", covariates=COLUMNS)
    sites = open_sites(study, tables(people, np.random.default_rng(seed)), limits)
    engine = Listening(sites)
    result = run_study(with_settings(study, method, settings, seed=seed), engine)
    if result.notes:
        print("under the limits:", "; ".join(result.notes))
    adopted = sites[VICTIM].adopted
    assert adopted is not None
    return adopted, engine.heard


class Known(NamedTuple):
    """Of one stage: the θ that were asked about, and what was returned for each, flat."""

    stage: Any
    parameters: Parameters
    returned: np.ndarray


class OwnNumbers(Stage):
    """What is seen of a site alone if sums are masked."""

    stage: Stage

    def statistics(self, parameters: Parameters, rows: Rows) -> Statistics:
        return Statistics(per_site=self.stage.statistics(parameters, rows).per_site)

    def bounds(self) -> Bounds:
        return self.stage.bounds()


def known(adoption: Adoption, heard: Heard, stage: str, most: int, *, masked: bool) -> Known | None:
    """Up to `most` of the questions to a stage, spread over the study."""
    found = []
    if masked:
        heard = [(ask, replace(reply, summed={})) for ask, reply in heard]
    for ask, reply in heard:
        if ask.stage != stage or not jax.tree.leaves(reply):
            continue
        for index in range(len(jax.tree.leaves(reply)[0])):
            pair = jax.tree.map(lambda leaf, i=index: np.asarray(leaf)[i], (ask.parameters, reply))
            found.append((pair[0], np.asarray(flat(pair[1]))))
    if not found:
        return None
    shapes = [str(jax.tree.map(np.shape, parameters)) for parameters, _ in found]
    common = max(shapes, key=shapes.count)  # models of several sizes may have been asked about
    found = [one for one, shape in zip(found, shapes, strict=True) if shape == common]
    chosen = np.unique(np.linspace(0, len(found) - 1, min(most, len(found))).astype(int))
    parameters = jax.tree.map(lambda *leaves: jnp.asarray(np.stack(leaves)), *[found[i][0] for i in chosen])
    print(f"{stage}: {len(chosen)} of {len(found)} θ, {len(found[0][1])} numbers each")
    own = OwnNumbers(adoption.stages[stage]) if masked else adoption.stages[stage]
    return Known(own, parameters, np.stack([found[i][1] for i in chosen]))


def at_random(part: Known, rows: Rows, count: int, rng: np.random.Generator) -> Known:
    """As if a dishonest coordinator had asked about hyperparameters drawn uniformly within the bounds."""
    bounds = part.stage.bounds()

    def drawn(path: Any, leaf: Any) -> Any:
        lowest, highest = bounds[path[-1].key]
        return jnp.asarray(rng.uniform(lowest, highest, (count, *leaf.shape[1:])))

    free = jax.tree_util.tree_map_with_path(drawn, part.parameters.free)
    first = replace(part.parameters, free={})
    repeated = jax.tree.map(lambda leaf: jnp.repeat(leaf[:1], count, axis=0), first)
    parameters = replace(repeated, free=free)
    reply = jax.jit(lambda asked: jax.lax.map(lambda one: flat(part.stage.statistics(one, rows)), asked))
    return Known(part.stage, parameters, np.asarray(reply(parameters)).astype(np.float32).astype(float))


def flat(tree: Any) -> Any:
    return jnp.concatenate([jnp.ravel(leaf) for leaf in jax.tree.leaves(tree)])


class Equations:
    """What the rows of some people must explain, as a least-squares problem."""

    def __init__(self, adoption: Adoption, parts: list[Known], arm: int | None) -> None:
        rows, count = adoption.rows, adoption.count
        treatment = np.asarray(rows.treatment)[:count]
        self.people = np.arange(count) if arm is None else np.flatnonzero(treatment == arm)
        fold = np.asarray(rows.fold)[:count]
        self._folds = int(fold.max()) + 1
        # Rows are looked for up to their order, so that it does not matter who is in which fold.
        self._groups = jnp.asarray(treatment[self.people]), jnp.asarray(fold[self.people])
        one = jax.tree.map(lambda leaf: leaf[:1] if leaf.ndim else leaf, rows)
        self._alone: Rows = replace(one, present=jnp.ones(1), least=0.0)
        self._rows, self._parts = rows, parts
        self._select(parts, arm, len(COLUMNS) + 1)
        self._limited = float(rows.least) > 0.0

        def terms(person: Any) -> Any:
            return self._of_person(*person)[self._kept]

        def slope(person: Any) -> Any:
            return jax.jacrev(lambda values: self._of_person(values, *person[1:])[self._kept])(person[0])

        self._total = jax.jit(lambda v: jax.lax.map(terms, (v, *self._groups), batch_size=32).sum(axis=0))
        self._slopes = jax.jit(lambda v: jax.lax.map(slope, (v, *self._groups), batch_size=16))
        self._simulate = jax.jit(self._simulated)

    def _select(self, parts: list[Known], arm: int | None, columns: int) -> None:
        """Keep the statistics that depend on these people and, if they are an arm, on nobody else."""
        sample = jnp.asarray(np.random.default_rng(0).standard_normal((60, columns)))
        fold = jnp.asarray(np.arange(60) % self._folds, self._rows.fold.dtype)
        each = jax.jit(jax.vmap(self._of_person, (0, None, 0)))
        arms = [np.asarray(each(sample, jnp.asarray(float(w)), fold)) for w in (0, 1)]
        own = np.concatenate(arms) if arm is None else arms[arm]
        kept = (own.std(axis=0) > 1e-9) & self._without_chance(sample, fold)
        if arm is not None:
            kept &= np.all(arms[1 - arm] == 0.0, axis=0)
        self._kept = jnp.asarray(np.flatnonzero(kept))
        self._target = jnp.asarray(np.concatenate([part.returned.ravel() for part in parts])[kept])
        self._size = jnp.asarray(np.maximum(own.std(axis=0)[kept], 1e-7))
        self.scale = jnp.ones(len(self._target))

    def _without_chance(self, sample: Any, fold: Any) -> np.ndarray:
        """Which statistics do not depend on the site's own random numbers, which nobody else knows."""
        alone, found = self._alone, []
        for salt in (1, 2):
            self._alone = eqx.tree_at(lambda r: r.salt, alone, jnp.full_like(alone.salt, salt))
            each = jax.jit(jax.vmap(self._of_person, (0, None, 0)))
            found += [np.concatenate([np.asarray(each(sample, jnp.asarray(w), fold)) for w in (0.0, 1.0)])]
        self._alone = alone
        return np.all(found[0] == found[1], axis=0)

    def weigh(self, exponent: float) -> None:
        """Divide every statistic by this power of its size."""
        self.scale = self._size**-exponent

    @property
    def count(self) -> int:
        return len(self._target)

    def _of_person(self, values: Any, treatment: Any, fold: Any) -> Any:
        """The contributions of one person to all statistics."""
        places = (values[None, :-1], values[-1:], treatment[None], fold[None])
        rows = eqx.tree_at(lambda r: (r.covariates, r.outcome, r.treatment, r.fold), self._alone, places)
        return self._statistics(rows)

    def _statistics(self, rows: Rows) -> Any:
        found = [
            jax.lax.map(lambda one, stage=part.stage: flat(stage.statistics(one, rows)), part.parameters)
            for part in self._parts
        ]
        return jnp.concatenate([one.ravel() for one in found])

    def _simulated(self, values: Any) -> Any:
        """What a site with these rows would return, limits included."""
        covariates = jnp.zeros_like(self._rows.covariates).at[self.people].set(values[:, :-1])
        outcome = jnp.zeros_like(self._rows.outcome).at[self.people].set(values[:, -1])
        return self._statistics(
            eqx.tree_at(lambda r: (r.covariates, r.outcome), self._rows, (covariates, outcome))
        )[self._kept]

    def difference(self, values: Any) -> Any:
        return self._simulated(values) - self._target

    def misfit(self, values: Any) -> Any:
        found = self._simulate(values) if self._limited else self._total(values)
        return self.scale * (found - self._target)

    def value(self, values: Any) -> float:
        return float(jnp.sum(self.misfit(values) ** 2))

    def normal_equations(self, values: Any) -> tuple[np.ndarray, np.ndarray, float]:
        """JᵀJ, Jᵀr and rᵀr; what limits scale down is scaled down in J too."""
        slopes = self._slopes(values)
        if self._limited:
            plain, limited = self._total(values), self._simulate(values)
            ratio = jnp.where(jnp.abs(plain) > 1e-9, limited / plain, 1.0)
            slopes = slopes * jnp.clip(jnp.nan_to_num(ratio), 0.0, 1.2)[None, :, None]
        slopes = jnp.moveaxis(slopes * self.scale[None, :, None], 1, 2).reshape(-1, self.count)
        misfit = self.misfit(values)
        return np.asarray(slopes @ slopes.T), np.asarray(slopes @ misfit), float(misfit @ misfit)


def descend(equations: Equations, start: np.ndarray, until: float) -> tuple[np.ndarray, int]:
    """Levenberg–Marquardt until the time is up or little improves; the rows and the number of steps."""
    values, damping, count = jnp.asarray(start), 1e-2, 0
    while time.monotonic() < until:
        curvature, slope, best = equations.normal_equations(values)
        count += 1
        for _ in range(10):
            lifted = curvature + damping * np.diag(np.diag(curvature) + 1e-9)
            step = cho_solve(cho_factor(lifted), -slope).reshape(values.shape)
            moved = values + np.clip(step, -0.7, 0.7)
            reached = equations.value(moved)
            if reached < best:
                break
            damping *= 4.0
        else:
            break
        values, damping = moved, max(damping / 6.0, 1e-12)
        if reached > best * (1.0 - 1e-4) or reached < 1e-16:
            break
    return np.asarray(values), count


def follow_gradient(equations: Equations, start: np.ndarray, until: float) -> tuple[np.ndarray, int]:
    """L-BFGS, for statistics that are not sums of one term for each person."""
    scale = equations.scale
    both = jax.jit(jax.value_and_grad(lambda v: jnp.sum((scale * equations.difference(v)) ** 2)))
    found, count = start, 0

    def objective(flat_values: np.ndarray) -> tuple[float, np.ndarray]:
        nonlocal found, count
        found, count = flat_values.reshape(start.shape), count + 1
        if time.monotonic() > until:
            raise TimeoutError
        value, slope = both(jnp.asarray(found))
        return float(value), np.asarray(slope).ravel()

    with suppress(TimeoutError):
        minimize(
            objective, start.ravel(), jac=True, method="L-BFGS-B", options={"maxiter": 100_000, "maxcor": 50}
        )
    return found, count


def solve(equations: Equations, draw: Callable[[], np.ndarray], options: Any) -> tuple[np.ndarray, int]:
    """The rows that explain the statistics best, from as many starts as there is time for."""
    improve, seconds = (follow_gradient if options.gradient else descend), options.seconds
    until, best, total = time.monotonic() + seconds, (draw(), np.inf), 0
    while time.monotonic() < until:
        began, values = time.monotonic(), draw()
        for exponent, share in PHASES:
            equations.weigh(exponent)
            values, count = improve(equations, values, began + share * (until - began))
            total += count
        equations.weigh(0.0)
        reached = equations.value(values)
        best = (values, reached) if reached < best[1] else best
    return best[0], total


def matches(true: np.ndarray, found: np.ndarray, arm: np.ndarray) -> np.ndarray:
    """The numbers of true rows with a recovered row within 0.01 and 0.1 sd in all columns."""
    hits = np.zeros(2, dtype=int)
    for which in (0, 1):
        gaps = np.abs(true[arm == which][:, None] - found[arm == which][None]).max(axis=2)
        pairs = linear_sum_assignment(np.minimum(gaps, 0.3))
        hits += [int((gaps[pairs] < limit).sum()) for limit in (NEARER, NEAR)]
    return hits


def attack(adoption: Adoption, parts: list[Known], options: argparse.Namespace) -> None:
    rows, count = adoption.rows, adoption.count
    true = np.column_stack([rows.covariates, rows.outcome])[:count]
    arm = np.asarray(rows.treatment)[:count]
    rng, found, steps = np.random.default_rng(options.seed + 1), true.copy(), 0
    normal = true.copy()
    for which in (None,) if options.together else (0, 1):
        equations = Equations(adoption, parts, which)
        own = true[equations.people]
        root, mean = np.linalg.cholesky(np.cov(own.T)), own.mean(axis=0)

        def draw(size: Any = own.shape, root: Any = root, mean: Any = mean) -> np.ndarray:
            return mean + rng.standard_normal(size) @ root.T

        print(f"{equations.count} equations for {own.size} unknown values", flush=True)
        normal[equations.people] = draw()
        found[equations.people], taken = solve(equations, draw, options)
        steps += taken
    guess = np.column_stack([rng.choice(column, count) for column in true.T])
    nearer, near = matches(true, found, arm)
    guesses = [matches(true, one, arm)[1] for one in (guess, normal)]
    cells = (count, options.limits, steps, nearer, near, *guesses)
    print(" | ".join(str(cell) for cell in cells), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--people", type=int, nargs="+", default=[120, 300, 1000])
    parser.add_argument("--limits", choices=LIMITS, default="default")
    parser.add_argument("--method", default="fedci")
    parser.add_argument("--settings", type=json.loads, default={"structure": "projection", "draws": 40})
    parser.add_argument("--stages", nargs="+", default=["ridge", "projection"])
    parser.add_argument("--questions", type=int, default=12, help="most θ of a stage that are used")
    parser.add_argument("--seconds", type=float, default=90.0, help="time for each arm")
    parser.add_argument("--together", action="store_true", help="solve for both arms at once")
    parser.add_argument("--gradient", action="store_true", help="for statistics that are not plain sums")
    parser.add_argument(
        "--random", action="store_true", help="θ drawn within the bounds, not the honest ones"
    )
    parser.add_argument("--masked", action="store_true", help="only what masks leave by site")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    print("people | limits | steps | within 0.01 sd | within 0.1 sd | guessing: marginals | normal")
    for people in options.people:
        limits = LIMITS[options.limits]
        adoption, heard = transcript(people, limits, options.method, options.settings, options.seed)
        found = [
            known(adoption, heard, stage, options.questions, masked=options.masked)
            for stage in options.stages
        ]
        parts = [part for part in found if part is not None]
        if options.random:
            rng = np.random.default_rng(options.seed + 2)
            parts = [
                at_random(p, adoption.rows, options.questions, rng) if p.parameters.free else p for p in parts
            ]
        attack(adoption, parts, options)


if __name__ == "__main__":
    main()
