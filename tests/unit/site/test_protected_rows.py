"""What a site computes its statistics from: rows in which nobody stands out, if it has limits."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from unpooled.coordinator.run import run_study
from unpooled.disclosure.limits import NONE, Limits
from unpooled.engines.in_process import InProcess, open_sites
from unpooled.methods.method import with_settings
from unpooled.protocol.messages import Adopt, Adopted, Question, Refusal
from unpooled.site.answer import answer
from unpooled.site.site import Site
from unpooled.study import Study

STUDY = with_settings(
    Study(treatment="w", outcome="y", covariates=["a", "rare", "far"], incomplete=["u", "never"]),
    "causal_fi",
    {"structure": "linear", "draws": 20, "sweeps": 10, "most_sweeps": 10, "importance": False},
)
ROWS = 120


def table(seed: int, **changed: Any) -> pd.DataFrame:
    """Half of the few who differ in `rare` are in each arm; one person is far away in `far`."""
    rng = np.random.default_rng(seed)
    a, far, u = rng.uniform(-1.0, 1.0, size=(3, ROWS))
    w = np.arange(ROWS) % 2
    y = rng.permutation(np.arange(ROWS) // 2 % 2 * 2 - 1) + 0.1 * a
    never = np.where(np.arange(ROWS) < seed * ROWS, u, np.nan)  # at the first site, nobody has a value
    values = {"a": a, "rare": np.where(np.arange(ROWS) < 8, 1.0, 0.0) * (1.0 + 0.1 * a), "far": far}
    frame = pd.DataFrame({**values, "u": np.where(np.arange(ROWS) % 3 == 0, np.nan, u), "never": never})
    frame.loc[0, "far"] = 500.0
    return frame.assign(w=w, y=y).assign(**changed)


class Listening(InProcess):
    """An engine that keeps the adoption, and stops there."""

    def __init__(self, sites: Any) -> None:
        super().__init__(sites)
        self.adoption: Any = None

    def exchange(self, question: Question) -> Any:
        if isinstance(question, Adopt):
            self.adoption = question.to_site(0)
            raise InterruptedError
        return super().exchange(question)


def sites(limits: Limits, **changed: Any) -> tuple[Site, Adopt]:
    """The first site, and the adoption that it is asked for."""
    opened = open_sites(STUDY, {"north": table(0, **changed), "south": table(1)}, limits)
    engine = Listening(opened)
    with pytest.raises(InterruptedError):
        run_study(STUDY, engine)
    return opened["north"], engine.adoption


def test_a_column_in_which_few_people_differ_is_left_out_and_named() -> None:
    site, adoption = sites(Limits())
    assert answer(site, adoption) == Adopted(ROWS, ("rare",))
    assert site.adopted is not None
    sent, own = (np.asarray(rows.covariates)[:ROWS] for rows in (site.adopted.rows, site.adopted.own_rows))
    assert np.ptp(sent[:, 1]) == 0.0 and np.ptp(own[:, 1]) > 0.0
    fifth = np.sort(own[:, 0])[[4, -5]]  # where nobody stands out, extremes are moved to the fifth value
    np.testing.assert_array_equal(sent[:, 0], np.clip(own[:, 0], *fifth))


def test_a_person_who_is_far_away_is_brought_nearer_in_what_is_sent_only() -> None:
    site, adoption = sites(Limits())
    answer(site, adoption)
    assert site.adopted is not None
    sent, own = (np.asarray(rows.covariates)[:ROWS, 2] for rows in (site.adopted.rows, site.adopted.own_rows))
    assert own[0] == own.max() > 10.0 * sent[0]
    fifth = np.sort(own)[[4, -5]]
    np.testing.assert_array_equal(sent[1:], np.clip(own[1:], *fifth))
    squares = (sent[::2] - sent.mean()) ** 2  # of the person's arm
    assert squares.max() < squares.sum() / Limits().cell


def test_without_limits_the_rows_are_sent_as_they_are() -> None:
    site, adoption = sites(NONE)
    assert answer(site, adoption) == Adopted(ROWS)
    assert site.adopted is not None
    assert site.adopted.rows is site.adopted.own_rows


def test_outcomes_that_few_people_have_are_refused() -> None:
    site, adoption = sites(Limits(), y=lambda t: np.where(t.index < 8, t["a"], 0.01 * t["w"]))
    reply = answer(site, adoption)
    assert isinstance(reply, Refusal)
    assert "few people have most of the outcome" in reply.found
    assert site.adopted is None


@pytest.mark.parametrize(
    "changes",
    [
        {"sd": np.array([1.0, 1.0, 1e-9])},
        {"mean": np.array([1e9, 0.0, 0.0])},
        {"sd": np.array([1.0, 0.0, 1.0])},
        {"mean": np.array([0.0, np.nan, 0.0])},
        {"mean": np.zeros(2), "sd": np.ones(2)},
        {"incomplete_mean": np.zeros(1), "incomplete_sd": np.ones(1)},
        {"outcome_sd": 1e-12},
        {"outcome_mean": float("inf")},
        {"incomplete_sd": np.array([1e-12, 1.0])},
    ],
    ids=lambda changes: ", ".join(changes),
)
def test_a_scaling_that_is_none_is_refused(changes: dict[str, Any]) -> None:
    site, adoption = sites(Limits())
    reply = answer(site, replace(adoption, scaling=replace(adoption.scaling, **changes)))
    assert isinstance(reply, Refusal)
    assert reply.kind == "MessageError" and "scaling" in reply.expected
    assert site.adopted is None


@pytest.mark.slow
def test_the_coordinator_is_told_which_columns_a_site_leaves_out() -> None:
    found = run_study(STUDY, InProcess(open_sites(STUDY, {"north": table(0), "south": table(1)}, Limits())))
    assert found.notes == tuple(
        f"site '{name}' leaves out columns in which too few of its people differ: rare"
        for name in ("north", "south")
    )
