"""The results folder."""

import json
import math

import numpy as np
import pandas as pd
import pytest

from oracle import records
from unpooled.errors import ResultsError
from unpooled.report import claim, write_results
from unpooled.report.folder import finite
from unpooled.report.results import _lines, claimed
from unpooled.study import read_study


@pytest.fixture(scope="module")
def folder(model, place):
    return write_results(model, place / "results")


@pytest.fixture(scope="module")
def content(folder):
    return json.loads((folder / "result.json").read_text())


def test_the_answer_is_at_the_top(content, model):
    assert content["ate"] == model.ate()
    assert content["ate_interval"] == list(model.ate_interval())
    assert content["ate_interval"][0] < content["ate"] < content["ate_interval"][1]
    assert content["outcome_unit"] == "kg"
    assert content["people"] == 90


def test_every_site_has_a_line_and_the_whole_is_not_one_of_them(content):
    assert [row["site"] for row in content["sites"]] == ["north", "south"]
    assert [row["n"] for row in content["sites"]] == [30, 60]
    weighted = sum(row["n"] * row["ate"] for row in content["sites"]) / 90
    assert math.isclose(weighted, content["ate"], rel_tol=1e-12)


def test_who_repeats_the_study_finds_seed_settings_and_versions(content, study):
    assert content["seed"] == 0
    assert content["method"] == "fedci"
    assert content["study_hash"] == study.hash
    assert {"python", "unpooled", "jax", "numpy"} <= set(content["versions"])
    assert content["structure_weights"] == {"isotropic": 1.0}


def test_numbers_that_json_lacks_become_null():
    assert finite({"history": [math.inf, 1.0], "n": np.int64(3), "x": (np.float64("nan"),)}) == {
        "history": [None, 1.0],
        "n": 3,
        "x": [None],
    }


def test_draws_and_summary_are_tables(folder, content):
    draws = pd.read_csv(folder / "draws.csv")
    assert list(draws.columns) == ["draw", "north", "south", "all sites"]
    assert math.isclose(draws["all sites"].mean(), content["ate"], rel_tol=1e-9)
    assert list(pd.read_csv(folder / "summary.csv")["site"]) == ["north", "south", "all sites"]


def test_each_figure_lies_beside_its_data(folder):
    figures = {path.stem for path in (folder / "figures").glob("*.png")}
    assert figures == {"posterior", "forest", "convergence", "bytes"}
    assert {path.stem for path in (folder / "figures").glob("*.csv")} == figures


def test_the_study_file_leads_back_to_the_tables(folder, study):
    again = read_study(folder / "study.toml")
    assert again.columns == study.columns
    assert again.hash == study.hash
    assert 'path = "../north.csv"' in (folder / "study.toml").read_text()


def test_a_folder_with_files_is_refused_and_left_as_it_was(model, tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(ResultsError) as raised:
        write_results(model, tmp_path)
    assert raised.value.exit_code == 7
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_resuming_needs_a_study_to_go_on_with(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(ResultsError, match="no checkpoint of a study"):
        claim(tmp_path, resume=True)


def test_resuming_in_a_new_or_empty_folder_is_refused_and_makes_none(tmp_path):
    for folder in (tmp_path, tmp_path / "a" / "b"):
        with pytest.raises(ResultsError, match="nothing to resume"):
            claim(folder, resume=True)
    assert list(tmp_path.iterdir()) == []


def test_an_empty_or_new_folder_may_be_claimed(tmp_path):
    assert claim(tmp_path) == tmp_path
    assert claim(tmp_path / "a" / "b").is_dir()


def test_a_folder_that_stays_empty_goes_again_with_the_parents_made_for_it(tmp_path):
    with pytest.raises(KeyError), claimed(tmp_path / "a" / "b"):
        raise KeyError
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(KeyError), claimed(tmp_path):
        raise KeyError
    assert tmp_path.is_dir(), "the user's own folder stays"


def test_a_folder_with_something_to_go_on_with_stays(tmp_path):
    with pytest.raises(KeyError), claimed(tmp_path / "a" / "b") as folder:
        (folder / "checkpoint.msgpack").write_bytes(b"")
        raise KeyError
    assert (tmp_path / "a" / "b" / "checkpoint.msgpack").exists()


def test_a_full_disk_is_told_with_the_folders_name(model, tmp_path, monkeypatch):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(pd.DataFrame, "to_csv", full)
    with pytest.raises(ResultsError, match="No space left") as raised:
        write_results(model, tmp_path / "results")
    assert str(tmp_path / "results") in raised.value.found


def test_a_journal_whose_last_line_was_cut_is_read_without_it(model, tmp_path):
    line = {"round": 1, "question": "describe", "seconds": 0.5, "replayed": False, "bytes": {}}
    (tmp_path / "journal.jsonl").write_text(json.dumps(line) + '\n{"round": 2, "ques')
    assert _lines(model, tmp_path) == [line]


def test_a_file_in_the_way_is_refused(tmp_path):
    (tmp_path / "results").write_text("a file")
    with pytest.raises(ResultsError, match="a file of that name"):
        claim(tmp_path / "results")


@pytest.mark.parametrize("lost", [[0], [0, 1]])
def test_effects_that_are_no_numbers_become_null_and_lose_no_file(model, study, tmp_path, lost):
    draws = np.random.default_rng(1).normal([3.0, 4.0], 0.5, (200, 2))
    draws[:, lost] = np.nan
    folder = write_results(records.model(study, draws), tmp_path / "results")
    content = json.loads((folder / "result.json").read_text())
    assert content["ate"] is None
    assert (folder / "figures" / "posterior.png").exists()
