"""A failed check of a fit reaches everybody who reads its numbers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import unpooled as up
from oracle.records import model
from unpooled.cli.print_result import print_result
from unpooled.data.simulation import simulate
from unpooled.errors import FailedCheckWarning
from unpooled.methods.aipw import method as aipw
from unpooled.protocol.records import Check
from unpooled.report.results import write_results

SHORT = Check.at_most("convergence", 1.4, 1.03, "Largest R-hat. Run longer chains.")
LONG = Check.at_least("draws", 300.0, 200.0, "Effective draws.")


@pytest.fixture
def doubtful():
    effects = np.random.default_rng(0).normal(size=(50, 2))
    study = up.Study(treatment="w", outcome="y", covariates=["a"], method={"name": "causal_rff"})
    return model(study, effects, fit_checks=(SHORT, LONG))


def test_the_summary_counts_them_and_checks_names_them(doubtful):
    assert doubtful.summary()["failed_checks"].tolist() == [1, 1, 1]
    assert doubtful.checks()["name"].tolist() == ["convergence", "draws"]
    assert doubtful.checks()["passed"].tolist() == [False, True]


def test_they_survive_saving(doubtful, tmp_path):
    doubtful.save(tmp_path / "model")
    assert up.load(tmp_path / "model").checks().equals(doubtful.checks())


def test_the_terminal_and_the_report_say_so_before_the_number(doubtful, tmp_path: Path, capsys):
    folder = write_results(doubtful, tmp_path / "results")
    print_result(folder)
    first = capsys.readouterr().out.splitlines()[0]
    assert first == "1 of 2 checks failed: convergence."
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert page.index("1 of 2 checks failed: convergence.") < page.index('class="lead"')
    assert SHORT.words in page


def test_a_fit_warns(monkeypatch):
    honest = aipw.METHOD.fit

    def doubtful(*arguments):
        found = yield from honest(*arguments)
        return type(found)(found.draws, found.outcomes, found.diagnostics, (SHORT,))

    monkeypatch.setattr(aipw.METHOD, "fit", doubtful)
    data = simulate("fedci-data1", sites=2, rows=40, seed=0)
    study = up.Study(treatment="w", outcome="y", covariates=["x1", "x2"])
    with pytest.warns(FailedCheckWarning, match="convergence"):
        up.AIPW(draws=20).fit(study, data.frames)
