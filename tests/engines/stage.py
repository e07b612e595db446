"""Three organisations on this machine: their tables, and a rehearsal that several tests share."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pandas as pd

from oracle.world import frames
from unpooled.engines.nvflare.kits import Kits
from unpooled.engines.nvflare.rehearsal import Rehearsal, enter, rehearsal
from unpooled.methods.method import with_explicit_settings
from unpooled.site.approval import Approvals
from unpooled.site.folder import SiteFolder
from unpooled.site.identity import public_identity
from unpooled.study import Source, Study

SIZES = {"north": 130, "south": 150, "east": 140}
QUICK = {"name": "causal_rff", "draws": 20, "confounding": "observed", "frequencies": 3}


def tables() -> dict[str, pd.DataFrame]:
    """The world of the other tests, with more people: here a site's limits hold. Every row has a canary."""
    return {name: table.assign(patient=f"canary-{name}") for name, table in frames(SIZES).items()}


def study(name: str = "rehearsed", seed: int = 1, **more: Any) -> Study:
    method = more.pop("method", QUICK)
    return with_explicit_settings(
        Study(
            name=name,
            seed=seed,
            treatment="w",
            outcome="y",
            covariates=["a", "b", "c"],
            method=method,
            **more,
        )
    )


def written(folder: Path, made: Mapping[str, pd.DataFrame]) -> dict[str, Source]:
    sources = {}
    for name, table in made.items():
        table.to_parquet(folder / f"{name}.parquet")
        sources[name] = Source(path=str(folder / f"{name}.parquet"))
    return sources


@contextmanager
def on_stage(folder: Path, asked: Study) -> Iterator[Rehearsal]:
    with rehearsal(asked, written(folder, tables()), folder / "stage") as everybody:
        yield everybody


def approve(everybody: Rehearsal, asked: Study) -> None:
    approve_together(everybody.folders.values(), asked)


def kit_of(kits: Kits, name: str, folder: Path) -> Path:
    """The kit of a new site that was admitted; another one of this name is replaced."""
    return enter(kits, SiteFolder.create(folder, name, Source(path="none.csv"), rehearsal=True), replace=True)


def approve_together(folders: Iterable[Path], *studies: Study, approved: bool = True) -> None:
    """Decide at every site, with the identities of these sites as the ones that may take part."""
    owns = [SiteFolder.read(folder) for folder in folders]
    sites = {own.name: public_identity(own.identity) for own in owns}
    for own in owns:
        for one in studies:
            Approvals(own.approvals).decide(one, approved=approved, sites=sites)
