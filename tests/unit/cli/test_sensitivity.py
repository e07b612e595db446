"""`unpooled sensitivity` as it is used; its sentence."""

from __future__ import annotations

import pandas as pd
import pytest
from typer.testing import CliRunner

from unpooled.cli.app import app
from unpooled.cli.sensitivity import sentence
from unpooled.data.simulation import simulate
from unpooled.estimators.sensitivity import Sensitivity, tipping

STUDY = """
[study]
seed = 1
[columns]
treatment = "w"
outcome = "y"
covariates = ["x1", "x2", "x3"]
incomplete = ["u1", "u2", "u3"]
[method]
name = "{method}"
{settings}
[sites.site1]
path = "site1.csv"
[sites.site2]
path = "site2.csv"
[sites.site3]
path = "site3.csv"
"""


def write(folder, method: str, settings: str = "") -> str:
    made = simulate("causalfi", sites=3, rows=90, seed=3, incomplete=3, coefficient_sd=0.5).frames
    for site, frame in made.items():
        frame[["x1", "x2", "x3", "u1", "u2", "u3", "w", "y"]].to_csv(folder / f"{site}.csv", index=False)
    path = folder / "study.toml"
    path.write_text(STUDY.format(method=method, settings=settings))
    return str(path)


@pytest.mark.slow
@pytest.mark.thorough
def test_the_curve_is_told_written_and_drawn(tmp_path) -> None:
    study = write(tmp_path, "causal_fi", 'structure = "linear"\ndraws = 40\nsweeps = 10\nmost_sweeps = 10')
    out = tmp_path / "out"
    words = ["sensitivity", study, "--column", "u1", "--size", "1.5", "--output", str(out)]
    told = CliRunner().invoke(app, words)
    assert told.exit_code == 0, told.output
    assert "interval of the average effect" in told.output
    assert pd.read_csv(out / "sensitivity.csv")["size"].tolist() == [0.0, 1.5]
    assert (out / "sensitivity.png").stat().st_size > 10_000
    again = CliRunner().invoke(app, words)
    assert again.exit_code != 0  # results are never written over


@pytest.mark.parametrize(
    ("words", "told"), [(["--column", "v1"], "u1"), (["--column", "u1", "--arm", "treat"], "treated")]
)
def test_what_is_not_there_is_refused_before_anything_is_fitted(tmp_path, words, told) -> None:
    study = write(tmp_path, "causal_fi")
    answer = CliRunner().invoke(app, ["sensitivity", study, *words, "--output", str(tmp_path / "out")])
    assert answer.exit_code != 0
    assert told in answer.output
    assert not (tmp_path / "out").exists()


def test_another_method_is_refused(tmp_path) -> None:
    study = write(tmp_path, "fedci")
    words = ["sensitivity", study, "--column", "u1", "--output", str(tmp_path / "out")]
    told = CliRunner().invoke(app, words)
    assert told.exit_code != 0
    assert "causal_fi" in told.output
    assert not (tmp_path / "out").exists()


def test_where_the_conclusion_changes() -> None:
    curve = pd.DataFrame(
        {
            "size": [-1.0, 0.0, 1.0],
            "ate": [0.2, 0.5, 0.8],
            "lower": [-0.2, 0.1, 0.4],
            "upper": [0.6, 0.9, 1.2],
        }
    )
    assert tipping(curve, -1) == pytest.approx(-1.0 / 3.0)
    assert tipping(curve, 1) is None
    found = Sensitivity("u1", curve, {"below": tipping(curve, -1), "above": None})
    assert "excludes 0 until missing values of 'u1' are shifted by -0.33" in sentence(found)
    nowhere = Sensitivity("u1", curve.tail(2), {"below": None, "above": None})
    assert "for all shifts" in sentence(nowhere)
