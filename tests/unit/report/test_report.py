"""The report without a browser: the same every time, complete, escaped, and silent about small sites."""

from __future__ import annotations

import json
import re
from base64 import b64decode
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from oracle import records
from unpooled import AIPW, Study
from unpooled.cli.app import app
from unpooled.disclosure.by_site import BySite, Trace, withhold
from unpooled.errors import ResultsError
from unpooled.report import write_results
from unpooled.report.folder import read_result, write_report
from unpooled.report.numbers import significant

STUDY = Study(treatment="w", outcome="y", covariates=["age", "bmi"], diagnostics=True)
HIDDEN = {"tiny": 3, "small": 22}
"""Nothing is shown of the first, which has too few people, nor of the second, which would give it away."""


def tables(counts: dict[str, int]) -> dict[str, pd.DataFrame]:
    """Both arms are everywhere, in sites of three people too."""
    rng, made = np.random.default_rng(5), {}
    for site, people in counts.items():
        a, b, noise = rng.normal(size=(3, people))
        w = (rng.random(people) < 1.0 / (1.0 + np.exp(-0.5 * a))).astype(int)
        w[:2] = (0, 1)
        made[site] = pd.DataFrame(
            {"age": 60.0 + 9.0 * a, "bmi": 26.0 + 4.0 * b, "w": w, "y": a + 0.5 * b + w + noise}
        )
    return made


@pytest.fixture(scope="module")
def fitted() -> AIPW:
    return AIPW(draws=50).fit(STUDY, tables({"large": 120, "other": 110, **HIDDEN}))


@pytest.fixture(scope="module")
def results(fitted: AIPW, place: Path) -> Path:
    return write_results(fitted, place / "fitted")


def page_of(model: Any, folder: Path) -> str:
    """What the page says, as its reader sees it."""
    return unescape((write_results(model, folder) / "report.html").read_text(encoding="utf-8"))


def files(folder: Path) -> dict[str, bytes]:
    found = [folder / "report.html", folder / "report.json", *(folder / "figures").iterdir()]
    return {path.name: path.read_bytes() for path in found}


# ---------------------------------------------------------------------- the same bytes


def test_the_same_results_give_the_same_bytes(model, tmp_path: Path) -> None:
    folder = write_results(model, tmp_path / "results")
    before = files(folder)
    write_report(model, read_result(folder), folder)
    assert files(folder) == before


@pytest.mark.slow
def test_the_command_writes_the_same_report_again(results: Path) -> None:
    before = files(results)
    (results / "report.html").unlink()
    told = CliRunner().invoke(app, ["report", str(results)])
    assert told.exit_code == 0, told.output
    assert str(results / "report.html") in told.output
    assert files(results) == before


@pytest.mark.slow
def test_a_covariate_may_have_a_name_that_looks_like_no_name(place: Path) -> None:
    made = {
        site: frame.rename(columns={"age": "NA", "bmi": "1"})
        for site, frame in tables({"1": 60, "2": 60}).items()
    }
    study = Study(treatment="w", outcome="y", covariates=["NA", "1"])
    folder = write_results(AIPW(draws=20).fit(study, made), place / "names")
    shown = json.loads((folder / "report.json").read_text())["effects"]
    assert {row["covariate"] for row in shown} == {"NA", "1"}
    assert {row["site"] for row in shown} == {"1"}


# ------------------------------------------------------------------- it keeps to itself


@pytest.mark.slow
def test_it_names_no_address(results: Path) -> None:
    page = (results / "report.html").read_text(encoding="utf-8")
    pictures = re.findall(r"base64,([A-Za-z0-9+/=]+)", page)
    assert len(pictures) >= 8
    assert "://" not in page.replace('content="default-src', "")
    for picture in pictures:
        svg = b64decode(picture).decode("utf-8")
        named = set(re.findall(r"https?://[^\"'> ]+", svg))
        assert named <= {
            "http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink", "http://purl.org/dc/elements/1.1/",
            "http://creativecommons.org/ns#", "http://www.w3.org/1999/02/22-rdf-syntax-ns#",
            "http://purl.org/dc/dcmitype/StillImage", "http://www.w3.org/Graphics/SVG/1.1/DTD/svg11.dtd",
        }  # fmt: skip


NAME = "<script>alert('1 & \"2\"')</script>"


def test_names_are_no_markup(model, tmp_path: Path) -> None:
    study = Study(
        name=NAME,
        treatment=f"w{NAME}",
        outcome=f"y{NAME}",
        covariates=[f"x{NAME}"],
        units={f"y{NAME}": NAME},
        method={"name": "fedci"},
    )
    effects, sites = model.result_.site_effects, (f"north{NAME}", "south")
    odd = records.model(study, effects, sites, lost_sites={f"west{NAME}": NAME})
    raw = (write_results(odd, tmp_path / "results") / "report.html").read_text(encoding="utf-8")
    assert "<script" not in raw
    assert all(f"{what}{NAME}" in unescape(raw) for what in ("w", "y", "x", "north", "west"))
    assert re.search(r'alt="[^"]*north&lt;script&gt;', raw)


