"""The paper's FedCI data, and what all simulations have in common."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from unpooled.data import check, describe, read
from unpooled.data.simulation import NAMES, Simulation, causal_rff, fedci, simulate, varying, write
from unpooled.errors import ResultsError, StudyError
from unpooled.study import agree, read_study

COVARIATES = {**dict.fromkeys(fedci.OPTIONS, 20), **dict.fromkeys(causal_rff.OPTIONS, 30)}
"""Of those without holes."""
METHODS = {"fedci": "fedci", "causalrff": "causal_rff", "causalfi": "causal_fi"}


def small(name: str = "fedci-data1", **changed: Any) -> Simulation:
    return simulate(name, **{"sites": 3, "rows": 60, "seed": 5, "test_rows": 10, **changed})


@pytest.mark.parametrize("name", COVARIATES)
def test_a_site_holds_covariates_treatment_and_outcome_and_nothing_else(name: str) -> None:
    data = small(name)
    assert list(data.frames) == list(data.test) == ["site1", "site2", "site3"]
    for frame, rows in [(data.frames["site2"], 60), (data.test["site2"], 10)]:
        covariates = [f"x{j}" for j in range(1, COVARIATES[name] + 1)]
        assert list(frame.columns) == [*covariates, "w", "y"] and len(frame) == rows
    for truth, rows in [(data.truth, 180), (data.test_truth, 30)]:
        assert list(truth.columns) == ["site", "row", "y0", "y1", "mu0", "mu1"] and len(truth) == rows


@pytest.mark.parametrize("name", NAMES)
def test_the_observed_outcome_is_the_potential_outcome_of_the_treatment_received(name: str) -> None:
    data = small(name)
    for site, frame in data.frames.items():
        truth = data.truth[data.truth["site"] == site]
        np.testing.assert_array_equal(frame["y"], np.where(frame["w"] == 1, truth["y1"], truth["y0"]))
        assert truth["row"].tolist() == list(range(60))


@pytest.mark.parametrize("name", NAMES)
def test_outcomes_scatter_around_their_expectations(name: str) -> None:
    truth = small(name, sites=1, rows=20_000).truth
    for arm in ("0", "1"):
        error = truth[f"y{arm}"].to_numpy(float) - truth[f"mu{arm}"].to_numpy(float)
        assert abs(error.mean()) < 5 * error.std() / np.sqrt(20_000)
        if name not in ("fedci-binary", "fedci-count"):
            assert error.std() == pytest.approx(1.0, rel=0.03)


def test_the_covariates_are_uniform_and_the_treatment_follows_them() -> None:
    frame = small(sites=1, rows=20_000).frames["site1"]
    x, w = frame.filter(like="x").to_numpy(), frame["w"].to_numpy()
    assert x.min() >= -1 and x.max() <= 1 and x.var(axis=0).mean() == pytest.approx(1 / 3, rel=0.02)
    assert 0.2 < w.mean() < 0.8
    assert max(abs(np.corrcoef(x[:, j], w)[0, 1]) for j in range(20)) > 0.1


def test_data2_has_a_much_larger_effect_than_data1() -> None:
    large, modest = (small(name, rows=4000).expected_ate for name in ("fedci-data2", "fedci-data1"))
    assert large > 5 * abs(modest)


def test_the_seed_redraws_people_and_the_coefficient_seed_redraws_the_process() -> None:
    data, again, other = small(), small(), small(seed=6)
    pd.testing.assert_frame_equal(data.frames["site1"], again.frames["site1"])
    assert not data.frames["site1"].equals(other.frames["site1"])
    process = small(coefficient_seed=99)
    assert data.frames["site1"]["x1"].equals(process.frames["site1"]["x1"])
    assert not np.allclose(data.truth["mu1"], process.truth["mu1"])


def test_binary_and_count_outcomes_share_the_coefficients_of_data1() -> None:
    real, binary, count = (small(f"fedci-{name}").truth["mu0"] for name in ("data1", "binary", "count"))
    np.testing.assert_allclose(count, real)
    np.testing.assert_allclose(binary, 1 - np.exp(-real), atol=1e-12)  # φ(v) = 1 - exp(-λ(v))


@pytest.mark.parametrize("name", NAMES)
def test_more_sites_and_more_test_people_leave_the_first_sites_unchanged(name: str) -> None:
    few, many = small(name, sites=2, test_rows=0), small(name, sites=5, test_rows=99)
    for site in ("site1", "site2"):
        pd.testing.assert_frame_equal(few.frames[site], many.frames[site])
    assert few.test == {} and len(few.test_truth) == 0


def test_no_person_is_in_two_tables() -> None:
    data = small(test_rows=60)
    people = pd.concat([*data.frames.values(), *data.test.values()])
    assert len(people) == len(set(people["x1"])) == 360


def test_coefficients_have_the_means_and_the_spread_of_the_paper() -> None:
    setting = fedci._SETTINGS["fedci-data2"]
    process = fedci._process(setting, 0, 2.0, 20_000, "softplus")
    means = [line[1].mean() for line in (process.propensity, process.control, process.treated)]
    assert means == pytest.approx([0, 10, 15], abs=0.1) and process.control[1].std() == pytest.approx(
        2.0, rel=0.03
    )
    assert [line[0] for line in (process.propensity, process.control, process.treated)] == [0.6, 6.0, 30.0]


def test_counts_may_use_the_exponential_link() -> None:
    link, plain = (small("fedci-count", count_link=link).truth["mu0"] for link in ("exp", "softplus"))
    np.testing.assert_allclose(np.log1p(link), plain)
    with pytest.raises(StudyError, match="softplus"):
        small("fedci-count", count_link="exp", coefficient_sd=500.0)


def test_the_sample_effect_is_the_mean_difference_of_the_potential_outcomes() -> None:
    data = small()
    assert data.ate == pytest.approx((data.truth["y1"] - data.truth["y0"]).mean())


@pytest.mark.parametrize(
    "wrong",
    [{"sites": 0}, {"rows": 0}, {"seed": -1}, {"test_rows": -1}, {"dimension": 0}, {"count_link": "log"}],
)
def test_impossible_sizes_are_errors(wrong: dict[str, Any]) -> None:
    with pytest.raises(StudyError, match=next(iter(wrong))):
        small(**wrong)


def test_an_unknown_name_suggests_the_nearest() -> None:
    with pytest.raises(StudyError, match="did you mean 'fedci-binary'"):
        small("fedci-binarry")
    with pytest.raises(StudyError, match="did you mean 'causalrff-diff'"):
        small("causalrf-diff")


@pytest.mark.parametrize(
    ("name", "word"),
    [("causalrff-same", "delta"), ("causalrff-delta", "dimension"), ("fedci-data1", "delta")],
)
def test_an_option_of_another_simulation_is_an_error(name: str, word: str) -> None:
    with pytest.raises(StudyError, match=f"found: '{word}'\\n.*coefficient_sd"):
        small(name, **{word: 4})


@pytest.mark.parametrize("name", NAMES)
def test_what_is_written_is_a_study_ready_to_run(tmp_path: Path, name: str) -> None:
    data = small(name)
    study = read_study(write(data, tmp_path / "new" / "out"))
    frames = {site: read(source, study.columns, site=site) for site, source in study.sites.items()}
    for site, frame in frames.items():
        check(frame, study.columns, site=site)
        written = data.frames[site][[*study.columns.covariates, *data.incomplete, "w", "y"]]
        pd.testing.assert_frame_equal(frame, written, check_like=True)
    schema = agree({site: describe(frame, study.columns) for site, frame in frames.items()}, study.columns)
    assert (study.name, study.seed, study.method.name) == (name, 5, METHODS[name.partition("-")[0]])
    assert study.columns.incomplete == data.incomplete
    # A flag that nobody carries, or everybody, is no covariate of a study.
    complete = pd.concat(data.frames.values()).drop(columns=list(data.incomplete))
    assert list(schema.features) == varying(complete)
    pd.testing.assert_frame_equal(pd.read_csv(tmp_path / "new/out/truth.csv"), data.truth, check_dtype=False)
    assert len(pd.read_csv(tmp_path / "new/out/test/site3.csv")) == 10


def test_the_study_file_names_the_method_that_the_simulation_names(tmp_path: Path) -> None:
    other = replace(small(), method="another")
    assert '[method]\nname = "another"\n' in write(other, tmp_path / "out").read_text()


def test_the_study_file_names_no_absolute_path(tmp_path: Path) -> None:
    assert str(tmp_path) not in write(small(), tmp_path / "out").read_text()


def test_a_folder_that_is_not_empty_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("keep")
    with pytest.raises(ResultsError, match="already there"):
        write(small(), tmp_path)
    with pytest.raises(ResultsError, match="already there"):
        write(small(), tmp_path / "mine.txt")
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_a_folder_that_cannot_be_made_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ResultsError):
        write(small(), tmp_path / "file" / "out")
