"""People who are left out of a study of complete cases: how many, and whether they differ from the others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from unpooled.disclosure.limits import CELL
from unpooled.disclosure.withheld import complemented, few
from unpooled.maths.meta_analysis import quantile
from unpooled.optimise.procedure import Procedure, ask_each
from unpooled.protocol.records import Check, Scaling
from unpooled.protocol.table_messages import CompareLeftOut
from unpooled.study import Description, Schema, Study

ALIKE = 0.1
"""Largest standardised mean difference between people who are left out and the others."""
LEVEL = 0.05
"""Probability that chance alone makes one of the differences count, if there are none."""


@dataclass(frozen=True)
class LeftOutPeople:
    """How many people are left out for missing values, and their means minus those of the others."""

    incomplete: tuple[str, ...]
    kept: dict[str, int]
    """Number of people by site who are not left out."""
    counts: np.ndarray
    """[site, arm]: how many are left out; NaN for a small number."""
    names: tuple[str, ...]
    """The complete features, the treatment and the outcome."""
    compared: np.ndarray
    """How many of the people who are left out are compared, for each of `names`."""
    differences: np.ndarray
    """Standardised mean differences; NaN where nobody is compared."""

    @property
    def beyond_chance(self) -> np.ndarray:
        """Which differences are larger than chance explains, for all of them together."""
        known = self.compared > 0
        variance = 1.0 / np.maximum(self.compared, 1) + 1.0 / max(sum(self.kept.values()), 1)
        reach = quantile(1.0 - LEVEL / (2.0 * max(int(known.sum()), 1)), 0) * np.sqrt(variance)
        return known & (np.abs(np.where(known, self.differences, 0.0)) > reach)


def people_left_out(
    study: Study, schema: Schema, scaling: Scaling, descriptions: Mapping[str, Description]
) -> Procedure[LeftOutPeople | None]:
    """Compare people who are left out with the others, in one round; None if the study leaves out none."""
    if study.columns.missing != "complete cases":
        return None
    width = sum(len(one.features) for one in schema.covariates if one.name in study.columns.covariates)
    treated = sum(one.arms.get(schema.treated, 0) for one in descriptions.values()) / scaling.people
    centre = np.array([*scaling.mean[:width], treated, scaling.outcome_mean])
    sd = np.array([*scaling.sd[:width], np.sqrt(treated * (1.0 - treated)), scaling.outcome_sd])
    replies = yield from ask_each(CompareLeftOut(schema, centre))
    compared, total = (
        np.sum([reply.sums[name] for reply in replies.values()], axis=0) for name in ("people", "total")
    )
    compared = np.rint(compared)
    known = np.where(compared > 0.0, compared, np.nan)
    arms = [
        [np.nan if reply.arms[arm] is None else reply.arms[arm] for arm in (schema.control, schema.treated)]
        for reply in replies.values()
    ]
    return LeftOutPeople(
        study.columns.incomplete,
        {site: one.rows for site, one in descriptions.items()},
        np.array(arms, dtype=float),
        (*schema.features[:width], study.columns.treatment, study.columns.outcome),
        compared,
        total / known / sd,
    )


def counts_to_show(found: LeftOutPeople) -> np.ndarray:
    """[site, arm]: how many are left out, without small numbers and those from which they would follow."""
    counts = np.nan_to_num(found.counts)
    kept = ~np.isnan(found.counts) & ~few(counts)
    people = list(found.kept.values())
    shown = complemented(kept, people, counts[None], counts.sum(axis=0)[None])
    return np.where(shown, counts, np.nan)


def words(found: LeftOutPeople) -> Iterator[str]:
    """What a result says of people who are left out."""
    shown = counts_to_show(found)
    if np.all(shown == 0.0):
        yield "nobody is left out for missing values"
        return
    total, kept = np.nansum(found.counts), sum(found.kept.values())
    hidden = np.isnan(found.counts).any()
    share = "" if hidden else f" ({total / (total + kept):.1%})"
    each = [
        f"{site} {_number(control, treated)}"
        for site, (control, treated) in zip(found.kept, shown, strict=True)
    ]
    yield (
        f"{'at least ' if hidden else ''}{total:,.0f} people{share} are left out because "
        f"{' or '.join(found.incomplete)} is missing: {', '.join(each)}"
    )


def _number(control: float, treated: float) -> str:
    if np.isnan(control) or np.isnan(treated):
        return f"not shown (fewer than {CELL} in an arm, or so that another number cannot be worked out)"
    return f"{control:,.0f} controls and {treated:,.0f} treated"


def checks(found: LeftOutPeople | None) -> tuple[Check, ...]:
    """Whether those who are left out are like the others, if enough of them could be compared."""
    if found is None or not np.any(found.compared > 0.0):
        return ()
    sizes = np.where(found.beyond_chance, np.abs(found.differences), 0.0)
    name = found.names[int(np.argmax(sizes))] if sizes.max() > 0.0 else "none"
    return (
        Check.at_most(
            "complete cases", sizes.max(), ALIKE,
            "Largest standardised mean difference between people who are left out for missing values and "
            f"the others, among differences beyond chance: '{name}'. Up to the threshold, those who are left "
            "out are alike in what is known of everybody. Above it, the complete cases are other people than "
            "the study's, and effects among them may be biased: use the method causal_fi with "
            'missing = "model".',
        ),
    )  # fmt: skip