# -------------------------------------------------------------------- what it must say


def test_a_study_without_diagnostics_says_so_and_what_to_do(model, tmp_path: Path) -> None:
    page = page_of(model, tmp_path / "results")
    assert "Balance and overlap are not available" in page
    assert "diagnostics = false" in page and "diagnostics=True" in page
    assert "PASS" not in page and "FAIL" not in page


def test_sites_without_an_answer_and_sites_not_shown_are_named(model, tmp_path: Path) -> None:
    effects = np.random.default_rng(1).normal(1.0, 0.1, (50, 3))
    sites, lost = ("north", "south", "tiny"), {"west": "no answer within 600 s"}
    one = records.model(model.result_.study, effects, sites, (60, 90, 3), lost_sites=lost)
    page = page_of(one, tmp_path / "results")
    assert "Sites lost during the study, whose data are in no result: west (no answer within 600 s)." in page
    assert "Not shown individually: tiny (fewer than 10 people), north (so that" in page


def test_a_study_of_small_sites_alone_has_a_report(model, tmp_path: Path) -> None:
    told = {"chosen": "observed", "observed": {"borrowed": BySite(np.eye(2), axes=2), "noise": 0.5}}
    context = records.causal_rff_context(2, rates=np.array([0.5, 0.5]), frequencies=np.zeros((0, 2)))
    one = records.model(
        model.result_.study,
        model.result_.site_effects,
        counts=(9, 60),
        fit_diagnostics=told,
        context=context,
    )
    folder = write_results(one, tmp_path / "results")
    shown = json.loads((folder / "report.json").read_text())
    assert shown["sites"] == [] and shown["borrowed"] is None
    assert list(shown["hidden"]) == ["north", "south"]
    assert read_result(folder)["diagnostics"]["observed"]["borrowed"] == [[None, None], [None, None]]


@pytest.mark.slow
def test_the_json_has_every_number_of_the_answer(results: Path) -> None:
    result, report = (json.loads((results / f"{name}.json").read_text()) for name in ("result", "report"))
    assert report["answer"] == {
        "estimate": result["ate"],
        "lower": result["ate_interval"][0],
        "upper": result["ate_interval"][1],
        "probability": result["interval_probability"],
        "sd": result["sd"],
        "people": result["people"],
        "sites": result["site_count"],
    }
    assert report["answer"]["sites"] == 4
    assert report["sites"] == result["sites"]
    assert [row["site"] for row in report["sites"]] == ["large", "other"]
    assert report["cost"]["bytes_up"] == result["cost"]["bytes_up"]


@pytest.mark.slow
def test_every_figure_lies_in_three_forms(results: Path) -> None:
    png, csv = ({path.stem for path in (results / "figures").glob(f"*.{end}")} for end in ("png", "csv"))
    assert png == csv >= {"posterior", "forest", "overlap", "love", "comparators", "leave_one_out", "bytes"}
    page = (results / "report.html").read_text(encoding="utf-8")
    assert page.count("<img ") == len(png)


@pytest.mark.slow
def test_a_model_without_a_folder_writes_its_page(fitted: AIPW, results: Path, tmp_path: Path) -> None:
    written = fitted.report(tmp_path / "x.html")
    assert written == tmp_path / "x.html"
    assert list(tmp_path.iterdir()) == [written]
    assert written.read_bytes() == (results / "report.html").read_bytes()


@pytest.mark.parametrize("content", [None, "", "{"])
def test_a_folder_without_results_is_refused_with_a_remedy(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "result.json").write_text(content)
    with pytest.raises(ResultsError, match=r"no readable result\.json") as raised:
        read_result(tmp_path)
    assert "unpooled run --output" in raised.value.remedy
    answer = CliRunner().invoke(app, ["report", str(tmp_path)])
    assert answer.exit_code == 7
    assert "try:" in answer.output and "Traceback" not in answer.output
    assert [path.name for path in tmp_path.iterdir()] == ["result.json"] * (content is not None)


@pytest.mark.parametrize(
    ("value", "digits", "text"),
    [
        (0.0, 3, "0"), (2, 3, "2.00"), (-0.5, 2, "-0.50"), (1234.5, 3, "1,234"), (0.00012345, 3, "0.000123"),
        (12.345, 2, "12"), (9_999_999.0, 3, "9,999,999"), (1e7, 3, "1.00e+07"), (-1.5e-9, 2, "-1.5e-09"),
    ],
)  # fmt: skip
def test_numbers_have_digits_that_mean_something(value: float, digits: int, text: str) -> None:
    assert significant(value, digits) == text


