"""The report of a hundred sites: soon there, not too large, and still to be read."""

from __future__ import annotations

import re
import time
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from unpooled import AIPW, Study
from unpooled.report.folder import finite, write_report
from unpooled.report.report_figures import MOST
from unpooled.report.results import _own_lines, result

pytestmark = pytest.mark.slow

SITES, PEOPLE = 100, 30
SECONDS, BYTES = 5.0, 3_000_000


def table(seed: int) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    a, b, noise = rng.normal(size=(3, PEOPLE))
    w = (rng.random(PEOPLE) < 1.0 / (1.0 + np.exp(-0.5 * a))).astype(int)
    return pd.DataFrame({"age": 60.0 + 9.0 * a, "bmi": 26.0 + 4.0 * b, "w": w, "y": a + b + w + noise})


@pytest.fixture(scope="module")
def model() -> AIPW:
    study = Study(treatment="w", outcome="y", covariates=["age", "bmi"], diagnostics=True)
    return AIPW(draws=100).fit(study, {f"hospital {place}": table(place) for place in range(1, SITES + 1)})


def alone(model: AIPW) -> dict[str, Any]:
    """The content of result.json, of a model that has no results folder."""
    return finite(result(model, _own_lines(model)))


@pytest.fixture(scope="module")
def folder(model: AIPW, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("many")
    content = alone(model)

    def quick() -> bool:
        began = time.process_time()
        write_report(model, content, folder)
        return (time.process_time() - began) / slowness() < SECONDS

    # One of a few is enough, on a machine that is as slow as it is: its other work is not what is measured.
    assert any(quick() for _ in range(3))
    return folder


def slowness() -> float:
    """How many times slower than ten million steps in 0.7 seconds; never faster."""
    began = time.process_time()
    sum(number * number for number in range(10**7))
    return max(1.0, (time.process_time() - began) / 0.7)


def test_it_is_soon_there_and_not_too_large(folder: Path) -> None:
    assert (folder / "report.html").stat().st_size < BYTES
    assert all(path.stat().st_size < BYTES / 6 for path in (folder / "figures").iterdir())


def test_every_site_has_its_row_and_figures_show_those_that_matter_most(model: AIPW, folder: Path) -> None:
    page = unescape((folder / "report.html").read_text(encoding="utf-8"))
    shown = [row["site"] for row in alone(model)["sites"]]
    assert len(shown) > 0.8 * SITES
    assert all(f'<th scope="row">{site}</th>' in page for site in shown)
    assert f"for the {MOST} sites that change it most" in page
    assert f"for the {MOST} sites that sent most" in page
    alternatives = re.findall(r'alt="([^"]*)"', page)
    assert max(map(len, alternatives)) < 500


def test_figures_keep_the_data_of_all_of_them(model: AIPW, folder: Path) -> None:
    hidden = alone(model)["hidden"]
    for name in ("forest", "leave_one_out", "bytes"):
        rows = pd.read_csv(folder / "figures" / f"{name}.csv")["site"]
        assert len(set(rows) - {"all sites"}) == (SITES if name == "bytes" else SITES - len(hidden))
