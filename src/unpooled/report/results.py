"""The results folder: every number as JSON, tables as CSV, figures with their data."""

from __future__ import annotations

import json
import platform
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import cast

import pandas as pd

from unpooled.coordinator import lock
from unpooled.coordinator.checkpoint import writing
from unpooled.coordinator.journal import line, read_lines
from unpooled.coordinator.lock import alone
from unpooled.coordinator.result import StudyResult
from unpooled.diagnostics.borrowed_strength import study_bounds
from unpooled.diagnostics.study_diagnostics import hidden_sites
from unpooled.disclosure.by_site import withhold
from unpooled.disclosure.private_files import make_own_folder, replace_file, restrict
from unpooled.disclosure.reveals import Cost, Line, cost, left
from unpooled.errors import ResultsError
from unpooled.estimators import Estimator
from unpooled.estimators.policy.policy import Policy
from unpooled.methods import method as methods
from unpooled.methods.diagnostics import rounds as diagnostic_rounds
from unpooled.report.content import records
from unpooled.report.folder import finite, report_alone, study_file, write_json, write_profiles, write_report
from unpooled.report.groups import group_effects, hidden_groups, subgroup_effects, subgroup_tests
from unpooled.report.json_types import CostContent, MinimaxBound, ResultContent, SiteEffect
from unpooled.report.policy import policy_content
from unpooled.study import ALL_SITES

CHECKPOINT, JOURNAL, RESULT = "checkpoint.msgpack", "journal.jsonl", "result.json"
ALPHA = 0.05
PACKAGES = ("unpooled", "jax", "jaxlib", "numpy", "scipy", "pandas", "equinox")


def claim(folder: Path | str, *, resume: bool = False) -> Path:
    """Prepare a results folder: it must be new or empty or, with `resume`, hold an unfinished study."""
    folder = Path(folder)
    with writing(folder):
        if folder.exists() and not folder.is_dir():
            raise _in_the_way("a file of that name", "choose another name")
        if resume:
            _require_begun(folder)
        elif _has_files(folder):
            raise _in_the_way(f"files in {folder}", "choose another folder, or continue with --resume")
        make_own_folder(folder)
    return folder


@contextmanager
def claimed(folder: Path | str, *, resume: bool = False) -> Iterator[Path]:
    """Claim a folder for one run; if the work fails and leaves it empty, remove what was created here."""
    folder = Path(folder)
    with writing(folder):
        made = [one for one in (folder, *folder.parents) if not one.exists()]
    try:
        claim(folder, resume=resume)
        with alone(folder):
            yield claim(folder, resume=resume)  # again: another run may have used it in between
            with writing(folder):
                restrict(folder)
    except BaseException:
        for one in made:
            with suppress(OSError):  # not empty: the study can be resumed
                one.rmdir()
        raise


def _has_files(folder: Path) -> bool:
    return folder.is_dir() and any(one.name != lock.NAME for one in folder.iterdir())


def _require_begun(folder: Path) -> None:
    if (folder / CHECKPOINT).exists():
        return
    held = "files, but no checkpoint of a study" if _has_files(folder) else "nothing to resume"
    raise ResultsError(
        "--resume needs the folder of a study that has started",
        found=f"{held}: {folder}",
        remedy="correct the folder, or omit --resume to start again",
    )


def _in_the_way(found: str, remedy: str) -> ResultsError:
    return ResultsError("a results folder must be new or empty", found=found, remedy=remedy)


def write_results(model: Estimator, folder: Path | str) -> Path:
    """Write all results of a fitted model to `folder`.

    The folder must be new or empty, or the one to which the fit wrote its journal. `result.json` is written
    last, so a folder that contains it is complete.
    """
    folder = Path(folder)
    if not (folder / JOURNAL).exists():
        claim(folder)
    with writing(folder):
        _write(model, folder)
    return folder


def _write(model: Estimator, folder: Path) -> None:
    lines, hidden = _lines(model, folder), hidden_sites(model.result_)
    model.summary(alpha=ALPHA).drop(index=list(hidden), errors="ignore").to_csv(folder / "summary.csv")
    _draws(model).drop(columns=list(hidden), errors="ignore").to_csv(folder / "draws.csv", index_label="draw")
    (folder / "study.toml").write_text(study_file(model.result_.study, folder), encoding="utf-8")
    shutil.rmtree(folder / "model", ignore_errors=True)
    model.save(folder / "model")
    write_profiles(model, folder)
    content = finite(result(model, lines))
    write_report(model, content, folder)
    write_json(content, folder / RESULT)


