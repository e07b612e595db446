"""Summaries of finished cells: tables of mean ± s.e. (median) beside the paper's numbers, and figures."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from unpooled.benchmark.scores import LEVELS
from unpooled.benchmark.tables import BenchmarkTable
from unpooled.report.figure_files import keep
from unpooled.report.figures import comparisons

MAIN = ("imputation", "prediction", "conditional", "ate_error", "in_sample_ate_error", "ate")
VIEWS = {
    "errors": MAIN,
    "intervals": tuple(
        f"{what}_{level}_{measure}"
        for what in ("cate", "conditional", "ate")
        for level in LEVELS
        for measure in ("coverage", "width", "score")
    ),
    "cost": ("rounds", "megabytes", "fit_seconds", "peak_gb"),
    "overview": (
        *("imputation", "prediction", "conditional", "ate_error", "in_sample_ate_error"),
        *("cate_95_coverage", "conditional_95_coverage", "ate_95_coverage"),
    ),
}
"""The measures of each view; a table of all of them would be too wide to read."""
PAPER_NAMES = {
    "bart": "bart",
    "tarnet": "tarnet",
    "cfr mmd": "cfr-mmd",
    "cfr-mmd": "cfr-mmd",
    "cfr wass": "cfr-wasserstein",
    "cfr-wass": "cfr-wasserstein",
    "cevae": "cevae",
    "x-learner": "x-learner",
    "r-learner": "r-learner",
    "orthorf": "orthogonal-forest",
    "fedci": "fedci",
    "causalrff": "causal_rff",
    "causalfi": "causal_fi",
    "ipw": "ipw",
    "dr": "dr",
}
PAPER_ARRANGEMENTS = {
    "com": "combined", "cb": "combined", "loc": "local", "agg": "bagged", "ag": "bagged", "avg": "bagged"
}  # fmt: skip
PAPER_IMPUTERS = {"ppca": "ppca", "pca": "pca", "mice": "iterative"}
"""The contenders' names in the paper's tables; a name without an arrangement is federated."""


def in_common(cells: pd.DataFrame) -> pd.DataFrame:
    """The finished cells of the replicates that every contender has finished, for each number of sites.

    Means over different replicates are not comparable: two of IHDP's ten replicates dominate every mean.
    """
    done = cells.loc[pd.isna(cells["error"])]
    kept = []
    for _, found in done.groupby("sites", sort=False):
        group = pd.DataFrame(found)
        contenders = group.groupby(["contender", "arrangement"]).ngroups
        finished = group.groupby("replicate")["contender"].transform("size")
        kept.append(group.loc[np.asarray(finished == contenders)])
    return pd.concat(kept) if kept else done


def summarise(cells: pd.DataFrame, measures: tuple[str, ...] = MAIN) -> pd.DataFrame:
    """One row per contender, arrangement and number of sites, averaged over replicates."""
    done = cells.loc[pd.isna(cells["error"])]
    rows = []
    keys = ["contender", "arrangement", "sites"]
    for _, found in done.groupby(keys, sort=False):
        group = pd.DataFrame(found)
        row: dict[str, object] = {**group.iloc[0][keys].to_dict(), "replicates": len(group)}
        for name in measures:
            row |= zip((name, f"{name}_se", f"{name}_median"), mean_error_median(group, name), strict=True)
        rows.append(row)
    summary = pd.DataFrame(rows)
    first = "prediction" if "prediction" in measures else measures[0]
    return summary.sort_values(["sites", first], ascending=[False, True], ignore_index=True)


def mean_error_median(group: pd.DataFrame, name: str) -> tuple[float, float, float]:
    """Mean, standard error and median of a measure over the rows that have it; NaN where there is none."""
    values = np.asarray(group[name], dtype=float) if name in group else np.array([])
    values = values[np.isfinite(values)]
    if not len(values):
        return float("nan"), float("nan"), float("nan")
    error = values.std(ddof=1) / np.sqrt(len(values)) if len(values) > 1 else float("nan")
    return float(values.mean()), float(error), float(np.median(values))


def with_paper(summary: pd.DataFrame, paper: Path | None, table: str) -> pd.DataFrame:
    """Add the paper's √PEHE, and the task to which it corresponds."""
    if paper is None:
        return summary
    numbers = pd.read_csv(paper)
    numbers = numbers.loc[(numbers["table"] == table) & (numbers["metric"] == "sqrt_pehe")]
    # The first of rows with the same name: in the paper's table of CausalFI, the second is another row's.
    known = {
        (*_ours(r["method"]), int(r["sources"])): (r["mean"], r["se"])
        for r in reversed(numbers.to_dict("records"))
    }
    keys = zip(summary["contender"], summary["arrangement"], summary["sites"], strict=True)
    found = [_paper_of(known, *each) for each in keys]
    imputed = table.startswith("fedci")
    return summary.assign(
        paper=[mean for mean, _ in found],
        paper_se=[error for _, error in found],
        # In its own tables, the paper's FedCI knows the outcomes of the people on whom it is scored.
        paper_task=[
            "imputation" if imputed and name == "fedci" else "prediction" for name in summary["contender"]
        ],
    )


