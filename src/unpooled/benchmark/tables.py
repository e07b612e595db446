"""The tables of the benchmark, each a small declaration."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from unpooled.benchmark.cases import Case, ihdp, incomplete_ihdp, simulated
from unpooled.benchmark.contenders import ARRANGEMENTS, taking
from unpooled.benchmark.data_sets import DEVELOPMENT, REPORTED, SITES, DataSet
from unpooled.benchmark.real_data import PARTITIONS, acic, nhefs
from unpooled.data.simulation import causal_fi
from unpooled.data.simulation.causal_rff import COEFFICIENT_SEED
from unpooled.errors import StudyError, nearest

QUICK = ("zero", "constant", "ridge", "gp")
"""Peers of a quick run, which takes a minute or two; the table's own method comes before them."""
QUICK_INCOMPLETE = ("zero", "iterative-constant", "mean", "iterative")
QUICK_ARRANGEMENTS = ("federated", "combined")
ACIC_SITES, NHEFS_SITES = 5, 4
REAL = (
    "fedci", "causal_rff", "aipw", "causal_forest", "boosted_arms", "super_learner", "constant", "ridge",
    "causal-forest", "bart", "bcf", "boosted-t-learner", "boosted-r-learner",
)  # fmt: skip
"""The contenders of the named data sets; networks need people for tuning, which these do not have."""
QUICK_REAL = ("constant", "ridge", "boosted-t-learner")
CAUSAL_FI = {"sites": 50, "rows": 100, "test": 50, "valid": 50}
CAUSAL_RFF_IHDP = (50, 100, 99)
"""Training, scored and tuning people per site in the paper's comparison of CausalRFF on IHDP."""
_WAYS = {
    "random": "split at random",
    "cluster": "split by covariate cluster",
    "propensity": "split by propensity",
    "unequal": "split into sites from small to large",
}


@dataclass(frozen=True)
class BenchmarkTable:
    """A data set, the numbers of sites to use, and the contenders.

    `case(replicate, folder)` makes the people of all sites; `folder` contains files that are not distributed
    with the package.
    """

    name: str
    about: str
    sites: tuple[int, ...]
    case: Callable[[int, Path | None], Case]
    needs_files: bool = False
    replicates: int = 10
    contenders: tuple[str, ...] = taking("complete")
    method: str = "fedci"
    """The method of this package that the table is about."""
    quick: tuple[str, ...] = QUICK
    arrangements: tuple[str, ...] = ARRANGEMENTS
    data_sets: tuple[DataSet, ...] = ()
    """Of a table whose replicates are different data sets, these, in order."""


def _simulated(name: str, replicate: int, folder: Path | None, *, sites: int) -> Case:
    return simulated(name, replicate, sites=sites)


def _in_tens(replicate: int) -> tuple[int, int]:
    """The draw of the coefficients and the seed of the people: ten replicates of each draw."""
    return (replicate - 1) // 10, (replicate - 1) % 10 + 1


def _in_turn(replicate: int) -> tuple[int, int]:
    """The same for expensive replicates: three draws of the coefficients, used in turn."""
    return (replicate - 1) % 3, replicate


def _causal_rff(
    name: str,
    draws: Callable[[int], tuple[int, int]],
    replicate: int,
    folder: Path | None,
    *,
    sites: int,
    scored: int,
    **options: float,
) -> Case:
    draw, seed = draws(replicate)
    options["coefficient_seed"] = COEFFICIENT_SEED + draw
    case = simulated(name, seed, sites=sites, options=options)
    return case.scored_at(scored)


def _causal_fi(replicate: int, folder: Path | None, **options: int | str) -> Case:
    draw, seed = _in_turn(replicate)
    options["coefficient_seed"] = causal_fi.COEFFICIENT_SEED + draw
    case = simulated("causalfi", seed, **CAUSAL_FI, options=options)
    return replace(case, everybody=True)


def _ihdp(replicate: int, folder: Path | None) -> Case:
    return ihdp(folder or Path("ihdp"), replicate)


def _causal_rff_ihdp(replicate: int, folder: Path | None) -> Case:
    return ihdp(folder or Path("ihdp"), replicate, CAUSAL_RFF_IHDP).scored_at(1)


def _causal_fi_ihdp(replicate: int, folder: Path | None) -> Case:
    return incomplete_ihdp(folder or Path("ihdp"), replicate)


def _acic(cut: str, replicate: int, folder: Path | None) -> Case:
    return acic(replicate, cut, ACIC_SITES)


def _nhefs(cut: str, replicate: int, folder: Path | None) -> Case:
    return nhefs(replicate, cut, NHEFS_SITES)


def _data_set(data_sets: tuple[DataSet, ...], replicate: int, folder: Path | None) -> Case:
    if not 1 <= replicate <= len(data_sets):
        raise StudyError(
            "a replicate of this table must be one of its data sets",
            found=f"{replicate} of {len(data_sets)}",
            remedy=f"ask for at most {len(data_sets)} replicates",
        )
    return data_sets[replicate - 1].case()


def _declare(name: str, about: str) -> BenchmarkTable:
    return BenchmarkTable(name, about, (1, 3, 5), partial(_simulated, name, sites=5))


