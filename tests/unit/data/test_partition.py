"""One table as several sites."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unpooled.data import split
from unpooled.errors import DataError

FRAME = pd.DataFrame({"region": [10, 2, 10, 1], "age": [50, 61, 44, 39]})


def test_splitting_by_a_column_drops_it_and_names_the_sites_by_its_levels() -> None:
    parts = split(FRAME, by="region")
    assert list(parts) == ["1", "2", "10"]
    assert parts["10"]["age"].tolist() == [50, 44] and list(parts["10"].columns) == ["age"]


def test_splitting_never_changes_the_table() -> None:
    before = FRAME.copy()
    for parts in (split(FRAME, by="region"), split(FRAME, sites=2)):
        for part in parts.values():
            part.loc[:, "age"] = 0
    pd.testing.assert_frame_equal(FRAME, before)


@given(rows=st.integers(1, 40), sites=st.integers(1, 40), seed=st.integers(0, 5))
def test_a_random_split_keeps_every_row_once_in_parts_of_equal_size(rows: int, sites: int, seed: int) -> None:
    frame = pd.DataFrame({"row": np.arange(rows)})
    if sites > rows:
        with pytest.raises(DataError, match="number of sites"):
            split(frame, sites=sites, seed=seed)
        return
    parts = split(frame, sites=sites, seed=seed)
    sizes = [len(part) for part in parts.values()]
    assert sorted(pd.concat(parts.values())["row"]) == list(range(rows))
    assert list(parts) == [f"site{k + 1}" for k in range(sites)] and max(sizes) - min(sizes) <= 1


def test_the_seed_decides_a_random_split() -> None:
    frame = pd.DataFrame({"row": np.arange(100)})
    first, again, other = (split(frame, sites=2, seed=seed)["site1"] for seed in (1, 1, 2))
    assert first.equals(again) and not first.equals(other)


def test_a_missing_column_or_a_missing_value_is_an_error() -> None:
    with pytest.raises(DataError, match="did you mean 'region'"):
        split(FRAME, by="regoin")
    with pytest.raises(DataError, match="1 missing of 4"):
        split(FRAME.assign(region=[1, None, 2, 2]), by="region")


def test_it_is_either_by_a_column_or_at_random() -> None:
    with pytest.raises(DataError, match="both"):
        split(FRAME, by="region", sites=2)
    with pytest.raises(DataError, match="neither"):
        split(FRAME)
    with pytest.raises(DataError, match="0 sites"):
        split(FRAME, sites=0)
