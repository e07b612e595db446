"""Arrays with an entry for each person where one number is meant: they would choose whom to sum over."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from attacks.coordinator import Attacker, people, study
from unpooled.protocol.messages import Refusal
from unpooled.protocol.rows import padded_size
from unpooled.protocol.table_messages import Centre, Summarise
from unpooled.study import ColumnSchema

ROWS = 300
TABLE = people(ROWS, numbers=3)
PADDED = padded_size(ROWS)


def attacker(root: Path, method: str = "aipw") -> Attacker:
    settings = {"aipw": {"folds": 1}, "fedci": {"structure": "isotropic", "basis": 10}}[method]
    return Attacker(root, TABLE, study(TABLE, {"name": method, **settings}))


@pytest.mark.parametrize(
    ("method", "stage", "name"), [("fedci", "ridge", "fold"), ("aipw", "outcome", "without")]
)
def test_nobody_is_left_out_by_name(tmp_path: Path, method: str, stage: str, name: str) -> None:
    """One entry other than the rest, and the sums are one person's row, or lack it."""
    site = attacker(tmp_path, method)
    site.adopted()
    chosen = np.zeros((1, PADDED), dtype=int)
    chosen[0, 17] = -1
    refused = site.statistics(stage, fixed={name: chosen})
    assert isinstance(refused, Refusal) and "for each person" in refused.found


@pytest.mark.parametrize("dtype", [str, bool])
def test_parameters_are_numbers(tmp_path: Path, dtype: type) -> None:
    site = attacker(tmp_path)
    site.adopted()
    values = np.zeros(1).astype(dtype) if dtype is bool else ["0"]
    assert isinstance(site.statistics("outcome", fixed={"without": values}), Refusal)


def test_a_centre_is_one_number_for_each_column(tmp_path: Path) -> None:
    site = attacker(tmp_path)
    schema = site.agreed().schema
    far = np.zeros((ROWS, 4))
    far[17, 0] = 1e7
    for centre in (far, np.full(4, 1e12), np.full(4, np.nan), np.zeros(3), np.zeros((1, 4))):
        assert isinstance(site.ask(Summarise(schema, Centre(centre, np.zeros(0)))), Refusal)


def test_the_scaling_of_the_outcome_is_one_number(tmp_path: Path) -> None:
    site = attacker(tmp_path)
    adopt = site.agreed()
    mean = np.full(ROWS, adopt.scaling.outcome_mean)
    mean[::2] += 0.5
    for change in ({"outcome_mean": mean}, {"outcome_sd": np.ones(ROWS)}, {"largest_site": 0}):
        scaling = replace(adopt.scaling, **change)  # type: ignore[arg-type]
        assert isinstance(site.ask(replace(adopt, scaling=scaling).to_site(0)), Refusal)


def test_levels_are_different() -> None:
    with pytest.raises(ValueError, match="levels must be different"):
        ColumnSchema(name="g", kind="categorical", levels=("rare", "x", "y", "x"))


def test_how_many_propensities_were_clipped_is_no_small_number(tmp_path: Path) -> None:
    site = attacker(tmp_path)
    site.adopted()
    for number, slope in enumerate(np.linspace(1.5, 3.5, 3)):
        steep = np.zeros((1, 1, 4))
        steep[..., 1] = slope
        reply = site.statistics("scores", per_site={"treatment": steep, "outcome": np.zeros((1, 1, 2, 4))})
        if number == 0:
            clipped = float(reply.summed["clipped"].sum())
            assert clipped == 0.0 or 5.0 < clipped < ROWS - 5.0 or clipped == ROWS


def test_sites_without_names_are_refused_and_nothing_is_lost(tmp_path: Path) -> None:
    site = attacker(tmp_path)
    adopt = site.agreed()
    for sites in (("site", 7), ("site", "site")):
        assert isinstance(site.ask(replace(adopt, sites=sites).to_site(0)), Refusal)  # type: ignore[arg-type]
    site.restart()
    assert not isinstance(site.ask(adopt.to_site(0)), Refusal)


def test_a_site_does_not_show_its_table_or_its_secret(tmp_path: Path) -> None:
    site = attacker(tmp_path)
    site.adopted()
    own = next(iter(site.gateway._open.values()))
    assert (
        str(own.salt) not in repr(own) and "x0" not in repr(own.frame.shape) and "DataFrame" not in repr(own)
    )
    assert f"{TABLE['x0'].iloc[0]:.4f}" not in repr(own)