def _declare_causal_rff(name: str, about: str, suffix: str = "", **options: int) -> BenchmarkTable:
    case = partial(_causal_rff, name, _in_tens, sites=5, scored=1, **options)
    return BenchmarkTable(
        f"{name}{suffix}", f"{about}, site 1 scored", (1, 3, 5), case, replicates=30, method="causal_rff"
    )


def _declare_delta(delta: int) -> BenchmarkTable:
    about = f"latent classes, the second of two sites shifted by {delta}, site 1 scored"
    case = partial(_causal_rff, "causalrff-delta", _in_tens, sites=2, scored=1, delta=float(delta))
    return BenchmarkTable(f"causalrff-delta-{delta}", about, (2,), case, method="causal_rff")


def _declare_large(name: str, about: str) -> BenchmarkTable:
    case = partial(_causal_rff, name, _in_turn, sites=100, scored=20)
    return BenchmarkTable(
        name,
        f"latent classes, many sites, {about}, 20 sites scored",
        (20, 50, 100),
        case,
        replicates=3,
        method="causal_rff",
    )


def _declare_causal_fi(
    name: str,
    about: str,
    sites: tuple[int, ...],
    case: Callable[[int, Path | None], Case],
    needs_files: bool = False,
) -> BenchmarkTable:
    return BenchmarkTable(
        f"causalfi-{name}",
        f"{about}, all sites scored",
        sites,
        case,
        needs_files=needs_files,
        contenders=taking("incomplete"),
        method="causal_fi",
        quick=QUICK_INCOMPLETE,
    )


def _declare_columns(columns: int) -> BenchmarkTable:
    about = f"the same with missing values in {columns} of ten confounders"
    return _declare_causal_fi(f"columns-{columns}", about, (30,), partial(_causal_fi, incomplete=columns))


def _declare_acic(cut: str) -> BenchmarkTable:
    about = f"ACIC 2016, simulated outcomes on real covariates, {_WAYS[cut]}"
    return BenchmarkTable(f"acic-{cut}", about, (ACIC_SITES,), partial(_acic, cut))


def _declare_nhefs(cut: str) -> BenchmarkTable:
    about = f"NHEFS, smoking cessation and weight, true effects unknown, {_WAYS[cut]}"
    return BenchmarkTable(f"nhefs-{cut}", about, (NHEFS_SITES,), partial(_nhefs, cut), replicates=3)


def _declare_real(name: str, about: str, data_sets: tuple[DataSet, ...]) -> BenchmarkTable:
    return BenchmarkTable(
        name,
        f"{len(data_sets)} data sets on real covariates, {about}",
        (SITES,),
        partial(_data_set, data_sets),
        replicates=len(data_sets),
        contenders=REAL,
        quick=QUICK_REAL,
        arrangements=QUICK_ARRANGEMENTS,
        data_sets=data_sets,
    )


_ALL = (
    _declare("fedci-data1", "softplus of a linear index per arm, 50 training people per site"),
    _declare("fedci-data2", "the same with larger coefficients and effects"),
    _declare("fedci-binary", "DATA-1 with a 0/1 outcome"),
    _declare("fedci-count", "DATA-1 with a count outcome"),
    BenchmarkTable(
        "fedci-ihdp", "IHDP, simulated outcomes on real covariates", (1, 2, 3), _ihdp, needs_files=True
    ),
    _declare_causal_rff("causalrff-same", "latent classes, identical sites"),
    _declare_causal_rff("causalrff-diff", "latent classes, all sites but the first shifted"),
    _declare_causal_rff(
        "causalrff-diff", "the same, two sites in five with one arm only", "-as-drawn", least_in_arm=0
    ),
    _declare_causal_rff("causalrff-continuous", "two continuous latent variables, identical sites"),
    *[_declare_delta(delta) for delta in (0, 2, 4, 6, 8)],
    _declare_large("causalrff-large-same", "identical sites"),
    _declare_large("causalrff-large-diff", "each shifted by its own amount"),
    BenchmarkTable(
        "causalrff-ihdp",
        "IHDP, site 1 scored",
        (1, 2, 3),
        _causal_rff_ihdp,
        needs_files=True,
        method="causal_rff",
    ),
    _declare_causal_fi("synthetic", "incomplete confounders", (10, 30, 50), _causal_fi),
    _declare_causal_fi(
        "mcar",
        "the same, values missing completely at random",
        (10, 30, 50),
        partial(_causal_fi, mechanism="mcar"),
    ),
    *[_declare_columns(columns) for columns in (2, 4, 6, 8, 10)],
    _declare_causal_fi(
        "ihdp", "IHDP, four incomplete covariates", (2, 4, 6), _causal_fi_ihdp, needs_files=True
    ),
    *[declare(cut) for declare in (_declare_acic, _declare_nhefs) for cut in PARTITIONS],
    _declare_real("real", "to be reported", REPORTED),
    _declare_real("real-development", "for tuning", DEVELOPMENT),
)
TABLES = {table.name: table for table in _ALL}


def find(name: str) -> BenchmarkTable:
    """A table by its name."""
    if name not in TABLES:
        raise StudyError("the table must be known", found=f"'{name}'", remedy=nearest(name, TABLES))
    return TABLES[name]
