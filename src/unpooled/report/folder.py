"""The report of a results folder: report.html for people, report.json with every number in it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd

from unpooled.errors import ResultsError
from unpooled.estimators import Estimator
from unpooled.report.content import report_content
from unpooled.report.finite import finite
from unpooled.report.page import page
from unpooled.report.pictures import draw_pictures
from unpooled.report.profiles import profiles

PAGE, NUMBERS, EFFECTS, REFUTATION = "report.html", "report.json", "effects.csv", "refutation.json"


def write_profiles(model: Estimator, folder: Path) -> None:
    """Effects along single covariates, while the model still stands beside its tables."""
    found = profiles(model)
    if found is not None:
        found.to_csv(folder / EFFECTS, index=False)


def write_report(model: Estimator, result: dict[str, Any], folder: Path) -> Path:
    """From a model, the content of its result.json, and what the folder holds beside; the same every time."""
    content = finite(report_content(model, result, _profiles(folder / EFFECTS), _refutation(folder)))
    pictures = draw_pictures(model, content, folder / "figures")
    write_json(content, folder / NUMBERS)
    (folder / PAGE).write_text(page(content, pictures), encoding="utf-8")
    return folder / PAGE


def report_alone(model: Estimator, result: dict[str, Any]) -> str:
    """The page of a model that has no results folder."""
    content = finite(report_content(model, result, profiles(model), None))
    return page(content, draw_pictures(model, content, None))


def read_result(folder: Path) -> dict[str, Any]:
    """A finished study's result.json."""
    try:
        return json.loads((folder / "result.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        raise ResultsError(
            "a report is made from the results of a finished study",
            found=f"no readable result.json in {folder}",
            remedy="give the folder that `unpooled run --output` wrote, or finish it with --resume",
        ) from None


def write_json(content: dict[str, Any], path: Path) -> None:
    path.write_text(json.dumps(content, indent=2, allow_nan=False) + "\n", encoding="utf-8")


def _profiles(path: Path) -> pd.DataFrame | None:
    """As they were written: a covariate or a site may be called 'NA' or '1'."""
    if not path.exists():
        return None
    read: Any = {"dtype": {"covariate": str, "site": str}, "keep_default_na": False}
    read["na_values"] = {name: [""] for name in ("value", "effect", "lower", "upper")}
    return pd.read_csv(path, **read)


def _refutation(folder: Path) -> dict[str, Any] | None:
    path = folder / REFUTATION
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None
