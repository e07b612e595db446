"""Write report.html, report.json with every number in it, and study.toml to a results folder."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar, cast

import numpy as np
import pandas as pd
import tomlkit

from unpooled.disclosure.private_files import replace_file, restrict
from unpooled.errors import ResultsError
from unpooled.estimators import Estimator
from unpooled.report.content import report_content
from unpooled.report.json_types import PolicyContent, RefutationContent, ResultContent
from unpooled.report.page import page
from unpooled.report.profiles import profiles
from unpooled.report.report_figures import draw_report_figures
from unpooled.study import Source, Study

T = TypeVar("T")
PAGE, NUMBERS, EFFECTS = "report.html", "report.json", "effects.csv"
REFUTATION, POLICY = "refutation.json", "policy.json"


def write_profiles(model: Estimator, folder: Path) -> None:
    """Write the effects along single covariates, which need the model's tables."""
    found = profiles(model)
    if found is not None:
        found.to_csv(folder / EFFECTS, index=False)


def write_report(model: Estimator, result: ResultContent, folder: Path) -> Path:
    """Write the report of a results folder; the same results always give the same files."""
    content = finite(report_content(model, result, _profiles(folder / EFFECTS), *_added(folder)))
    figures = draw_report_figures(model, content, folder / "figures")
    write_json(content, folder / NUMBERS)
    replace_file(folder / PAGE, page(content, figures).encode())
    restrict(folder)
    return folder / PAGE


def report_alone(model: Estimator, result: ResultContent, policy: PolicyContent | None) -> str:
    """The report of a model without a results folder, as HTML."""
    content = finite(report_content(model, result, profiles(model), None, policy))
    return page(content, draw_report_figures(model, content, None))


def read_result(folder: Path) -> ResultContent:
    """The content of result.json of a finished study."""
    try:
        return json.loads((folder / "result.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        raise ResultsError(
            "a report needs the results folder of a finished study",
            found=f"no readable result.json in {folder}",
            remedy="give the folder written by `unpooled run --output`, or finish the study with --resume",
        ) from None


def write_policy(content: PolicyContent, folder: Path) -> None:
    """Write policy.json, which a report of the folder then includes."""
    write_json({key: part for key, part in content.items() if key != "folder"}, folder / POLICY)


def write_json(content: Mapping[str, object], path: Path) -> None:
    replace_file(path, (json.dumps(content, indent=2, allow_nan=False) + "\n").encode())


def _profiles(path: Path) -> pd.DataFrame | None:
    """Read names as text: a covariate or a site may be called 'NA' or '1'."""
    if not path.exists():
        return None
    return pd.read_csv(
        path,
        dtype={"covariate": str, "site": str},
        keep_default_na=False,
        na_values={name: [""] for name in ("value", "effect", "lower", "upper")},
    )


def _added(folder: Path) -> tuple[RefutationContent | None, PolicyContent | None]:
    """What `refute` and `policy` have added to the results."""
    refutation, policy = (
        json.loads((folder / name).read_text(encoding="utf-8")) if (folder / name).exists() else None
        for name in (REFUTATION, POLICY)
    )
    return refutation, policy


def finite(value: T) -> T:
    """Convert to JSON-compatible values: arrays become lists, and non-finite numbers become null."""
    return cast(T, _finite(value))


def _finite(value: object) -> object:
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, dict):
        return {str(key): _finite(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(part) for part in value]
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value


def study_file(study: Study, folder: Path) -> str:
    """The study as TOML with paths relative to `folder`, as `unpooled run` reads it."""
    content = study.model_dump(mode="json", exclude_none=True)
    sites = {name: _source(source, folder) for name, source in study.sites.items()}
    sections = {
        "study": {
            key: content[key] for key in ("name", "seed", "min_sites", "diagnostics") if key in content
        },
        "columns": {key: value for key, value in content["columns"].items() if value not in ([], {})},
        "subgroups": content["subgroups"],
        "method": content["method"],
        "sites": sites,
    }
    return tomlkit.dumps({name: section for name, section in sections.items() if section})


def _source(source: Source, folder: Path) -> dict[str, object]:
    values = source.model_dump(mode="json", exclude_none=True)
    if "path" in values:
        values["path"] = _relative(values["path"], folder)
    if "url" in values:
        values["url"] = without_password(values["url"])
    return values


def _relative(path: str, folder: Path) -> str:
    try:
        return Path(os.path.relpath(path, folder.absolute())).as_posix()
    except ValueError:  # on another drive
        return path


def without_password(url: str) -> str:
    """The URL without its password; empty if the URL cannot be parsed."""
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
