"""The report of a study by each method, as a browser shows it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from playwright.sync_api import Page
from tests.browser import checks
from tests.browser.chromium import Seen

from unpooled import AIPW, CausalFI, CausalRFF, FedCI, Study, policy
from unpooled.estimators.base import Estimator
from unpooled.report import write_results
from unpooled.report.folder import finite, read_result, write_policy, write_report
from unpooled.report.policy import policy_content

pytestmark = pytest.mark.slow

METHODS: dict[str, Callable[[], Estimator]] = {
    "fedci": lambda: FedCI(structure="projection", draws=20, evaluations=5),
    "causal_rff": lambda: CausalRFF(confounding="observed", frequencies=2, draws=20),
    "causal_fi": lambda: CausalFI(structure="linear", draws=20, sweeps=4, most_sweeps=4),
}
LONG = ("causal_rff", "causal_fi")


def tables(gaps: bool) -> dict[str, pd.DataFrame]:
    """Three sites of sixty people, their body mass index sometimes missing."""
    rng, made = np.random.default_rng(3), {}
    for site in ("north", "south", "west"):
        a, b, noise = rng.normal(size=(3, 60))
        w = (rng.random(60) < 1.0 / (1.0 + np.exp(-a))).astype(int)
        y = a + 0.5 * b + w * (1.0 + 0.3 * b) + noise
        frame = pd.DataFrame({"age": 60.0 + 9.0 * a, "bmi": 26.0 + 4.0 * b, "w": w, "y": y})
        frame.loc[gaps & (rng.random(60) < 0.3), "bmi"] = np.nan
        made[site] = frame
    return made


@pytest.fixture(
    scope="module",
    params=[pytest.param(name, marks=[pytest.mark.thorough] * (name in LONG)) for name in METHODS],
)
def report(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page in a results folder; whom to treat is part of it if there are no gaps."""
    gaps = request.param == "causal_fi"
    columns = {"covariates": ["age"], "incomplete": ["bmi"]} if gaps else {"covariates": ["age", "bmi"]}
    groups = {"age": [0, 60], "older": "age >= 65"}
    study = Study(
        treatment="w", outcome="y", **columns, units={"y": "mmHg"}, subgroups=groups, diagnostics=True
    )
    model = METHODS[request.param]().fit(study, tables(gaps))
    folder = write_results(model, tmp_path_factory.mktemp(request.param) / "results")
    if not gaps:
        found = policy(AIPW(draws=20), study, tables(gaps))
        write_policy(finite(policy_content(found)), folder)
        write_report(model, read_result(folder), folder)
    return folder / "report.html"


def known(report: Path) -> dict[str, Any]:
    return json.loads(report.with_suffix(".json").read_text(encoding="utf-8"))


def test_it_asks_for_nothing_and_nothing_goes_wrong(report: Path, page: Page, seen: Seen) -> None:
    page.goto(report.as_uri(), wait_until="networkidle")
    assert seen == Seen(requests=[page.url])


def test_images_headings_and_links_are_sound(report: Path, page: Page) -> None:
    page.goto(report.as_uri())
    assert checks.images(page) + checks.headings(page) + checks.links(page) == []
    assert page.locator("img").count() >= 8
    assert page.locator("nav a").count() >= 8


def test_every_number_is_that_of_the_json(report: Path, page: Page) -> None:
    page.goto(report.as_uri())
    assert checks.numbers(page, known(report)) == []
    paths = [path for path, _, _ in page.evaluate(checks.NUMBERS)]
    assert {
        "answer/estimate",
        "subgroups/2/upper",
        "average_effects/0/effects/2/lower",
        "sites/2/ate",
        "diagnostics/comparators/0/lower",
        "cost/rounds",
    } <= set(paths)
    whom = {"policy/fifths/4/share", "policy/policies/1/over_nobody/lower", "policy/last_minus_first/upper"}
    assert (whom <= set(paths)) == ("causal_fi" not in str(report))


def test_it_fits_a_desk_and_a_phone(report: Path, page: Page) -> None:
    page.goto(report.as_uri())
    assert checks.widths(page) == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_can_be_read_by_day_and_by_night(report: Path, page: Page, scheme: str) -> None:
    page.goto(report.as_uri())
    assert checks.colours(page, scheme) == []


def test_it_can_be_read_without_a_mouse(report: Path, page: Page) -> None:
    page.goto(report.as_uri())
    assert checks.keyboard(page) == []
    assert page.locator("summary").count() >= 3


# ------------------------------------------------------- each of these checks can fail

BROKEN: dict[str, tuple[str, str, Callable[[Page, dict[str, Any]], list[str]], str]] = {
    "text of an image": (r'alt="[^"]+"', 'alt=""', lambda page, _: checks.images(page), "has no text"),
    "image": ("base64,.{9}", "base64,", lambda page, _: checks.images(page), "is not drawn"),
    "title": ("<h2>The study</h2>", "<h1>The study</h1>", lambda page, _: checks.headings(page), "2 titles"),
    "heading": ("<h3>How to cite</h3>", "<h4>Cite</h4>", lambda page, _: checks.headings(page), "h2 to h4"),
    "link": ('id="limits"', 'id="ends"', lambda page, _: checks.links(page), "nowhere: #limits"),
    "place": ('path="answer/people"', 'path="people"', checks.numbers, "people is not in"),
    "value": ('(path="answer/estimate" value=")[^"]+', r"\g<1>9.5", checks.numbers, "not 9.5"),
    "digits": ('(path="answer/estimate" [^>]+)>[^<]+', r"\1>9.50", checks.numbers, "not 9.50"),
    "no digits": ('(path="answer/estimate" [^>]+)>[^<]+', r"\1>much", checks.numbers, "not much"),
    "phone": ("<p>", "<p style='width: 30rem'>", lambda page, _: checks.widths(page), "on a screen of 390"),
    "contrast": ("--soft: #b4b4b4", "--soft: #555", lambda page, _: checks.colours(page, "dark"), "A study"),
    "dark": ("--paper: #16181b", "--paper: #fff", lambda page, _: checks.colours(page, "dark"), "not dark"),
    "skipping": ('class="skip" href', 'class="skip" name', lambda page, _: checks.keyboard(page), "first"),
    "opening": ("<summary>", "<summary tabindex=-1>", lambda page, _: checks.keyboard(page), "out of reach"),
}


@pytest.mark.parametrize("what", BROKEN)
def test_what_is_broken_is_found(report: Path, tmp_path: Path, page: Page, what: str) -> None:
    old, new, check, told = BROKEN[what]
    text, count = re.subn(old, new, report.read_text(encoding="utf-8"), count=1)
    assert count == 1
    (tmp_path / "broken.html").write_text(text, encoding="utf-8")
    page.goto((tmp_path / "broken.html").as_uri())
    assert told in " ".join(check(page, known(report)))


@pytest.mark.parametrize("part", ["<script>alert(1)</script>", "<img alt=x src='http://127.0.0.1:9/x.png'>"])
def test_what_does_not_belong_there_is_stopped(
    report: Path, tmp_path: Path, page: Page, seen: Seen, part: str
) -> None:
    """Should a script or an address ever get into the page, the page itself forbids it."""
    text = report.read_text(encoding="utf-8").replace("<main>", f"<main>{part}", 1)
    (tmp_path / "broken.html").write_text(text, encoding="utf-8")
    page.goto((tmp_path / "broken.html").as_uri())
    assert "Content Security Policy" in " ".join(seen.console)
