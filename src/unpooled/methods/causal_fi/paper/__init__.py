"""The paper's own inference for CausalFI: three Bayesian networks, learned in two stages (Algorithms 1 to 3).

| on paper          | here                                                                                 |
|-------------------|--------------------------------------------------------------------------------------|
| p(u ∣ y, w, x)    | a network per arm; columns independent given (y, w, x), learned where they are seen  |
| λ, Λ              | a number per feature: mean, log odds or log rate; numbers have a log sd beside it    |
| p̂(u_mis ∣ x, u_r) | one network of (x, u·r, r) for all patterns; columns independent, as on paper        |
| p̂(y ∣ w, x, u)    | a network per arm; the outcome's family, its noise learned by arm                    |
| pseudo data       | entries that are seen are kept, missing ones drawn anew every round                  |
| r in training     | patterns of other people, and coin flips: one's own pattern tells of one's outcome   |
| q(θ), p(θ)        | Gaussians without correlation; weights ~ N(0, 2/inputs), all else ~ N(0, 1)          |
| (1/m) KL          | in F, once, however many sites answer                                                |
| y'_0jl, y'_1jl    | their expectations, so M has no say                                                  |
| ATE               | over people completed given their own (y, w), not over τ(x, u_r): see `effects`      |
"""

from unpooled.methods.causal_fi.paper.fit import (
    conditional_effects,
    fit,
    individual_effects,
    most_rounds,
    stages,
)

__all__ = ["conditional_effects", "fit", "individual_effects", "most_rounds", "stages"]
