"""Finished cells, one Parquet file per table: appended to, never overwritten."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

KEY = ("contender", "arrangement", "sites", "replicate")
_VERSIONS = ("unpooled", "jax", "numpy", "scikit-learn", "econml", "causalml", "stochtree")


class Store:
    """The cells of one table that are done."""

    def __init__(self, folder: Path, table: str) -> None:
        self.path = folder / f"{table}.parquet"
        self.cells = (
            pd.read_parquet(self.path) if self.path.exists() else pd.DataFrame(columns=[*KEY, "error"])
        )

    def has(self, **key: Any) -> bool:
        """Whether a cell is done; one that failed is tried again."""
        return bool((self._same(key) & pd.isna(self.cells["error"])).any())

    def add(self, row: dict[str, Any]) -> None:
        """On disk before the next cell begins; the file is replaced whole, so a kill leaves the old one."""
        new = pd.DataFrame([{"error": None, **row, **versions()}])
        kept = self.cells.loc[~self._same(row)]
        self.cells = pd.concat([kept, new], ignore_index=True) if len(kept) else new
        self.path.parent.mkdir(parents=True, exist_ok=True)
        beside = self.path.with_suffix(".new")
        self.cells.to_parquet(beside, index=False)
        beside.replace(self.path)

    def _same(self, key: dict[str, Any]) -> np.ndarray:
        return np.logical_and.reduce([np.asarray(self.cells[name] == key[name]) for name in KEY])


def versions() -> dict[str, str]:
    """What the numbers were made with."""
    return {f"version_{name}": found for name in _VERSIONS if (found := _version(name))}


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