def _ours(name: str) -> tuple[str | None, str]:
    """Contender and arrangement of a name in the paper's tables.

    >>> _ours("CFR Wass-com"), _ours("FedCI"), _ours("BART-mice+avg")
    (('cfr-wasserstein', 'combined'), ('fedci', 'federated'), ('iterative-bart', 'bagged'))
    """
    base, _, suffix = name.lower().rpartition("-")
    imputer, _, arrangement = suffix.rpartition("+")
    if arrangement not in PAPER_ARRANGEMENTS:
        return PAPER_NAMES.get(name.lower()), "federated"
    contender, arranged = PAPER_NAMES.get(base), PAPER_ARRANGEMENTS[arrangement]
    if contender in ("ipw", "dr"):
        # The averages after an iterative imputation have no prefix, and those without one say so.
        named = {"mice": contender, "": f"{contender}-not-imputed"}
        return named.get(imputer, f"{PAPER_IMPUTERS.get(imputer)}-{contender}"), arranged
    if not imputer:
        return contender, arranged
    # The paper fits FedCI to tables apart; "avg" is then how their values were imputed.
    arranged = "federated" if (contender, arranged) == ("fedci", "bagged") else arranged
    return f"{PAPER_IMPUTERS[imputer]}-{contender}", arranged


def _paper_of(known: dict, contender: str, arrangement: str, sites: int) -> tuple[float, float]:
    # The paper reports a single source under the name of the combined arrangement.
    arrangements = [arrangement, "combined"] if sites == 1 else [arrangement]
    found = [known[contender, each, sites] for each in arrangements if (contender, each, sites) in known]
    return found[0] if found else (np.nan, np.nan)


def verdict(summary: pd.DataFrame, ours: str) -> str:
    """In how many cells our error is below the paper's, and below that of the best peer on stacked tables."""
    mine = summary.loc[(summary["contender"] == ours) & (summary["arrangement"] == "federated")]
    peers = summary.loc[
        (summary["arrangement"] == "combined") & ~summary["contender"].str.startswith(ours).to_numpy(bool)
    ]
    lines = []
    if _has(mine, "paper"):
        known = mine.loc[np.isfinite(np.asarray(mine["paper"], dtype=float))]
        task = str(known["paper_task"].iloc[0])
        lower = int(np.sum(known[task] < known["paper"]))
        lines.append(f"{ours} is lower than the paper's {ours} ({task}) in {lower} of {len(known)} cells.")
    for task in ("imputation", "prediction", "conditional"):
        if task not in summary:
            continue
        best = [peers.loc[peers["sites"] == sites, task].min() for sites in mine["sites"]]
        pairs = [(own, peer) for own, peer in zip(mine[task], best, strict=True) if np.isfinite(peer)]
        lower = sum(own < peer for own, peer in pairs)
        if pairs:
            lines.append(
                f"{ours} is lower than the best stacked peer ({task}) in {lower} of {len(pairs)} cells."
            )
    return "\n".join(lines)


def markdown(summary: pd.DataFrame, measures: tuple[str, ...] = MAIN) -> str:
    """The summary as a Markdown table."""
    measures = tuple(name for name in measures if _has(summary, name))
    heads = ["contender", "tables", "sites", "n", *measures]
    paper = _has(summary, "paper")
    heads += ["paper (its task)"] if paper else []
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    for row in summary.to_dict("records"):
        cells = [row["contender"], row["arrangement"], row["sites"], row["replicates"]]
        cells += [_shown(row[name], row[f"{name}_se"], row[f"{name}_median"]) for name in measures]
        if paper:
            known = np.isfinite(row["paper"])
            cells += [f"{row['paper']:.2f} ± {row['paper_se']:.2f} ({row['paper_task']})" if known else ""]
        lines.append("| " + " | ".join(str(cell) for cell in cells) + " |")
    return "\n".join(lines)


def _has(summary: pd.DataFrame, name: str) -> bool:
    return name in summary and bool(np.isfinite(np.asarray(summary[name], dtype=float)).any())


def _shown(mean: float, error: float, median: float) -> str:
    if not np.isfinite(mean):
        return ""
    spread = f" ± {error:.2f}" if np.isfinite(error) else ""
    return f"{mean:.2f}{spread} ({median:.2f})"


def write_figures(cells: pd.DataFrame, folder: Path, table: BenchmarkTable) -> list[Path]:
    """Draw the figures that the cells allow, each with its data as CSV; return their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    done = cells.loc[pd.isna(cells["error"])]
    summary = summarise(done)
    if "prediction" not in done:
        return []
    drawn = []
    for name, part, series in (
        ("arrangements", summary.loc[summary["contender"] == table.method], "arrangement"),
        ("inter-dependency", _federated(summary, table.method), "contender"),
    ):
        if len(set(part[series])) > 1:
            ax = comparisons.by_sites(part, measure="prediction", series=series)
            drawn.append(keep(ax, part, folder / f"{table.name}-{name}.png"))
    fair = summarise(in_common(done))
    most = fair.loc[fair["sites"] == fair["sites"].max()]
    pooled = most.loc[(most["arrangement"] == "combined") | (most["arrangement"] == "federated")]
    drawn.append(
        keep(comparisons.ranking(pooled, ours=table.method), pooled, folder / f"{table.name}-ranking.png")
    )
    ours = done.loc[(done["contender"] == table.method) & _is_federated(done)]
    if len(ours):
        drawn.append(keep(comparisons.ate_by_sites(ours), ours, folder / f"{table.name}-ate.png"))
    return drawn


def _federated(summary: pd.DataFrame, method: str) -> pd.DataFrame:
    ours = [str(name).startswith(method) for name in summary["contender"]]
    return summary.loc[_is_federated(summary) & np.array(ours)]


def _is_federated(frame: pd.DataFrame) -> np.ndarray:
    return np.asarray(frame["arrangement"] == "federated")
