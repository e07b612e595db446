"""The Gaussian latent model, person by person in NumPy, straight from its equations."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from scipy import stats

from unpooled.methods.causal_rff.classes.log_likelihoods import ColumnKinds
from unpooled.methods.causal_rff.paper.bound import start
from unpooled.methods.causal_rff.paper.functions import StructuralFunctions
from unpooled.protocol.rows import Rows, make_rows

SITES, COVARIATES = 3, 3
BINARY, NUMBERS = [1], [0, 2]


def functions(
    *, dimension: int = 2, binary: bool = False, symmetric: bool = False, transfer: float | None = None
) -> StructuralFunctions:
    rng = np.random.default_rng(3)
    return StructuralFunctions(
        latent=jnp.asarray(rng.normal(size=(2, dimension))),
        observed=jnp.asarray(rng.normal(size=(2, COVARIATES + 1))),
        columns=ColumnKinds(jnp.asarray(BINARY), jnp.asarray(NUMBERS)),
        binary=binary,
        symmetric=symmetric,
        transfer=transfer,
    )


def scattered(made: StructuralFunctions, seed: int = 11) -> Any:
    """A θ away from every special value."""
    rng = np.random.default_rng(seed)

    def move(tree: Any) -> Any:
        if isinstance(tree, dict):
            return {name: move(part) for name, part in tree.items()}
        return np.asarray(tree + 0.3 * rng.normal(size=np.shape(tree)))

    return move(start(made, SITES, seed))


def people(count: int = 9, *, site: int = 1, seed: int = 5) -> tuple[Rows, dict[str, np.ndarray]]:
    rng = np.random.default_rng(seed)
    x, w, y = rng.normal(size=(count, COVARIATES)), rng.binomial(1, 0.5, count) * 1.0, rng.normal(size=count)
    x[:, BINARY] = np.where(rng.binomial(1, 0.4, (count, 1)) == 1, 1.3, -0.7)
    fold = np.arange(count) % 3
    return make_rows(x, w, y, fold=fold, site=site), {"x": x, "w": w, "y": y, "fold": fold}


def features(omega: np.ndarray, u: np.ndarray, log_length: float) -> np.ndarray:
    angles = [float(np.dot(w, u)) / (np.exp(log_length) * np.sqrt(len(u))) for w in np.asarray(omega)]
    waves = [*np.cos(angles), *np.sin(angles)] / np.sqrt(len(angles))
    return np.concatenate([[1.0], u / np.sqrt(len(u)), waves])


def own(made: StructuralFunctions, free: Any, group: str, site: int) -> np.ndarray:
    """θ^s + Σ_{v≠s} λ^{s,v} θ^v."""
    model = {"decoder": "latent", "encoder": "latent"}.get(group, group)
    total = np.array(free[group][site])
    for v in range(SITES):
        if v == site:
            continue
        if made.transfer is not None:
            share = made.transfer
        else:
            logit = free["transfer"][model][site, v]
            if made.symmetric:
                logit = 0.5 * (logit + free["transfer"][model][v, site])
            share = 1.0 / (1.0 + np.exp(-logit))
        total = total + share * free[group][v]
    return total


def centre(made: StructuralFunctions, free: Any, x: np.ndarray, w: float, y: float, site: int) -> np.ndarray:
    """f_q(y, w, x)."""
    phi = features(np.asarray(made.observed), np.array([y, *x]), float(free["length"]["encoder"]))
    both = phi @ own(made, free, "encoder", site)
    return both[made.dimension :] if w == 1 else both[: made.dimension]


def said_of(made: StructuralFunctions, free: Any, z: np.ndarray, site: int) -> dict[str, Any]:
    """The distributions of y in either arm, of w, and of x, given z."""
    phi = features(np.asarray(made.latent), z, float(free["length"]["latent"]))
    f = phi @ own(made, free, "decoder", site)
    numbers = [stats.norm(m, np.exp(s)) for m, s in zip(f[4:], free["noise"]["covariates"], strict=True)]
    return {
        "y": [outcome(made, f[arm], free["noise"]["outcome"][arm]) for arm in (0, 1)],
        "w": stats.bernoulli(1 / (1 + np.exp(-f[2]))),
        "ones": [stats.bernoulli(1 / (1 + np.exp(-f[3])))],
        "numbers": numbers,
        "mean": [outcome(made, f[arm], 0.0).mean() for arm in (0, 1)],
    }


def outcome(made: StructuralFunctions, f: float, log_sd: float) -> Any:
    return stats.bernoulli(1 / (1 + np.exp(-f))) if made.binary else stats.norm(f, np.exp(log_sd))


def log_p(distribution: Any, value: float) -> float:
    known = hasattr(distribution.dist, "logpdf")
    return float(distribution.logpdf(value) if known else distribution.logpmf(value))


def log_rest(
    made: StructuralFunctions, free: Any, z: np.ndarray, x: np.ndarray, w: float, site: int
) -> float:
    """log p(w | z) + log p(x | z)."""
    said = said_of(made, free, z, site)
    total = log_p(said["w"], w) + log_p(said["ones"][0], float(x[BINARY[0]] > 0))
    return total + sum(log_p(each, x[c]) for each, c in zip(said["numbers"], NUMBERS, strict=True))


def auxiliary(made: StructuralFunctions, free: Any, x: np.ndarray, site: int) -> tuple[Any, list[Any]]:
    """p(w | x), and p(y | x, w) in either arm."""
    phi = features(np.asarray(made.observed), np.array([0.0, *x]), float(free["length"]["auxiliary"]))
    logit = float((phi @ own(made, free, "treatment", site))[0])
    arms = phi @ own(made, free, "outcome", site)
    sd = free["noise"]["auxiliary"]
    return stats.bernoulli(1 / (1 + np.exp(-logit))), [outcome(made, arms[a], sd[a]) for a in (0, 1)]