def result(model: Estimator, lines: list[Line] | None = None) -> ResultContent:
    """Every number of a study as JSON-compatible values; effects are in the outcome's unit."""
    outcome = model.result_
    study = outcome.study
    overall, hidden = model.summary(alpha=ALPHA).loc[ALL_SITES], hidden_sites(model.result_)
    diagnostics = withhold(outcome.fit_diagnostics, outcome.sites, hidden)
    bounds = study_bounds(outcome.fit_diagnostics, outcome.context, outcome.counts)
    return {
        "study": study.name,
        "ate": model.ate(),
        "ate_interval": list(model.ate_interval(alpha=ALPHA)),
        "interval_probability": 1.0 - ALPHA,
        "target": study.target,
        "sd": float(overall["sd"]),
        "outcome": study.columns.outcome,
        "outcome_unit": study.columns.outcome_unit,
        "treatment": study.columns.treatment,
        "columns": {
            "covariates": list(study.columns.covariates),
            "incomplete": list(study.columns.incomplete),
            "family": outcome.family,
            "units": study.columns.units,
        },
        "outcome_words": outcome.outcome_words,
        "people": int(overall["n"]),
        "site_count": len(outcome.sites),
        "sites": _sites(model, hidden),
        "hidden": hidden,
        "average_effects": group_effects(model, ALPHA),
        "subgroups": subgroup_effects(model, ALPHA),
        "subgroup_tests": subgroup_tests(model),
        "hidden_groups": hidden_groups(outcome),
        "lost_sites": outcome.lost_sites,
        "notes": list(outcome.notes),
        "checks": records(model.checks()),
        "method": study.method.name,
        "settings": study.method.settings,
        "seed": study.seed,
        "study_hash": study.hash,
        "structure_weights": diagnostics.get("weights", {}),
        "diagnostics": diagnostics,
        "minimax_bounds": [] if bounds is None else cast(list[MinimaxBound], records(bounds)),
        "cost": _cost(outcome, lines),
        "versions": versions(),
    }


def write_report_alone(model: Estimator, path: Path, policy: Policy | None) -> Path:
    """Write the report of a model without a results folder, as one HTML file."""
    content = finite(result(model, _own_lines(model)))
    whom = None if policy is None else policy_content(policy)
    path.write_text(report_alone(model, content, whom), encoding="utf-8")
    return path


def _sites(model: Estimator, hidden: dict[str, str]) -> list[SiteEffect]:
    """The table by site, without the overall row."""
    frame = model.summary(alpha=ALPHA).drop(index=[ALL_SITES, *hidden], errors="ignore")
    return cast(list[SiteEffect], records(frame.reset_index()))


def _cost(outcome: StudyResult, lines: list[Line] | None) -> CostContent:
    if lines is None:
        return _cost_content(outcome.cost)
    method = methods.find(outcome.study.method.name)
    settings = methods.settings_of(method, outcome.study.method.settings)
    own = method.stages(settings, outcome.context)
    stages = diagnostic_rounds.of_study(outcome.study, own, outcome.scaling)
    return {**_cost_content(cost(lines, outcome.sites)), "left": left(lines, stages)}


def _cost_content(found: Cost) -> CostContent:
    return {
        "rounds": found.rounds,
        "rounds_without_bytes": found.rounds_without_bytes,
        "seconds": found.seconds,
        "bytes_down": found.bytes_down,
        "bytes_up": found.bytes_up,
    }


def _lines(model: Estimator, folder: Path) -> list[Line] | None:
    """The complete journal: the folder's own or, if it has none, the model's, which is then written there."""
    path = folder / JOURNAL
    if path.exists():
        return read_lines(path)
    lines = _own_lines(model)
    if lines is not None:
        replace_file(path, "".join(json.dumps(one) + "\n" for one in lines).encode())
    return lines


def _own_lines(model: Estimator) -> list[Line] | None:
    """The journal lines of the run that fitted the model; None if the model was loaded from disk."""
    return [line(happened) for happened in model.result_.rounds] or None


def _draws(model: Estimator) -> pd.DataFrame:
    columns = {site: model.ate_draws(site) for site in model.result_.sites_with_effects}
    return pd.DataFrame({**columns, "all sites": model.ate_draws()})


def versions() -> dict[str, str]:
    """The versions of Python and of the packages, for reproducing the study."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found
