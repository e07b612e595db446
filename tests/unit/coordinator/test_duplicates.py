"""People who are at several sites are found and left out, whatever they are like."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unpooled.coordinator.checkpoint import Checkpoint, read_rounds
from unpooled.coordinator.duplicates import Copies, leave_out_copies, matched, superfluous
from unpooled.coordinator.rounds import Conduct, run
from unpooled.disclosure.limits import NONE, Limits
from unpooled.engines.in_process import InProcess, open_sites
from unpooled.errors import ResultsError, SiteLost
from unpooled.estimators import AIPW
from unpooled.protocol.duplicate_messages import Blinded, BlindKeys, LeaveOut, RaiseKeys, Tagged
from unpooled.protocol.messages import Refusal, SiteReplies
from unpooled.study import Study

ROLES: dict[str, Any] = {"treatment": "w", "outcome": "y", "covariates": ["x"], "id": "number"}


def study(**more: Any) -> Study:
    return Study(**{**ROLES, **more})


def table(numbers: Any, seed: int = 0) -> pd.DataFrame:
    """The same number is the same person, with the same record."""
    numbers = list(numbers)
    rng = np.random.default_rng([seed, 1])
    x, w, e = rng.normal(size=5000), rng.integers(0, 2, 5000), rng.normal(size=5000)
    at = np.array([hash(number) % 5000 for number in numbers], dtype=int)
    return pd.DataFrame({"number": numbers, "x": x[at], "w": w[at], "y": x[at] + w[at] + e[at]})


def chain(sites: int, rows: int = 40, shared: int = 10) -> dict[str, pd.DataFrame]:
    """Every site shares people with the next."""
    step = rows - shared
    return {f"site{i}": table(range(i * step, i * step + rows)) for i in range(sites)}


def found(asked: Study, tables: dict[str, pd.DataFrame]) -> tuple[Copies, dict[str, pd.DataFrame]]:
    engine = InProcess(open_sites(asked, tables, NONE))
    copies = run(leave_out_copies(asked), engine)
    assert copies is not None
    return copies, {name: site.frame for name, site in engine._sites.items()}


@pytest.mark.parametrize("duplicates", ["leave out", "keyed hash"])
@pytest.mark.parametrize("sites", [1, 2, 3, 4, 5])
def test_everybody_remains_exactly_once(sites: int, duplicates: str) -> None:
    tables = chain(sites)
    copies, left = found(study(privacy={"duplicates": duplicates}), tables)
    remaining = pd.concat(left.values())["number"]
    assert sorted(remaining) == list(range(30 * sites + 10))
    assert copies.overlaps == {(f"site{i}", f"site{i + 1}"): 10 for i in range(sites - 1)}
    assert copies.share == pytest.approx((sites - 1) * 10 / (40 * sites))
    assert [one.elsewhere for one in copies.sites.values()] == [
        10 * ((i > 0) + (i < sites - 1)) for i in range(sites)
    ]


@settings(max_examples=15, deadline=None)
@given(st.lists(st.sets(st.integers(0, 12), min_size=2), min_size=2, max_size=4), st.integers(1, 3))
def test_what_is_found_is_what_the_keys_say(parts: list[set[int]], most: int) -> None:
    tables = {f"site{i}": table([*sorted(part), 1000 + 2 * i, 1001 + 2 * i]) for i, part in enumerate(parts)}
    copies, left = found(study(privacy={"max_copies": most}), tables)
    everybody = pd.concat(tables.values())["number"].value_counts()
    remaining = pd.concat(left.values())["number"].value_counts()
    pd.testing.assert_series_equal(remaining.sort_index(), everybody.clip(upper=most).sort_index())
    assert sum(copies.overlaps.values()) == int((everybody > 1).sum())


def test_what_is_found_depends_on_no_order() -> None:
    tables = chain(3)
    turned = {name: tables[name].iloc[::-1] for name in reversed(tables)}
    there, back = found(study(), tables)[0], found(study(), turned)[0]
    assert {frozenset(k): v for k, v in there.overlaps.items()} == {
        frozenset(k): v for k, v in back.overlaps.items()
    }


def test_which_copy_stays_depends_on_the_key_alone() -> None:
    tables = chain(3)
    changed = {
        name: one.assign(w=1 - one["w"], y=-one["y"] + index, x=0.5 * one["x"])
        for index, (name, one) in enumerate(tables.items())
    }
    first, second = found(study(), tables)[1], found(study(), changed)[1]
    for name in tables:
        assert first[name]["number"].tolist() == second[name]["number"].tolist()
    other = found(study(seed=5), tables)[1]
    assert any(other[name]["number"].tolist() != first[name]["number"].tolist() for name in tables)


def test_about_as_many_copies_stay_at_every_site() -> None:
    rng = np.random.default_rng(0)
    tags = dict.fromkeys("abc", rng.integers(0, 256, (900, 16), dtype=np.uint8))
    out = superfluous(matched(tags), tags, 1)
    assert all(abs(len(out[site]) - 600) < 60 for site in "abc")
    assert {len(one) for one in superfluous(matched(tags), tags, 3).values()} == {0}


def test_one_row_of_a_person_with_several_stays() -> None:
    tables = chain(2)
    tables["site0"] = pd.concat([tables["site0"], tables["site0"][:20]], ignore_index=True)
    copies, left = found(study(), tables)
    assert copies.sites["site0"].counted.repeated == 20
    assert sorted(pd.concat(left.values())["number"]) == list(range(70))


def test_a_fit_is_that_of_the_remaining_rows() -> None:
    tables = chain(3, rows=120, shared=30)
    asked = study(seed=3)
    model = AIPW(seed=3, draws=50).fit(asked, tables)
    by_hand = AIPW(seed=3, draws=50).fit(
        study(privacy={"duplicates": "ignore"}), {name: site.frame for name, site in model.sites_.items()}
    )
    np.testing.assert_array_equal(model.ate_draws(), by_hand.ate_draws())
    assert sum(model.result_.counts) == 300
    assert any("60 rows (16.7%)" in note for note in model.result_.notes)


def test_a_study_resumes_in_the_middle_of_the_search_and_after_it(tmp_path: Path) -> None:
    tables, asked = chain(3), study()

    def conducted(path: Path, stop: int | None = None, **more: Any) -> dict[str, list[int]]:
        engine = InProcess(open_sites(asked, tables, NONE))
        for happened in Conduct(leave_out_copies(asked), engine, Checkpoint(path, **more)):
            if happened.number == stop:
                break
        return {name: site.frame["number"].tolist() for name, site in engine._sites.items()}

    whole = conducted(tmp_path / "whole")
    assert len(read_rounds(tmp_path / "whole")) == 6
    for stop in range(1, 7):
        conducted(tmp_path / "part", stop)
        assert conducted(tmp_path / "part", resume=True) == whole
    tables["site1"] = tables["site1"].iloc[:-1]
    with pytest.raises(ResultsError):  # the table is another one
        conducted(tmp_path / "whole", resume=True)


def test_small_numbers_are_not_told() -> None:
    tables = chain(2)
    tables["site0"].loc[:2, "number"] = None
    engine = InProcess(open_sites(study(), tables, Limits(cell=5)))
    copies = run(leave_out_copies(study()), engine)
    assert copies is not None
    assert copies.sites["site0"].counted.without_key is None
    assert copies.sites["site1"].counted.without_key == 0


def test_a_site_that_sends_another_length_is_lost() -> None:
    procedure = leave_out_copies(study())
    engine = InProcess(open_sites(study(), chain(2), NONE))
    reply: Any = None
    with pytest.raises(SiteLost, match="another length"):
        while True:
            question = procedure.send(reply)
            replies, _ = engine.exchange(question)
            if isinstance(question, BlindKeys):
                one = replies["site1"]
                assert isinstance(one, Blinded)
                replies["site1"] = replace(one, points=one.points[1:])
            reply = SiteReplies(dict(replies))


def test_nothing_is_asked_without_an_id() -> None:
    with pytest.raises(StopIteration):
        next(leave_out_copies(Study(**{**ROLES, "id": None})))


def test_no_reply_depends_on_anything_but_the_keys() -> None:
    """And points and tags of one person look different at every site and in every step."""
    seen: list[bytes] = []
    engine = InProcess(open_sites(study(), chain(3), NONE))
    reply: Any = None
    procedure = leave_out_copies(study())
    with pytest.raises(StopIteration):
        while True:
            question = procedure.send(reply)
            replies, _ = engine.exchange(question)
            reply = SiteReplies(dict(replies))
            for one in replies.values():
                if not isinstance(one, Refusal | Tagged) and hasattr(one, "points"):
                    seen += [point.tobytes() for point in one.points]  # type: ignore[attr-defined]
    assert len(seen) == len(set(seen)) == 3 * 64 * 3


def test_a_question_of_another_kind_of_search_is_no_part_of_the_study() -> None:
    keyed = study(privacy={"duplicates": "keyed hash"})
    assert BlindKeys({"a": 64}).mismatch(keyed) == BlindKeys({"a": 64}).mismatch(
        Study(**{**ROLES, "id": None})
    )
    assert BlindKeys({"a": 64}).mismatch(study()) is None
    assert LeaveOut({}, {}).mismatch(keyed) is None
    assert RaiseKeys({}, 1, {}).mismatch(keyed) is not None
