"""A real study for the demonstration: quitting smoking and weight, NHEFS, people grouped by region of birth.

NHEFS follows people examined in 1971-75 up to 1982; the table is that of Hernán & Robins, *Causal
Inference: What If*, as the package `causaldata` ships it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pandas as pd

from unpooled.data.partition import split
from unpooled.errors import DataError
from unpooled.study import Study

PUBLISHED = "about 3.4 to 3.5 kg (Hernán & Robins, What If, chapters 12 and 13, one pooled table)"
CATEGORICAL = ("education", "exercise", "active")

# `birthplace` holds FIPS state codes: of 1 to 56, exactly the codes FIPS never assigned (3, 7, 14, 43, 52)
# and the two states fewest were born in (Alaska, Nevada) do not occur, and 36, 42 and 39 lead.
_REGIONS = {
    "northeast": (9, 23, 25, 33, 34, 36, 42, 44, 50),
    "midwest": (17, 18, 19, 20, 26, 27, 29, 31, 38, 39, 46, 55),
    "south": (1, 5, 10, 11, 12, 13, 21, 22, 24, 28, 37, 40, 45, 47, 48, 51, 54),
    "west": (2, 4, 6, 8, 15, 16, 30, 32, 35, 41, 49, 53, 56),
}
REGION_OF = {code: region for region, codes in _REGIONS.items() for code in codes}


@dataclass(frozen=True)
class Nhefs:
    """The study, a table per region, and how many people are not in them."""

    study: Study
    sites: dict[str, pd.DataFrame]
    without_outcome: int
    without_region: int


def nhefs() -> Nhefs:
    """The demonstration's study and tables."""
    return arrange(_load())


def arrange(people: pd.DataFrame) -> Nhefs:
    """Leave out who has no outcome or no region, code the columns, split by region of birth."""
    study = the_study()
    known = people.loc[people["wt82_71"].notna()]
    placed = known.loc[known["birthplace"].isin(list(REGION_OF))]
    table = pd.DataFrame({name: _coded(name, placed[name].tolist()) for name in study.columns.names})
    table["region"] = [REGION_OF[int(code)] for code in placed["birthplace"].tolist()]
    return Nhefs(study, split(table, by="region"), len(people) - len(known), len(known) - len(placed))


def _coded(name: str, values: list[Any]) -> list[Any]:
    """Codes as words where they are categories without an order worth a slope, as numbers elsewhere."""
    if name in CATEGORICAL:
        return [f"level {int(value)}" for value in values]
    return [int(value) for value in values] if name in ("sex", "race", "qsmk") else values


def the_study() -> Study:
    """Quitting smoking, change of weight, and the confounders of the book's analysis."""
    return Study(
        name="nhefs",
        treatment="qsmk",
        outcome="wt82_71",
        covariates=[
            "sex", "race", "age", "education", "smokeintensity", "smokeyrs", "exercise", "active", "wt71",
        ],
        units={"wt82_71": "kg", "wt71": "kg", "age": "years", "smokeyrs": "years"},
    )  # fmt: skip


def _load() -> pd.DataFrame:
    try:
        from causaldata import nhefs as package
    except ImportError:
        raise DataError(
            "the demonstration needs the package 'causaldata', which holds its data",
            found="it is not installed",
            remedy="pip install 'unpooled[demo]'",
        ) from None
    return pd.DataFrame(package.load_pandas().data)
