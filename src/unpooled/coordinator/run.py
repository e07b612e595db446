"""A whole study as one procedure: agree, adopt, fit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from unpooled.coordinator.agreement import Agreement, reach_agreement
from unpooled.methods.diagnostics.study_diagnostics import look
from unpooled.methods.method import Fitted, Method
from unpooled.optimise.procedure import Procedure, side_by_side
from unpooled.protocol.messages import Adopt, Tree
from unpooled.study import Study

ROUNDS_BEFORE_FITTING = 4
"""Describe, two sums, adopt."""


@dataclass(frozen=True)
class Outcome:
    """Everything the coordinator holds at the end of a study."""

    agreement: Agreement
    context: Tree
    fitted: Fitted
    looked: Tree = None


def study_rounds(study: Study, method: Method, settings: Any) -> Procedure[Outcome]:
    """The procedure of one study; who asks whom is the engine's business."""
    agreement = yield from reach_agreement(study)
    context = method.context(settings, agreement.scaling, study.seed)
    yield Adopt(
        schema=agreement.schema.model_dump(mode="json"),
        scaling=agreement.scaling,
        method=study.method.name,
        settings=settings.model_dump(mode="json"),
        context=context,
        seed=study.seed,
        sites=tuple(agreement.descriptions),
        look=study.look,
    )
    fit = method.fit(settings, context, study.seed)
    if not study.look:
        return Outcome(agreement, context, (yield from fit))
    fitted, looked = yield from side_by_side(fit, look(agreement.scaling))
    return Outcome(agreement, context, fitted, looked)
