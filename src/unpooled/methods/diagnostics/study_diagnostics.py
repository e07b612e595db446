"""Looking at a study as a procedure: regressions, then one round for balance, overlap and simpler estimates.

It runs side by side with a method's fit, so that it costs no round of its own where the fit is longer.
"""

from __future__ import annotations

from typing import TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from unpooled.errors import UnpooledError
from unpooled.methods.aipw.estimates import of_scores, of_weights, stacked_scores, stacked_weights
from unpooled.methods.aipw.fit import score_question
from unpooled.methods.aipw.newton import STEPS
from unpooled.methods.aipw.normal_equations import Shared
from unpooled.methods.aipw.nuisances import EVERYBODY, judged_without, nuisances
from unpooled.methods.aipw.regressions import Outcome, Treatment
from unpooled.methods.aipw.scores import Scores, WeightedOutcomes
from unpooled.methods.diagnostics.balance import Balance
from unpooled.methods.diagnostics.regressors import regressors
from unpooled.optimise.procedure import Procedure, ask, side_by_side
from unpooled.protocol.messages import Ask, Message, Together, Tree
from unpooled.protocol.stage import Stage

T = TypeVar("T")
PREFIX = "look_"
FOLDS, RIDGE, TRIM = 3, 1.0, 0.01
"""As AIPW's defaults."""
MOST_ROUNDS = STEPS + 1


def stages(scaling: Tree) -> dict[str, Stage]:
    """Every stage by name, the same at the coordinator and at the sites."""
    found, offsets = regressors(scaling), _sharing(scaling).offsets
    plain: dict[str, Stage] = {
        "treatment": Treatment(offsets),
        "outcome": Outcome(offsets),
        "scores": Scores(TRIM),
        "weighted_outcomes": WeightedOutcomes(TRIM),
        "balance": Balance(*map(jnp.asarray, (found.mean, found.sd, found.flag)), trim=TRIM),
    }
    return {f"{PREFIX}{name}": stage for name, stage in plain.items()}


def joined(own: dict[str, Stage], scaling: Tree, look: bool) -> dict[str, Stage]:
    """A method's own stages, and these beside them where the study is looked at."""
    return {**own, **stages(scaling)} if look else own


def features(scaling: Tree) -> int:
    """Most numbers per person that any of these stages' statistics rest on."""
    return 1 + regressors(scaling).width


def look(scaling: Tree) -> Procedure[Tree]:
    """Every number that the sites told, as arrays; ``{"why_not": …}`` where looking is impossible."""
    try:
        return (yield from _named(_look(scaling)))
    except UnpooledError as error:
        return {"why_not": f"{error.expected}; found {error.found}"}
    except np.linalg.LinAlgError:
        return {"why_not": "regressions must have one solution; found a singular one"}


def _look(scaling: Tree) -> Procedure[Tree]:
    sharing, without = _sharing(scaling), np.append(judged_without(FOLDS), EVERYBODY)
    known = yield from nuisances(sharing, RIDGE, without, without)
    assert known.treatment is not None
    *held_out, everybody = known.treatment.coefficients
    crossed = known._replace(treatment=known.treatment._replace(coefficients=np.stack(held_out)))
    own = np.repeat(everybody[:, None], FOLDS, axis=1)
    # Propensities of ½ for everybody weigh all alike: the unadjusted difference.
    both = {"treatment": np.stack([own, np.zeros_like(own)])}
    scores, weighted, balance = yield from side_by_side(
        ask("scores", score_question(crossed, FOLDS)),
        ask("weighted_outcomes", {"free": {}, "fixed": {}, "each": both}),
        ask("balance", {"free": {}, "fixed": {}, "each": {"treatment": own[None]}}),
    )
    one = jax.tree.map(lambda leaf: leaf[0], scores["each"])
    adjusted, plain = (jax.tree.map(lambda leaf, i=i: leaf[i], weighted["each"]) for i in (0, 1))
    return {
        "sites": of_scores(one)._asdict() | {"people": one["people"]},
        "aipw": of_scores(stacked_scores(one))._asdict(),
        "ipw": of_weights(stacked_weights(adjusted))._asdict(),
        "difference": of_weights(stacked_weights(plain))._asdict(),
        "risks": stacked_weights(adjusted)["mean"],
        "total": jax.tree.map(lambda leaf: leaf[0], balance["total"]),
        "each": jax.tree.map(lambda leaf: leaf[0], balance["each"]),
        "clipped": int(scores["total"]["clipped"].sum()),
        "rounds": known.treatment.rounds,
        "converged": known.treatment.converged,
    }


def _sharing(scaling: Tree) -> Shared:
    sites = len(scaling["counts"])
    return Shared(sites, features(scaling), sites > 1)


def _named(procedure: Procedure[T]) -> Procedure[T]:
    """The same procedure, asking for stages by the names they have here."""
    reply: Tree = None
    try:
        while True:
            reply = yield _renamed(procedure.send(reply))
    except StopIteration as done:
        return done.value
    finally:
        procedure.close()


def _renamed(question: Message) -> Message:
    if isinstance(question, Together):
        return Together(tuple(_renamed(part) for part in question.questions))
    assert isinstance(question, Ask)
    return Ask(f"{PREFIX}{question.stage}", question.parameters)
