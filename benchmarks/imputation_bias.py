"""The bias of single imputation when the effect is not linear, compared with CausalFI; draws a figure.

    python benchmarks/imputation_bias.py --output docs/figures

One confounder u is missing at random for half of the people, and the effect is a softplus of u. Regression
imputation fills in E[u | x, w, y] once and fits the true parametric curve; CausalFI draws the missing values.
Both predict the effect for people whose u is missing, from x alone.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.optimize import curve_fit

import unpooled as up

SITES, ROWS = 3, 300
NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(60)
AT = np.linspace(-2.0, 2.0, 41)


def softplus(u: np.ndarray, slope: float, place: float) -> np.ndarray:
    return np.logaddexp(0.0, slope * (u - place))


def effect(u: np.ndarray) -> np.ndarray:
    return softplus(u, 4.0, 0.5)


def people(rng: np.random.Generator) -> pd.DataFrame:
    x = rng.standard_normal(ROWS)
    u = 0.5 * x + np.sqrt(0.75) * rng.standard_normal(ROWS)
    w = (rng.random(ROWS) < 1.0 / (1.0 + np.exp(-u))).astype(int)
    y = u + w * effect(u) + 0.5 * rng.standard_normal(ROWS)
    return pd.DataFrame({"x": x, "u": np.where(rng.random(ROWS) < 0.5, np.nan, u), "w": w, "y": y})


def truth() -> np.ndarray:
    """E[effect(u) | x] on the grid of x."""
    return effect(0.5 * AT[:, None] + np.sqrt(0.75) * NODES) @ WEIGHTS / WEIGHTS.sum()


def imputed(frame: pd.DataFrame) -> np.ndarray:
    """Impute u by a regression on all other columns, fit the true curve per arm, evaluate it at E[u | x]."""
    design = np.column_stack([np.ones(len(frame)), frame[["x", "w", "y"]], frame["w"] * frame["y"]])
    seen = frame["u"].notna().to_numpy()
    filled = frame["u"].to_numpy().copy()
    slopes = np.linalg.lstsq(design[seen], filled[seen], rcond=None)[0]
    filled[~seen] = design[~seen] @ slopes
    on_x = np.polyfit(frame["x"], filled, 1)

    def arm(u: np.ndarray, a: float, b: float, c: float, slope: float, place: float) -> np.ndarray:
        return a + b * u + c * softplus(u, slope, place)

    expected = np.polyval(on_x, AT)
    found = []
    for treated in (0, 1):
        mine = (frame["w"] == treated).to_numpy()
        start = (0.0, 1.0, 0.5, 3.0, 0.3)
        fitted = curve_fit(arm, filled[mine], frame["y"].to_numpy()[mine], p0=start, maxfev=50_000)[0]
        found.append(arm(expected, *fitted))
    return found[1] - found[0]


def compare(seed: int) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    frames = {f"site{k + 1}": people(rng) for k in range(SITES)}
    study = up.Study(treatment="w", outcome="y", covariates=["x"], incomplete=["u"])
    model = up.CausalFI(seed=seed).fit(study, frames)
    asked = pd.DataFrame({"x": AT, "u": np.nan})
    lower, upper = model.effect_interval(asked, site="site1")
    ours = model.effect(asked, site="site1")
    single = imputed(pd.concat(frames.values(), ignore_index=True))
    return pd.DataFrame(
        {"x": AT, "truth": truth(), "imputed": single, "ours": ours, "lower": lower, "upper": upper}
    )


def draw(found: pd.DataFrame, path: Path) -> None:
    import matplotlib as mpl

    from unpooled.report.figure_files import keep
    from unpooled.report.figures import style
    from unpooled.report.figures.style import new_axes

    ax = new_axes(None, 3.4)
    with mpl.rc_context(style.STYLE):
        band: Any = {"color": style.BLUE, "alpha": 0.2, "linewidth": 0}
        ax.fill_between(found["x"], found["lower"], found["upper"], **band)
        ax.plot(found["x"], found["truth"], color="black", linestyle="--", label="truth")
        ax.plot(found["x"], found["ours"], color=style.BLUE, label="CausalFI (band: 95% interval)")
        ax.plot(found["x"], found["imputed"], color=style.ORANGE, label="single regression imputation")
        ax.set_xlabel("x of a person whose u is missing")
        ax.set_ylabel("expected effect")
        ax.set_title("A nonlinear effect and a missing confounder")
        ax.legend()
        ax.grid(axis="y")
    keep(ax, found, path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args()
    every = [compare(seed) for seed in range(1, 6)]
    for name in ("imputed", "ours"):
        biases = [float(np.mean(found[name] - found["truth"])) for found in every]
        print(name, "mean error by data set", np.round(biases, 3), "mean", round(float(np.mean(biases)), 3))
    draw(every[0], options.output / "imputation_bias.png")


if __name__ == "__main__":
    main()
