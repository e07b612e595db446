"""The paper's inference for CausalFI: three Bayesian neural networks, fitted in two stages (Algorithms 1–3).

| on paper          | here                                                                                 |
|-------------------|--------------------------------------------------------------------------------------|
| p(u ∣ y, w, x)    | a network per arm; columns independent given (y, w, x), fitted to observed entries   |
| λ, Λ              | one output per feature (mean, log odds or log rate), and a log sd per numeric column |
| p̂(u_mis ∣ x, u_r) | one network of (x, u·r, r) for all patterns; columns independent, as in the paper    |
| p̂(y ∣ w, x, u)    | a network per arm with the outcome's family; the noise is learned by arm             |
| pseudo data       | observed entries are kept; missing entries are redrawn in every round                |
| r in training     | patterns of other people and random patterns, since one's own may depend on y        |
| q(θ), p(θ)        | independent Gaussians; weights ~ N(0, 2/inputs), all other parameters ~ N(0, 1)      |
| (1/m) KL          | in F, counted once whatever the number of sites                                      |
| y'_0jl, y'_1jl    | replaced by their expectations, so M is not needed                                   |
| ATE               | over people imputed given their own (y, w), not over τ(x, u_r): see `effects`        |
"""

from unpooled.methods.causal_fi.paper.fit import (
    budget,
    conditional_effects,
    expected,
    features,
    fit,
    individual_effects,
    most_rounds,
    stages,
)

__all__ = [
    "budget",
    "conditional_effects",
    "expected",
    "features",
    "fit",
    "individual_effects",
    "most_rounds",
    "stages",
]