# ------------------------------------------------------------------------- small sites


def numbers(text: str) -> set[str]:
    """Every number, as its first eight digits."""
    found = re.findall(r"-?\d+\.\d+(?:e[-+]?\d+)?", text)
    return {f"{float(number):.8g}" for number in found}


@pytest.mark.slow
def test_nothing_is_told_of_small_sites_by_themselves(fitted: AIPW, results: Path) -> None:
    assert set(read_result(results)["hidden"]) == set(HIDDEN)
    of_them = fitted.summary().loc[list(HIDDEN), ["ate", "variance", "sd", "lower", "upper"]].to_numpy()
    places = [fitted.result_.sites.index(site) for site in HIDDEN]
    exact = fitted.result_.fit_diagnostics["sites"]
    secret = {
        f"{value:.8g}"
        for value in [
            *of_them.ravel(),
            *fitted.result_.site_effects[:, places].ravel(),
            *(exact[name].values[place] for name in ("estimate", "standard_error") for place in places),
        ]
    }
    told_in = [results / name for name in ("report.html", "report.json", "result.json", "summary.csv")]
    told_in += [results / "draws.csv", *(results / "figures").glob("*.csv")]
    for path in told_in:
        text = path.read_text(encoding="utf-8")
        assert not numbers(text) & secret, path.name
        if path.suffix == ".csv" and path.name != "bytes.csv":
            assert not re.search("tiny|small", text), path.name
    page = (results / "report.html").read_text(encoding="utf-8")
    assert not re.search(r'alt="[^"]*(tiny|small)', page)
    assert f"{fitted.ate('large'):.8g}" in numbers(page), "what is shown is found in this way"


def test_what_a_fit_tells_of_two_sites_is_withheld_if_one_is_hidden() -> None:
    pair = np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0], [7.0, 8.0, 9.0]])
    weights, history = BySite(np.array([0.2, 0.3, 0.5])), Trace((1.0, 2.0, 3.0))
    diagnostics = {"borrowed": BySite(pair, axes=2), "history": history, "fixed": {"weights": weights}}
    found = withhold(diagnostics, ("a", "b", "c"), {"b"})
    np.testing.assert_array_equal(np.isnan(found["borrowed"])[[0, 2]][:, [0, 2]], False)
    assert np.isnan(found["borrowed"]).sum() == 5
    np.testing.assert_array_equal(found["fixed"]["weights"], [0.2, np.nan, 0.5])
    assert found["history"] == [1.0, 2.0, 3.0]
    assert not np.isnan(pair).any(), "the model keeps its own"


def test_a_diagnostic_that_no_method_has_yet_is_withheld_of_hidden_sites(model, tmp_path: Path) -> None:
    """What is hidden follows from the type, not from a list of names; so for factors of pairs of sites."""
    sites, counts = ("north", "south", "tiny", "west"), (60, 90, 3, 70)
    factors = 1000.0 + 0.0625 * np.arange(48.0).reshape(4, 4, 3)
    unheard = 2000.0 + 0.0625 * np.arange(4.0)
    told = {
        "unheard": BySite(unheard),
        "weights": BySite(unheard + 100.0),
        "nested": {"deeper": {"transfer": BySite(factors, axes=2)}},
        "rounds": 7,
        "path": Trace((0.5, 0.25)),
    }
    effects = np.random.default_rng(1).normal(1.0, 0.1, (50, 4))
    one = records.model(model.result_.study, effects, sites, counts, fit_diagnostics=told)
    folder = write_results(one, tmp_path / "results")
    found = read_result(folder)
    assert set(found["hidden"]) == {"tiny", "north"}
    assert found["diagnostics"]["unheard"] == [None, unheard[1], None, unheard[3]]
    assert found["structure_weights"] == [None, unheard[1] + 100.0, None, unheard[3] + 100.0]
    pairs = found["diagnostics"]["nested"]["deeper"]["transfer"]
    for row, to in enumerate(sites):
        for column, of in enumerate(sites):
            hidden = {to, of} & {"tiny", "north"}
            assert pairs[row][column] == ([None] * 3 if hidden else factors[row, column].tolist())
    assert (found["diagnostics"]["rounds"], found["diagnostics"]["path"]) == (7, [0.5, 0.25])
    shown = np.zeros((4, 4), dtype=bool)
    shown[np.ix_([1, 3], [1, 3])] = True
    secret = {f"{value:.8g}" for value in (*factors[~shown].ravel(), *unheard[[0, 2]])}
    for name in ("result.json", "report.json", "report.html"):
        assert not numbers((folder / name).read_text(encoding="utf-8")) & secret, name
