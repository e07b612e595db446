"""Distributions of incomplete confounders: complete, as observed, and as CausalFI completes them.

    python benchmarks/pseudo_data.py --output FOLDER

The counterpart of the paper's figure of its pseudo data. Values are missing depending on treatment and
outcome, so those observed are a biased sample. The complete values are known because the people are
simulated. Completed values are drawn here, beside the simulated tables; of real people they exist at their
site only, and only during a round.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import jax
import numpy as np
import pandas as pd

import unpooled as up
from unpooled.benchmark.tables import find
from unpooled.methods.causal_fi.columns import layout_of
from unpooled.methods.causal_fi.model import ImputationModel
from unpooled.methods.causal_fi.settings import CausalFIContext, outcome_family
from unpooled.methods.causal_fi.structures import STRUCTURES

SHOWN = ("u1", "u2", "u3", "u4")
"""The confounders of the paper's figure."""
DRAWS = 20
BINS = 30


def completed(model: up.CausalFI, site: str) -> np.ndarray:
    """Draws [K, people, columns] of the site's incomplete confounders, in the units of its table."""
    study = model.sites_[site].adopted
    assert study is not None and study.own_rows is not None
    assert isinstance(study.context, CausalFIContext)
    rows, layout = study.own_rows, layout_of(study.context)
    imputation = ImputationModel(STRUCTURES[model.result_.draws.model], layout, outcome_family(study.context))
    known = model.result_.draws.at(int(rows.site))

    def one(draw: dict) -> jax.Array:
        return imputation.completed(draw, rows, rows.own_key(jax.random.wrap_key_data(draw["key"]))).u

    some = jax.tree.map(lambda values: values[:DRAWS], known)
    found = np.asarray(jax.jit(lambda draws: jax.lax.map(one, draws))(some))
    people = np.asarray(rows.present) > 0.0
    return found[:, people] * study.scaling.incomplete_sd + study.scaling.incomplete_mean


def distributions(replicate: int, sites: int) -> pd.DataFrame:
    """One row per value: its confounder, which of the three samples it belongs to, and the value."""
    case = find("causalfi-synthetic").case(replicate, None).first(sites)
    study = up.Study(treatment="w", outcome="y", covariates=case.covariates, incomplete=case.incomplete)
    model = up.CausalFI(seed=replicate).fit(study, case.train)
    drawn = np.concatenate([completed(model, site) for site in case.train], axis=1)
    seen = pd.concat(case.train.values())
    samples = {
        "complete": case.train_truth,
        "observed": seen,
        "completed by CausalFI": pd.DataFrame(drawn.reshape(-1, drawn.shape[2]), columns=case.incomplete),
    }
    return pd.concat(
        pd.DataFrame({"confounder": name, "sample": sample, "value": table[name].dropna().to_numpy(float)})
        for name in SHOWN
        for sample, table in samples.items()
    ).reset_index(drop=True)


def summary(values: pd.DataFrame) -> pd.DataFrame:
    """Mean and sd of each sample, and the largest distance of its distribution function from the complete."""
    rows = []
    for name, group in values.groupby("confounder"):
        by_sample = {str(sample): part["value"].to_numpy() for sample, part in group.groupby("sample")}
        grid = np.sort(group["value"].to_numpy())
        shares = {
            sample: np.searchsorted(np.sort(part), grid, side="right") / len(part)
            for sample, part in by_sample.items()
        }
        rows += [
            {
                "confounder": name,
                "sample": sample,
                "mean": part.mean(),
                "sd": part.std(ddof=1),
                "distance": np.abs(shares[sample] - shares["complete"]).max(),
            }
            for sample, part in by_sample.items()
        ]
    return pd.DataFrame(rows)


def draw(values: pd.DataFrame, path: Path) -> None:
    import matplotlib as mpl
    from matplotlib.figure import Figure

    from unpooled.report.figure_files import keep
    from unpooled.report.figures import style

    looks = {
        "complete": {"color": "black", "linestyle": "--"},
        "observed": {"color": style.ORANGE},
        "completed by CausalFI": {"color": style.BLUE},
    }
    figure = Figure(figsize=(7.0, 4.6), layout="constrained")
    with mpl.rc_context(style.STYLE):
        axes = figure.subplots(2, 2).ravel()
        for ax, (name, group) in zip(axes, values.groupby("confounder"), strict=True):
            edges = np.histogram_bin_edges(group["value"], BINS)
            for sample, look in looks.items():
                shown = group.loc[group["sample"] == sample, "value"]
                ax.hist(shown, edges, density=True, histtype="step", label=sample, linewidth=1.4, **look)
            ax.set_title(str(name))
            ax.set_yticks([])
        figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=len(looks))
    keep(axes[0], summary(values), path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--replicate", type=int, default=1)
    parser.add_argument("--sites", type=int, default=10)
    options = parser.parse_args()
    values = distributions(options.replicate, options.sites)
    print(summary(values).round(3).to_string(index=False))
    draw(values, options.output / "benchmark-pseudo-data.png")


if __name__ == "__main__":
    main()
