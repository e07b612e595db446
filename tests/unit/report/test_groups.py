"""Effects by group in result.json, on the screen and in the report; groups of few people are nowhere."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from oracle.records import with_subgroups as model
from unpooled import plot
from unpooled.cli.print_result import print_result
from unpooled.protocol.records import GROUPS
from unpooled.report import write_results
from unpooled.report.groups import hidden_groups, subgroup_tests
from unpooled.report.json_types import ResultContent, SubgroupTest
from unpooled.report.words import differs


def test_groups_of_few_people_are_hidden_and_so_are_those_from_which_they_follow() -> None:
    assert hidden_groups(model((30, 30, 30, 45)).result_) == {}
    few = hidden_groups(model((50, 34, 6, 45)).result_)
    assert few == {
        "age 65 and over": "fewer than 10 people",
        "age 50 to 65": "so that a smaller group cannot be worked out from the totals",
    }
    assert list(hidden_groups(model((50, 35, 0, 45)).result_)) == ["age 50 to 65"]  # 5 are in none of them
    assert list(hidden_groups(model((30, 30, 30, 86)).result_)) == ["tall"]  # all but four
    assert list(hidden_groups(model((30, 30, 30, 4)).result_)) == ["tall"]


def test_the_figure_has_a_row_for_each_group_with_people() -> None:
    rows = [label.get_text() for label in plot.subgroups(model((50, 40, 0, 45))).get_yticklabels()]
    assert rows == ["tall, n = 45", "age 50 to 65, n = 40", "age 0 to 50, n = 50"]
    fitted = model((30, 30, 30, 45))
    ax = plot.subgroups(fitted, "age")
    np.testing.assert_allclose(
        np.asarray(ax.collections[-1].get_offsets())[:, 0], fitted.gate("age")["effect"]
    )


def test_a_group_of_nobody_is_not_hidden() -> None:
    assert hidden_groups(model((50, 40, 0, 45)).result_) == {}


def test_a_test_with_a_hidden_group_is_left_out() -> None:
    assert [one["by"] for one in subgroup_tests(model((30, 30, 30, 45)))] == ["age"]
    assert subgroup_tests(model((50, 34, 6, 45))) == []


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Results in which two groups are hidden."""
    return write_results(model((50, 34, 6, 45)), tmp_path_factory.mktemp("groups") / "results")


def test_result_json_has_every_effect_of_every_group_that_is_shown(folder: Path) -> None:
    content: ResultContent = json.loads((folder / "result.json").read_text())
    fitted = model((50, 34, 6, 45))
    shown = [*GROUPS, "age 0 to 50", "tall"]
    assert [one["group"] for one in content["average_effects"]] == shown
    assert [one["people"] for one in content["average_effects"]] == [90, 40, 50, None, 50, 45]
    for group in content["average_effects"]:
        table = fitted.effects(group["group"]).loc[group["group"]]
        assert [one["effect"] for one in group["effects"]] == list(table.index)
        for one in group["effects"]:
            known = [one[name] for name in ("estimate", "lower", "upper")]
            expected = table.loc[one["effect"], ["estimate", "lower", "upper"]]
            assert known == pytest.approx(expected.tolist())
    gate = fitted.gate().loc[["age 0 to 50", "tall"]]
    for row, (name, expected) in zip(content["subgroups"], gate.iterrows(), strict=True):
        assert row["group"] == name
        assert row["by"] == ("tall" if name == "tall" else "age")
        for column in ("n", "control", "treated", "effect", "lower", "simultaneous_upper"):
            assert row[column] == pytest.approx(expected[column])  # type: ignore[literal-required]


def test_nothing_of_a_hidden_group_is_in_any_file(folder: Path) -> None:
    hidden = ("age 50 to 65", "age 65 and over")
    content = json.loads((folder / "result.json").read_text())
    assert set(content.pop("hidden_groups")) == set(hidden)
    assert not any(name in json.dumps(content) for name in hidden)
    for file in [*folder.glob("*.csv"), *folder.glob("figures/*.csv")]:
        assert not any(name in file.read_text() for name in hidden)
    page = (folder / "report.html").read_text()
    assert all(page.count(name) == 1 for name in hidden)  # where it says that they are not shown


def test_the_report_has_the_table_the_figure_and_the_notes(folder: Path) -> None:
    page = (folder / "report.html").read_text()
    section = page[page.index('<section id="effects">') : page.index('<section id="study">')]
    for text in ("odds ratio", "number needed to treat", "overlap", "Subgroups", "simultaneous", "up to"):
        assert text in section
    assert "so that this one has two parts" in section
    paths = re.findall(r'data-path="([^"]+)"', section)
    assert {"average_effects/5/effects/3/lower", "subgroups/1/simultaneous_upper"} <= set(paths)
    assert (folder / "figures" / "subgroups.png").exists()
    assert "age from 0, 50, 65; tall (height &gt; 180)" in page


def test_the_screen_has_every_group_and_says_which_are_missing(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    print_result(folder)
    out = capsys.readouterr().out
    for text in ("everybody", "overlap", "age 0 to 50", "odds ratio", "≤"):
        assert text in out
    assert "Groups that are not shown: age 65 and over (fewer than 10 people)" in out


def test_an_effect_that_is_not_defined_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fitted = model((30, 30, 30, 45), "continuous")
    outcomes = fitted.result_.average_outcomes
    shifted = replace(outcomes, sample=outcomes.sample - 0.3, population=outcomes.population - 0.3)
    fitted.result_ = replace(fitted.result_, average_outcomes=shifted)
    print_result(write_results(fitted, tmp_path / "results"))
    out = capsys.readouterr().out
    assert "not defined: the mean outcome of an arm is not clearly above 0" in out
    assert "odds ratio" not in out
    content = json.loads((tmp_path / "results" / "result.json").read_text())
    ratios = [
        one for group in content["average_effects"] for one in group["effects"] if one["effect"] == "ratio"
    ]
    assert any(one["estimate"] is None and one["note"] for one in ratios)
    (test,) = subgroup_tests(fitted)
    assert differs(test) in out


def test_a_test_is_told_in_a_sentence() -> None:
    clear: SubgroupTest = {"by": "age", "statistic": 40.0, "degrees": 2, "p_value": 2e-9}
    assert differs(clear) == "Between groups of age, the effects differ (p < 0.001)."
    unclear: SubgroupTest = {**clear, "p_value": 0.314}
    assert differs(unclear) == "Between groups of age, the effects need not differ (p = 0.31)."
