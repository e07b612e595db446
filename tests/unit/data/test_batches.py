"""Large Parquet files, read in batches."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from unpooled.data import batches as module
from unpooled.data import check, check_together, describe, described_together, frames, read_or_batches, whole
from unpooled.data.batches import Batches
from unpooled.errors import DataError
from unpooled.study import ColumnRoles

COLUMNS = ColumnRoles(treatment="w", outcome="y", covariates=("a", "place"))


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LARGE", 50)
    monkeypatch.setattr(module, "BATCH", 40)
    monkeypatch.setattr(module, "PAGES", 16)


def table(rows: int = 103) -> pd.DataFrame:
    rng = np.random.default_rng(3)
    return pd.DataFrame(
        {
            "other": rng.random(rows),
            "place": np.where(np.arange(rows) < rows - 9, "north", "south"),
            "w": np.arange(rows) % 2,
            "y": np.where(np.arange(rows) < 60, 1.0, 2.5),
            "a": (np.arange(rows) > 90).astype(float),
        }
    )


def stored(folder: Path, frame: pd.DataFrame, group: int = 30) -> Batches:
    path = folder / "table.parquet"
    frame.to_parquet(path, row_group_size=group)
    found = read_or_batches(path, COLUMNS, site="s")
    assert isinstance(found, Batches)
    return found


@pytest.mark.parametrize("group", [7, 30, 1000])
def test_batches_hold_all_rows_in_order_and_none_is_small(tmp_path: Path, group: int) -> None:
    found = stored(tmp_path, table(), group)
    parts = list(frames(found))
    assert [len(part) for part in parts] == found.sizes == [34, 34, 35]
    expected = table()[list(COLUMNS.names)]
    pd.testing.assert_frame_equal(pd.concat(parts, ignore_index=True), expected)
    pd.testing.assert_frame_equal(whole(found), expected)


def test_a_small_file_is_read_whole(tmp_path: Path) -> None:
    table(50).to_parquet(tmp_path / "t.parquet")
    assert isinstance(read_or_batches(tmp_path / "t.parquet", COLUMNS, site="s"), pd.DataFrame)


def test_rows_without_treatment_or_outcome_are_dropped_from_every_batch(tmp_path: Path) -> None:
    frame = table().assign(y=lambda t: t["y"].where(t.index % 5 > 0))
    columns = COLUMNS.model_copy(update={"drop_unknown": True})
    frame.to_parquet(tmp_path / "t.parquet")
    found = read_or_batches(tmp_path / "t.parquet", columns, site="s")
    kept = frame.dropna().reset_index(drop=True)
    pd.testing.assert_frame_equal(whole(found), kept[list(columns.names)])
    names = [part.columns.tolist() for part in frames(found, ["place"])]
    assert names == [["place"]] * 3 and sum(map(len, frames(found, ["place"]))) == len(kept)


def test_batches_are_described_as_the_whole_table(tmp_path: Path) -> None:
    parts = [describe(part, COLUMNS) for part in frames(stored(tmp_path, table()))]
    assert {part.outcome for part in parts} == {"binary", "continuous"}
    assert parts[0].columns[1].levels == ("north",)
    assert described_together(parts) == describe(table()[list(COLUMNS.names)], COLUMNS)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"w": np.arange(160) // 60}, "two levels"),
        ({"place": [f"p{row * 7 // 20}" for row in range(160)]}, "few levels"),
    ],
)
def test_levels_are_counted_over_all_batches(tmp_path: Path, change: dict, expected: str) -> None:
    parts = []
    for part in frames(stored(tmp_path, table(160).assign(**change))):
        check(part, COLUMNS, site="s")
        parts.append(describe(part, COLUMNS))
    with pytest.raises(DataError, match=expected):
        check_together(described_together(parts), COLUMNS, site="s")


def test_a_file_that_changes_is_refused(tmp_path: Path) -> None:
    found = stored(tmp_path, table())
    table(104).to_parquet(found.file)
    with pytest.raises(DataError, match="must not change"):
        list(frames(found))


def test_a_damaged_or_foreign_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "t.parquet").write_bytes(b"no parquet")
    with pytest.raises(DataError, match="must be Parquet"):
        read_or_batches(tmp_path / "t.parquet", COLUMNS, site="s")
    with pytest.raises(DataError, match="column 'a'"):
        stored(tmp_path, table().drop(columns="a"))


def test_a_table_beyond_the_memory_is_not_read_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = stored(tmp_path, table())
    monkeypatch.setattr(module, "memory_of_machine", lambda: 103 * 4 * module.BYTES)
    assert len(whole(found)) == 103
    monkeypatch.setattr(module, "memory_of_machine", lambda: 103 * 4 * module.BYTES - 1)
    with pytest.raises(DataError, match="must fit in memory"):
        whole(found)
