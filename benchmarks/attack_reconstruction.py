"""Try to recover a site's rows from the honest transcript of a FedCI fit.

    python benchmarks/attack_reconstruction.py --people 20 60 --limits on

The attacker is the coordinator. It knows the protocol, the number of people in each arm, every θ it asked
about, and the Gram matrices and moments that the site returned, ridge regression included. It looks for rows
that would have returned the same, by Levenberg–Marquardt from random starts with exact derivatives. Recovered
rows are matched to the true ones; the same number of rows with every column drawn at random from its marginal
shows what guessing achieves.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from scipy.optimize import linear_sum_assignment

import unpooled as up
from unpooled.coordinator.run import run_study
from unpooled.disclosure.limits import NONE, Limits
from unpooled.engines.in_process import InProcess, open_sites
from unpooled.methods.method import with_settings
from unpooled.protocol.messages import Ask, Question, Replies, Reply, Together
from unpooled.protocol.records import Parameters
from unpooled.protocol.rows import make_rows

VICTIM, COLUMNS = "victim", ("a", "b", "c")
LIMITS = Limits(rows=0, cell=5, share=float("inf"))
NEAR, NEARER = 0.1, 0.01


class Listening(InProcess):
    """An engine that keeps what one site is asked, and its replies."""

    def __init__(self, sites: Any) -> None:
        super().__init__(sites)
        self.heard: list[tuple[Ask, Any]] = []

    def exchange(self, question: Question) -> tuple[dict[str, Reply], Any]:
        replies, traffic = super().exchange(question)
        asked = question.questions if isinstance(question, Together) else (question,)
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


def transcript(people: int, limits: Limits, seed: int) -> tuple[Any, list[tuple[Ask, Any]]]:
    """An ordinary fit of the structure "projection", and what the victim was asked and returned."""
    study = up.Study(treatment="w", outcome="y", covariates=COLUMNS)
    sites = open_sites(study, tables(people, np.random.default_rng(seed)), limits)
    engine = Listening(sites)
    run_study(with_settings(study, "fedci", {"structure": "projection", "draws": 40}, seed=seed), engine)
    return sites[VICTIM].adopted, engine.heard


def residuals(adoption: Any, heard: list[tuple[Ask, Any]], questions: int) -> Callable[[Any], Any]:
    """The differences between what rows would have returned and what was returned, for a vector of rows."""
    treatment = adoption.rows.treatment[: adoption.count]
    size, columns = adoption.count, len(COLUMNS) + 1
    asked = [(ask, reply) for ask, reply in heard if ask.stage == "projection"]
    free, gram, moment = (
        jax.tree.map(lambda *leaves: np.concatenate(leaves), *[part(*pair) for pair in asked])
        for part in (
            lambda a, _: a.parameters.free,
            lambda _, r: r.summed["gram"],
            lambda _, r: r.summed["moment"],
        )
    )
    chosen = np.linspace(0, len(gram) - 1, min(questions, len(gram))).astype(int)
    free, gram, moment = (
        jax.tree.map(lambda leaf: jnp.asarray(leaf)[chosen], t) for t in (free, gram, moment)
    )
    ridge = next(reply.summed for ask, reply in heard if ask.stage == "ridge")
    stages, least = adoption.stages, float(adoption.rows.least)
    whole = {"fold": jnp.asarray(-1)}
    nobody = np.zeros(size)
    covariates = np.zeros((size, columns - 1))
    empty = make_rows(covariates, np.asarray(treatment), nobody, fold=nobody, site=0, least=least)

    def misfit(found: Any, gram: Any, moment: Any) -> Any:
        first = (found["gram"] - gram).ravel()
        return jnp.concatenate([first, (found["moment"] - moment).ravel()])

    def differences(vector: Any) -> Any:
        values = vector.reshape(size, columns)
        places = (empty.covariates.at[:size].set(values[:, :-1]), empty.outcome.at[:size].set(values[:, -1]))
        rows = eqx.tree_at(lambda each: (each.covariates, each.outcome), empty, places)
        first = stages["ridge"].statistics(Parameters(fixed=whole), rows).summed
        parts = [misfit(first, ridge["gram"][0], ridge["moment"][0]), first["square"] - ridge["square"][0]]

        def one(leaves: Any) -> Any:
            found = stages["projection"].statistics(Parameters(leaves[0], whole), rows).summed
            return misfit(found, leaves[1], leaves[2])

        return jnp.concatenate([*parts, jax.lax.map(one, (free, gram, moment)).ravel()])

    return differences


def descend(
    differences: Callable[[Any], Any], start: np.ndarray, until: float
) -> tuple[np.ndarray, float, int]:
    """Levenberg–Marquardt until the time is up or nothing improves; rows, sum of squares, iterations."""
    columns = jnp.eye(len(start))

    @jax.jit
    def jacobian(vector: Any) -> Any:
        slopes = jax.lax.map(lambda way: jax.jvp(differences, (vector,), (way,))[1], columns, batch_size=40)
        error = differences(vector)
        return slopes @ slopes.T, slopes @ error, error @ error

    value = jax.jit(lambda vector: jnp.sum(differences(vector) ** 2))
    point, damping, count = start, 1e-2, 0
    while time.monotonic() < until and count < 400:
        curvature, slope, best = (np.asarray(part) for part in jacobian(point))
        count += 1
        for _ in range(12):
            lifted = curvature + damping * np.diag(np.diag(curvature) + 1e-9)
            step = np.linalg.solve(lifted, -slope)
            reached = float(value(point + np.clip(step, -1.0, 1.0)))
            if reached < best:
                break
            damping *= 4.0
        else:
            break
        point, damping = point + np.clip(step, -1.0, 1.0), damping / 5.0
        if reached > best * (1.0 - 1e-7) or reached < 1e-20:
            break
    return point, float(value(point)), count


def matches(true: np.ndarray, found: np.ndarray, arm: np.ndarray) -> tuple[int, int]:
    """The numbers of true rows with a recovered row within 0.01 and 0.1 sd in all columns."""
    hits = np.zeros(2, dtype=int)
    for which in (0, 1):
        gaps = np.abs(true[arm == which][:, None] - found[arm == which][None]).max(axis=2)
        pairs = linear_sum_assignment(np.minimum(gaps, 0.3))
        hits += [int((gaps[pairs] < limit).sum()) for limit in (NEARER, NEAR)]
    return int(hits[0]), int(hits[1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--people", type=int, nargs="+", default=[20, 60, 120, 300])
    parser.add_argument("--limits", choices=("on", "off"), default="off")
    parser.add_argument(
        "--questions", type=int, default=12, help="number of θ of the transcript that are used"
    )
    parser.add_argument("--seconds", type=float, default=90.0, help="time for each size, all starts together")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    print("people | limits | starts | iterations | misfit | within 0.01 sd | within 0.1 sd | guessing")
    for people in options.people:
        adoption, heard = transcript(people, LIMITS if options.limits == "on" else NONE, options.seed)
        rows = adoption.rows
        true = np.column_stack([rows.covariates, rows.outcome])[:people]
        arm = np.asarray(rows.treatment)[:people]
        differences = residuals(adoption, heard, options.questions)
        rng = np.random.default_rng(options.seed + 1)
        until, starts, total = time.monotonic() + options.seconds, 0, 0
        best: tuple[np.ndarray, float] = (true, np.inf)
        while time.monotonic() < until:
            found, misfit, count = descend(differences, rng.standard_normal(true.size), until)
            starts, total = starts + 1, total + count
            best = (found, misfit) if misfit < best[1] else best
        nearer, near = matches(true, best[0].reshape(true.shape), arm)
        guess = np.column_stack([rng.choice(column, people) for column in true.T])
        guessed = matches(true, guess, arm)
        cells = (people, options.limits, starts, total, f"{best[1]:.1e}", nearer, near, f"{guessed}")
        print(" | ".join(str(cell) for cell in cells), flush=True)


if __name__ == "__main__":
    main()
