"""Whom to treat, as it is written, printed and shown in the report; what rests on few people is withheld."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd
from matplotlib.axes import Axes

from unpooled.disclosure.limits import LEAST
from unpooled.disclosure.withheld import withheld
from unpooled.estimators.policy.policy import Policy
from unpooled.estimators.policy.sums import EVERYBODY, GROUPS, NOBODY, OBSERVED, RULE
from unpooled.report.figures import fifths as fifths_figure
from unpooled.report.json_types import Fifth, Interval, PolicyContent, PolicyValue
from unpooled.report.numbers import PLAIN, form_of

UNKNOWN = Interval(estimate=None, lower=None, upper=None)


def policy_content(found: Policy) -> PolicyContent:
    """The results as JSON-compatible values, without numbers that rest on few people."""
    counts = found.counts()
    few, policies = _few_decided_otherwise(counts), _policies(found)
    fifths, calibration = found.sorted_effects(), found.calibration()
    people = {f"fifth {group + 1}": int(counts.at[f"in {group}", f"in {group}"]) for group in range(GROUPS)}
    hidden = withheld({name: count for name, count in people.items() if count}, kind="fifth")
    slope, apart = calibration.to_dict("records")
    ends_hidden = {f"fifth {end}" for end in (1, GROUPS)} & set(hidden)
    return PolicyContent(
        method=found.method,
        cost=found.cost,
        larger_is_better=found.larger_is_better,
        outcome=found.outcome,
        unit=found.unit,
        people=found.people,
        rule=found.rule,
        rules=list(found.rules),
        policies=[one if one["policy"] not in few else _closed(one, few) for one in policies],
        fifths=[
            Fifth(
                fifth=place,
                share=row["share"],
                predicted=None if f"fifth {place}" in hidden else row["predicted"],
                effect=UNKNOWN if f"fifth {place}" in hidden else _interval(row, "effect"),
                note=hidden.get(f"fifth {place}", ""),
            )
            for place, row in enumerate(fifths.to_dict("records"), 1)
        ],
        slope=_interval(slope, "estimate"),
        slope_p_value=slope["p_value"],
        last_minus_first=UNKNOWN if ends_hidden else _interval(apart, "estimate"),
        last_minus_first_p_value=None if ends_hidden else apart["p_value"],
    )


def _policies(found: Policy) -> list[PolicyValue]:
    values, over_nobody, over_everybody = found.values(), found.gains(NOBODY), found.gains(EVERYBODY)

    def gain(table: pd.DataFrame, name: str) -> Interval:
        return _interval(table.loc[name].to_dict(), "gain") if name in table.index else UNKNOWN

    return [
        PolicyValue(
            policy=name,
            treated=row["treated"],
            outcome=_interval(row, "outcome"),
            over_nobody=gain(over_nobody, name),
            over_everybody=gain(over_everybody, name),
            note="",
        )
        for name, row in values.to_dict("index").items()
    ]


def _interval(row: Mapping[str, float], name: str) -> Interval:
    return Interval(estimate=row[name], lower=row["lower"], upper=row["upper"])


def _closed(one: PolicyValue, few: Mapping[str, str]) -> PolicyValue:
    return PolicyValue(
        policy=one["policy"],
        treated=None,
        outcome=UNKNOWN,
        over_nobody=UNKNOWN,
        over_everybody=UNKNOWN,
        note=few[one["policy"]],
    )


def _few_decided_otherwise(counts: pd.DataFrame) -> dict[str, str]:
    """Policies whose value less that of another one would be a sum over few people, with the reason.

    Values of people as they were are averages of other numbers, and take no part.
    """
    shown: list[str] = []
    hidden: dict[str, str] = {}
    for name in (one.removeprefix("treated ") for one in counts.index if one.startswith("treated ")):
        own = f"treated {name}"
        for other in (f"treated {one}" for one in shown):
            apart = counts.at[own, own] + counts.at[other, other] - 2 * counts.at[own, other]
            if 0 < apart < LEAST:
                words = other.removeprefix("treated ")
                hidden[name] = f"decides otherwise than '{words}' for fewer than {LEAST} people"
        if name not in hidden and name != OBSERVED:
            shown.append(name)
    return hidden


def fifths_table(content: PolicyContent) -> pd.DataFrame:
    """fifth, share, predicted, effect, lower, upper; NaN where a number is withheld."""
    table = pd.DataFrame(
        {
            "fifth": one["fifth"],
            "share": one["share"],
            "predicted": one["predicted"],
            "effect": one["effect"]["estimate"],
            "lower": one["effect"]["lower"],
            "upper": one["effect"]["upper"],
        }
        for one in content["fifths"]
    )
    return table.astype(dict.fromkeys(("predicted", "effect", "lower", "upper"), float))


def draw_fifths(content: PolicyContent) -> Axes:
    """The figure of fifths."""
    slope = pd.Series(content["slope"], dtype=float)
    words = fifths_figure.slope_words(*slope[["estimate", "lower", "upper"]])
    table = fifths_table(content).set_index("fifth")
    return fifths_figure.fifths(table, words, outcome=content["outcome"], unit=content["unit"])


def policy_forms(content: PolicyContent) -> dict[str, str]:
    """The formats of mean outcomes, gains and effects, each from the widest of its intervals."""
    policies, effects = content["policies"], [one["effect"] for one in content["fifths"]]
    gains = [one[over] for one in policies for over in ("over_nobody", "over_everybody")]
    return {
        "outcome": _form([one["outcome"] for one in policies]),
        "gain": _form(gains),
        "effect": _form(effects),
    }


def _form(intervals: list[Interval]) -> str:
    known = [(one["lower"], one["upper"]) for one in intervals]
    ends = [(lower, upper) for lower, upper in known if lower is not None and upper is not None]
    return form_of(*max(ends, key=lambda one: one[1] - one[0])) if ends else PLAIN


def policy_sentence(content: PolicyContent) -> str:
    """The rule and what it gains, in one or two sentences."""
    rule = next(one for one in content["policies"] if one["policy"] == RULE)
    words = f"Rule: {content['rule']}."
    if rule["note"]:
        return f"{words} What it gains is not shown: it {rule['note']}."
    form = policy_forms(content)["gain"]
    gained = [
        f"{written(rule[over], form)} over treating {whom}"
        for over, whom in (("over_nobody", "nobody"), ("over_everybody", "everybody"))
    ]
    return f"{words} Per person and after the cost, rules found in this way gain {' and '.join(gained)}."


def written(one: Interval, form: str, to: str = " to ") -> str:
    """An estimate with its interval in brackets; a dash if it is not known."""
    if one["estimate"] is None or one["lower"] is None or one["upper"] is None:
        return "–"
    return f"{one['estimate']:{form}} ({one['lower']:{form}}{to}{one['upper']:{form}})"


def calibration_sentence(content: PolicyContent) -> str:
    """Whether people with larger predicted effects have larger effects, in a sentence."""
    slope, p_value = content["slope"], content["slope_p_value"]
    if slope["estimate"] is None or p_value is None:
        return "All predicted effects are equal, so that their order cannot be tested."
    found = f"The calibration slope is {written(slope, '.2f')}."
    if p_value < 0.05:
        return f"People with larger predicted effects have larger effects. {found}"
    return f"That people with larger predicted effects have larger effects is not confirmed. {found}"


def policy_notes(content: PolicyContent) -> list[str]:
    """How to read the numbers, in sentences."""
    better = "larger" if content["larger_is_better"] else "smaller"
    of = f" {content['unit']}" if content["unit"] else ""
    notes = [
        f"A gain is per person, after a cost of {content['cost']:g}{of} for each person treated; {better} "
        f"outcomes are better. {content['people']:,} people were valued, by fits that had not seen them.",
    ]
    if set(content["rules"]) != {content["rule"]}:
        words = "; ".join(dict.fromkeys(content["rules"]))
        notes.append(f"The rule was found from everybody. Those that were valued, found from fewer: {words}.")
    hidden = [f"{one['policy']} {one['note']}" for one in content["policies"] if one["note"]]
    hidden += [f"fifth {one['fifth']}: {one['note']}" for one in content["fifths"] if one["note"]]
    return notes + [f"Not shown: {'; '.join(hidden)}."] * bool(hidden)
