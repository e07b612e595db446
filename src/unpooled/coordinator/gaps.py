"""Sites' missing values, gathered by pattern once the sites have agreed."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from unpooled.coordinator.agreement import Agreement
from unpooled.maths.missing_patterns import Pattern
from unpooled.optimise.procedure import Procedure, ask_each
from unpooled.protocol.messages import MissingPatterns


class Gathered(NamedTuple):
    """By site: the patterns that it told, and how many patterns and rows it kept to itself."""

    agreement: Agreement
    patterns: dict[str, tuple[Pattern, ...]]
    withheld: dict[str, dict[str, int]]


def gather_gaps(agreement: Agreement) -> Procedure[Gathered]:
    """One round after the agreement's."""
    scaling, arms = agreement.scaling, agreement.descriptions.values()
    treated = sum(one.arms.get(agreement.schema.treated, 0) for one in arms) / sum(scaling.counts)
    centre = [*scaling.mean, *scaling.incomplete_mean, treated, scaling.outcome_mean]
    replies = yield from ask_each(MissingPatterns(agreement.schema, np.array(centre)))
    patterns = {site: reply.patterns for site, reply in replies.items()}
    withheld = {
        site: {"patterns": reply.withheld_patterns, "rows": reply.withheld_rows}
        for site, reply in replies.items()
    }
    return Gathered(agreement, patterns, withheld)
