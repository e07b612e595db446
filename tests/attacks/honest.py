"""An honest study over processes with site folders, which the attacks then tamper with."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgpack

from engines.stage import approve_together, study, tables, written
from unpooled.coordinator.checkpoint import StoredRound, read_rounds
from unpooled.engines.pipes import SiteProcesses
from unpooled.estimators import of_study
from unpooled.report.results import CHECKPOINT, JOURNAL, write_results
from unpooled.site.folder import SiteFolder
from unpooled.study import Study

STUDY = study("audited", method={"name": "aipw", "draws": 40, "folds": 1})


@dataclass(frozen=True)
class Honest:
    """A finished study: its results folder and the folders of its sites."""

    results: Path
    sites: dict[str, Path]

    def copy(self, to: Path) -> Honest:
        shutil.copytree(self.results, to / "results")
        for name, folder in self.sites.items():
            shutil.copytree(folder, to / name)
        return Honest(to / "results", {name: to / name for name in self.sites})


def site_folders(root: Path, *studies: Study) -> dict[str, Path]:
    folders = {}
    for name, source in written(root, tables()).items():
        folders[name] = SiteFolder.create(root / name, name, source).folder
    approve_together(folders.values(), *studies)
    return folders


def run(asked: Study, sites: object, results: Path, **more: Any) -> Path:
    """As `unpooled run` does."""
    files = {"checkpoint": results / CHECKPOINT, "journal": results / JOURNAL}
    model = of_study(asked).fit(asked, sites, **files, **more)  # type: ignore[arg-type]
    return write_results(model, results)


def honest(root: Path) -> Honest:
    folders = site_folders(root, STUDY)
    return Honest(run(STUDY, SiteProcesses(folders), root / "results"), folders)


def rewrite(path: Path, rounds: list[StoredRound]) -> None:
    """Write rounds with new checksums, as somebody does who knows the format."""
    previous, content = b"", b""
    for one in rounds:
        whole = one._replace(checksum=one.proper_checksum(previous))
        previous, content = whole.checksum, content + bytes(msgpack.packb(list(whole)) or b"")
    path.write_bytes(content)


def stored(found: Honest) -> list[StoredRound]:
    return read_rounds(found.results / CHECKPOINT)
