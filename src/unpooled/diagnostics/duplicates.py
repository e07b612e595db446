"""How many people are at several sites, where all tables are in one process, and what ignoring it does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from unpooled.coordinator.duplicates import leave_out_copies
from unpooled.coordinator.rounds import run
from unpooled.data.person_keys import person_keys
from unpooled.protocol.engine import Engine
from unpooled.site.site import Site
from unpooled.study import Study


@dataclass(frozen=True)
class SiteKeys:
    """The rows of one site, by what their keys say."""

    rows: int
    people: int
    """People with a key."""
    elsewhere: int
    """People who are at another site too."""
    repeated: int
    without_key: int
    wrong_check: int


@dataclass(frozen=True)
class Duplicates:
    """People who are at several sites, or have several rows at one."""

    sites: dict[str, SiteKeys]
    share: float
    """Rows that are one person's second, third, … row, as a share of all rows."""
    too_narrow: float
    """How many times as large standard errors are as those that count every row as a person."""
    kept_at: int
    """At how many sites the study keeps a person; 0 if it ignores duplicates."""

    @property
    def words(self) -> str:
        """What is found, and what it does to the interval, in two sentences."""
        found = f"{self.share:.1%} of all rows are further rows of people who are counted already."
        if not self.share:
            return "No person is at several sites, by the id."
        if self.kept_at:
            return f"{found} They are left out in the first rounds of the study."
        return (
            f"{found} Counted as separate people, they would make standard errors too small by a factor of "
            f"up to {self.too_narrow:.2f}, and give these people more weight."
        )


def leave_out_here(study: Study, engine: Engine) -> None:
    """Leave out people at several sites, if the study does, at sites whose tables are all in this process.

    There is nobody from whom their keys would have to be hidden, so that keyed hashes are enough.
    """
    if study.duplicates != "ignore":
        privacy = study.privacy.model_copy(update={"duplicates": "keyed hash"})
        run(leave_out_copies(study.model_copy(update={"privacy": privacy})), engine)


def duplicates_of(sites: Mapping[str, Site]) -> Duplicates | None:
    """Compare the keys of all tables, which must be in this process; None without an `id`."""
    first = next(iter(sites.values()))
    if not first.columns.identity:
        return None
    found = {name: person_keys(_table(site), site.columns, site=name) for name, site in sites.items()}
    every, inverse = np.unique(
        np.concatenate([np.array(one.keys, dtype=object) for one in found.values()]), return_inverse=True
    )
    at = np.bincount(inverse, minlength=len(every))
    counts, start = np.zeros(len(every), dtype=int), 0
    described: dict[str, SiteKeys] = {}
    for name, one in found.items():
        own = inverse[start : start + len(one.keys)]
        start += len(one.keys)
        np.add.at(counts, own[one.person[one.person >= 0]], 1)
        described[name] = SiteKeys(
            rows=len(one.person),
            people=len(one.keys),
            elsewhere=int(np.sum(at[own] > 1)),
            repeated=one.repeated,
            without_key=one.without_key,
            wrong_check=one.wrong_check,
        )
    rows = sum(one.rows for one in described.values())
    alone = np.ones(rows - int(counts.sum()), dtype=int)
    keeper = first.duplicates
    return Duplicates(
        described,
        float(np.sum(counts - 1) / rows),
        too_narrow(np.concatenate([counts, alone])),
        0 if keeper is None else keeper.study.privacy.max_copies,
    )


def too_narrow(rows_of: np.ndarray) -> float:
    """√(Σ c² / Σ c): how much larger errors are than of separate people, if person i has c_i equal rows.

    The mean of N = Σ c rows has the variance σ² Σ c² / N², and σ² / N if every row counts as a person. With a
    share d of rows that have one copy elsewhere this is √(1 + d). If the copies of a person differ, and their
    correlation is ρ, it is √(1 + ρ (Σ c² / Σ c - 1)): the factor is an upper bound.

    >>> round(too_narrow(np.array([1, 1, 1, 1, 1, 1, 1, 1, 2])), 3)
    1.095
    """
    return float(np.sqrt(np.sum(rows_of**2) / np.sum(rows_of)))


def _table(site: Site) -> pd.DataFrame:
    return site.frame if site.duplicates is None else site.duplicates.table
