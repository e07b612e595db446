"""The report of a results folder: report.html for people, report.json with every number in it."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import tomlkit

from unpooled.errors import ResultsError
from unpooled.estimators import Estimator
from unpooled.report.content import report_content
from unpooled.report.page import page
from unpooled.report.pictures import draw_pictures
from unpooled.report.profiles import profiles
from unpooled.study import Source, Study

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


def finite(value: Any) -> Any:
    """JSON has no word for infinite or undefined numbers: they become null; nor for arrays: lists."""
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, dict):
        return {str(key): finite(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [finite(part) for part in value]
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value


def study_file(study: Study, folder: Path) -> str:
    """The study as TOML, to be written into `folder`; `unpooled run` reads it from there."""
    content = study.model_dump(mode="json", exclude_none=True)
    sites = {name: _source(source, folder) for name, source in study.sites.items()}
    sections = {
        "study": {
            key: content[key] for key in ("name", "seed", "min_sites", "diagnostics") if key in content
        },
        "columns": {key: value for key, value in content["columns"].items() if value not in ([], {})},
        "method": content["method"],
        "sites": sites,
    }
    return tomlkit.dumps({name: section for name, section in sections.items() if section})


def _source(source: Source, folder: Path) -> dict[str, Any]:
    values = source.model_dump(mode="json", exclude_none=True)
    if "path" in values:
        values["path"] = _relative(values["path"], folder)
    if "url" in values:
        values["url"] = without_password(values["url"])
    return values


def _relative(path: str, folder: Path) -> str:
    try:
        return Path(os.path.relpath(path, folder.absolute())).as_posix()
    except ValueError:  # another drive
        return path


def without_password(url: str) -> str:
    """The URL with its password left out; one that cannot be parsed is left out altogether."""
    from sqlalchemy import URL, make_url
    from sqlalchemy.exc import ArgumentError

    try:
        address = make_url(url)
    except (ArgumentError, ValueError):
        return ""
    query = {key: value for key, value in address.query.items() if "password" not in key.lower()}
    plain = URL.create(
        address.drivername, address.username, None, address.host, address.port, address.database, query
    )
    return plain.render_as_string(hide_password=False)
