"""The study beside its results: every setting spelled out, no password, paths that still lead to tables."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import tomlkit

from unpooled.study import Source, Study


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
