"""Whom to treat as it is written and shown: what rests on few people is withheld."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import unpooled as up
from unpooled.estimators.policy import sums as of
from unpooled.estimators.policy.policy import Policy
from unpooled.estimators.policy.sums import People
from unpooled.report.folder import finite
from unpooled.report.policy import (
    calibration_sentence,
    draw_fifths,
    fifths_table,
    policy_content,
    policy_forms,
    policy_notes,
    policy_sentence,
)


def policy_of(chosen: np.ndarray, predicted: np.ndarray, cuts: np.ndarray) -> Policy:
    """The policy of one part, whose people the rule chooses or not."""
    random, n = np.random.default_rng(1), len(chosen)
    control = random.normal(size=n)
    one = People(
        treatment=random.binomial(1, 0.5, n).astype(float),
        outcome=random.normal(size=n),
        scores=np.stack([control, control + predicted + random.normal(size=n)], axis=1),
        predicted=predicted,
        chosen=chosen,
        weight=np.full(n, 0.25),  # counts of people are not sums of weights
    )
    found = of.site_sums(one, cuts, cost=0.0, sign=1.0)
    return Policy(0.0, True, "treat if a > 1", ("treat if a > 2",), n, "y", "kg", "aipw", (found,))


PREDICTED = np.linspace(-1.0, 1.0, 100)
FIFTHS = np.array([-0.6, -0.2, 0.2, 0.6])


def test_a_policy_is_withheld_if_it_decides_otherwise_for_few() -> None:
    for few, hidden in ((0, set()), (3, {"rule"}), (9, {"rule"}), (10, set())):
        chosen = np.arange(100) >= few  # everybody but a few
        content = finite(policy_content(policy_of(chosen, PREDICTED, FIFTHS)))
        rows = {row["policy"]: row for row in content["policies"]}
        assert {name for name, row in rows.items() if row["note"]} == hidden
        assert (rows["rule"]["over_nobody"]["estimate"] is None) == bool(hidden)
        assert ("is not shown" in policy_sentence(content)) == bool(hidden)
        assert any("rule decides otherwise than 'everybody'" in one for one in policy_notes(content)) == bool(
            hidden
        )
    alike = PREDICTED > 0.0
    alike[:4] = True  # as the predicted effect, but for four
    rows = policy_content(policy_of(alike, PREDICTED, FIFTHS))["policies"]
    assert [row["policy"] for row in rows if row["note"]] == ["rule"]
    assert "'predicted effect'" in rows[-1]["note"]


def test_a_small_fifth_is_withheld_with_another_and_so_is_their_difference() -> None:
    chosen = PREDICTED > 0.5
    small = np.array([-0.95, -0.2, 0.2, 0.6])  # three people in the first
    content = finite(policy_content(policy_of(chosen, PREDICTED, small)))
    withheld = [row["fifth"] for row in content["fifths"] if row["note"]]
    assert withheld[0] == 1 and len(withheld) == 2
    assert content["last_minus_first"]["estimate"] is None and content["slope"]["estimate"] is not None
    table = fifths_table(content).set_index("fifth")
    assert list(table.index[table["effect"].isna()]) == withheld
    assert draw_fifths(content).get_title(loc="left")
    whole = finite(policy_content(policy_of(chosen, PREDICTED, FIFTHS)))
    assert not any(row["note"] for row in whole["fifths"])
    assert whole["last_minus_first"]["estimate"] == pytest.approx(
        whole["fifths"][4]["effect"]["estimate"] - whole["fifths"][0]["effect"]["estimate"]
    )


def test_equal_predictions_are_said_to_be_equal() -> None:
    found = policy_of(PREDICTED > 0.5, np.zeros(100), np.full(4, np.inf))
    content = finite(policy_content(found))
    assert content["slope"]["estimate"] is None
    assert "All predicted effects are equal" in calibration_sentence(content)
    assert "all predictions are equal" in draw_fifths(content).get_xlabel()
    assert set(policy_forms(content)) == {"outcome", "gain", "effect"}


def test_the_sentence_and_the_notes_say_what_was_valued() -> None:
    content = finite(policy_content(policy_of(PREDICTED > 0.5, PREDICTED, FIFTHS)))
    sentence = policy_sentence(content)
    rule = content["policies"][-1]["over_nobody"]
    assert sentence.startswith("Rule: treat if a > 1. Per person and after the cost, rules found in this way")
    assert f"gain {rule['estimate']:{policy_forms(content)['gain']}} (" in sentence
    notes = " ".join(policy_notes(content))
    assert "100 people were valued" in notes and "larger outcomes are better" in notes
    assert "treat if a > 2" in notes


@pytest.mark.slow
def test_a_report_in_python_has_the_section_if_it_is_given(tmp_path) -> None:
    random = np.random.default_rng(3)
    table = pd.DataFrame({"a": random.normal(size=300), "w": random.integers(0, 2, 300)})
    table["y"] = table["a"] * (1 + table["w"]) + random.normal(size=300)
    sites = {"s0": table[:150].reset_index(drop=True), "s1": table[150:].reset_index(drop=True)}
    study = up.Study(treatment="w", outcome="y", covariates=["a"])
    model = up.AIPW(draws=50).fit(study, sites)
    found = up.policy(up.AIPW(draws=50), study, sites)
    plain = model.report(tmp_path / "plain.html").read_text(encoding="utf-8")
    page = model.report(tmp_path / "report.html", policy=found).read_text(encoding="utf-8")
    assert 'id="policy"' not in plain and 'href="#policy"' not in plain
    assert 'id="policy"' in page and 'href="#policy"' in page
    gain = float(found.gains().loc["predicted effect", "gain"])
    assert f'data-path="policy/policies/3/over_nobody/estimate" value="{gain!r}"' in page
