"""The real study of `unpooled demo`: smoking cessation and weight gain in NHEFS, by region of birth.

NHEFS follows people examined in 1971-75 until 1982. The table is that of Hernán & Robins, *Causal Inference:
What If*, as distributed with the package `causaldata`.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module

import pandas as pd

from unpooled.data.sources import split
from unpooled.errors import DataError
from unpooled.study import Study

PUBLISHED = "about 3.4 to 3.5 kg (Hernán & Robins, What If, chapters 12 and 13, one pooled table)"
CATEGORICAL = ("education", "exercise", "active")

# `birthplace` holds FIPS state codes. Of 1 to 56, exactly the codes that FIPS never assigned (3, 7, 14, 43,
# 52) and the two states with the fewest births (Alaska, Nevada) do not occur; 36, 42 and 39 are most common.
_REGIONS = {
    "northeast": (9, 23, 25, 33, 34, 36, 42, 44, 50),
    "midwest": (17, 18, 19, 20, 26, 27, 29, 31, 38, 39, 46, 55),
    "south": (1, 5, 10, 11, 12, 13, 21, 22, 24, 28, 37, 40, 45, 47, 48, 51, 54),
    "west": (2, 4, 6, 8, 15, 16, 30, 32, 35, 41, 49, 53, 56),
}
REGION_OF = {code: region for region, codes in _REGIONS.items() for code in codes}


@dataclass(frozen=True)
class Nhefs:
    """The study, one table per region, and the numbers of people who were left out."""

    study: Study
    sites: dict[str, pd.DataFrame]
    without_outcome: int
    without_region: int


def nhefs() -> Nhefs:
    """The study and its tables."""
    return arrange(packaged("nhefs"))


def arrange(people: pd.DataFrame) -> Nhefs:
    """Leave out people without an outcome or a region, recode the columns, and split by region of birth."""
    study = nhefs_study()
    known = people.loc[people["wt82_71"].notna()]
    placed = known.loc[known["birthplace"].isin(list(REGION_OF))]
    table = pd.DataFrame({name: _coded(name, placed[name].tolist()) for name in study.columns.names})
    table["region"] = [REGION_OF[int(code)] for code in placed["birthplace"].tolist()]
    return Nhefs(study, split(table, by="region"), len(people) - len(known), len(known) - len(placed))


def _coded(name: str, values: list[float]) -> list[str] | list[int] | list[float]:
    """Categorical codes as text, all other codes as numbers."""
    if name in CATEGORICAL:
        return [f"level {int(value)}" for value in values]
    return [int(value) for value in values] if name in ("sex", "race", "qsmk") else values


def nhefs_study() -> Study:
    """Smoking cessation, change of weight, and the confounders of the book's analysis."""
    return Study(
        name="nhefs",
        treatment="qsmk",
        outcome="wt82_71",
        covariates=[
            "sex", "race", "age", "education", "smokeintensity", "smokeyrs", "exercise", "active", "wt71",
        ],
        units={"wt82_71": "kg", "wt71": "kg", "age": "years", "smokeyrs": "years"},
    )  # fmt: skip


def packaged(table: str) -> pd.DataFrame:
    """A table of the package `causaldata`."""
    try:
        package = import_module("causaldata")
    except ImportError:
        raise DataError(
            "the demonstration and the benchmark need the package 'causaldata', which contains their data",
            found="it is not installed",
            remedy="pip install 'unpooled[demo]'",
        ) from None
    return pd.DataFrame(getattr(package, table).load_pandas().data)
