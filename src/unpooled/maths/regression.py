"""Gaussian regression for two arms with site shifts, from sums of site statistics.

y = Σ_f φ_f(x) β_f[w] + g_s[w] + e, with e ~ N(0, R) within a site, β_f = T_f ξ_f and
g_s = T_g(Σ_k L_sk ζ_k + d_s ε_s); ξ, ζ and ε are standard normal. The posterior precision of (ξ, ζ) is
I + (design)ᵀR⁻¹(design), which is never singular, even if a variance is zero. A site's own part ε_s is
integrated out site by site, so that the cost is linear in the number of sites.

The slopes of the log evidence are posterior expectations (Fisher's identity), so that no derivative of a
Cholesky factor is taken. Everything here is plain NumPy: the matrices are small, and nothing is compiled.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import numpy as np
from jaxtyping import Array, Float
from scipy.linalg import solve_triangular

Either: TypeAlias = Array | np.ndarray
"""An array of JAX, which priors are computed by, or of NumPy."""


class RegressionSums(NamedTuple):
    """Sufficient statistics of the rows, weighted by R⁻¹. Feature 0 is the intercept, on which shifts act."""

    gram: Float[np.ndarray, "2 2 p p"]
    moment: Float[np.ndarray, "2 p"]
    square: Float[np.ndarray, ""]
    log_determinant: Float[np.ndarray, ""]
    site_gram: Float[np.ndarray, "m 2 2 p"]
    site_moment: Float[np.ndarray, "m 2"]


class RegressionPrior(NamedTuple):
    """T_f of every feature, T_g of the shifts (None for a model without shifts), and L and d of the sites."""

    feature: Float[Either, "p 2 2"]
    shift: Float[Either, "2 2"] | None
    site: Float[Either, "m r"]
    """L: what shifts have in common with those of similar sites."""
    own: Float[Either, " m"] | None = None
    """d: the sd of what a site's shift has in common with no other; None if L is all there is."""


class SiteParts(NamedTuple):
    """ε_s given everything else is N(N_s B_sᵀr_s, N_s), with r_s = m_s − X_sβ − O_s T_g Σ_k L_sk ζ_k."""

    root: Float[np.ndarray, "m 2 2"]
    """B_s = d_s T_g."""
    spread: Float[np.ndarray, "m 2 2"]
    """N_s = (I + B_sᵀO_sB_s)⁻¹, where O_s is the information about the shift."""


class RegressionPosterior(NamedTuple):
    """(ξ, ζ) | y ~ N(A⁻¹b, A⁻¹) with A = CCᵀ; `whitened` is C⁻¹b."""

    log_evidence: float
    cholesky: Float[np.ndarray, "q q"]
    whitened: Float[np.ndarray, " q"]
    sums: RegressionSums
    prior: RegressionPrior
    parts: SiteParts | None
    joint: JointSums


class JointSums(NamedTuple):
    """The sums over people of all columns: the features, then the columns of L; T of each column.

    The sites' own parts are integrated out.
    """

    gram: Float[np.ndarray, "2 2 j j"]
    moment: Float[np.ndarray, "2 j"]
    factors: Float[np.ndarray, "j 2 2"]
    left: RegressionSums
    """The sums from which these were computed."""


def posterior(sums: RegressionSums, prior: RegressionPrior) -> RegressionPosterior:
    """The exact posterior and the exact log marginal likelihood (up to n·log 2π/2).

    All of it is NaN if the precision is not positive definite because the sums are not those of any rows.
    """
    parts = None if prior.shift is None or prior.own is None else _site_parts(sums, prior)
    left = sums if parts is None else _without(parts, sums)
    joint = gram, moment, factors, _ = _joint(left, prior)
    size = 2 * len(factors)
    precision = _both_sides(factors, gram).reshape(size, size) + np.eye(size)
    score = np.einsum("jak,aj->kj", factors, moment).reshape(-1)
    try:
        root = np.linalg.cholesky(precision)
    except np.linalg.LinAlgError:
        root = np.full_like(precision, np.nan)
    whitened = solve_triangular(root, score, lower=True, check_finite=False)
    evidence = 0.5 * (whitened @ whitened - left.square - left.log_determinant)
    evidence -= np.sum(np.log(np.diagonal(root)))
    return RegressionPosterior(float(evidence), root, whitened, sums, prior, parts, joint)


def with_combination(sums: RegressionSums, combination: Float[np.ndarray, " p"]) -> RegressionSums:
    """The sums with one more feature, a linear combination of the others."""

    def appended(array: np.ndarray) -> np.ndarray:
        return np.concatenate([array, (array @ combination)[..., None]], axis=-1)

    def on_both_sides(gram: np.ndarray) -> np.ndarray:
        return np.swapaxes(appended(np.swapaxes(appended(gram), -1, -2)), -1, -2)

    return RegressionSums(
        gram=on_both_sides(sums.gram),
        moment=appended(sums.moment),
        square=sums.square,
        log_determinant=sums.log_determinant,
        site_gram=appended(sums.site_gram),
        site_moment=sums.site_moment,
    )


def without_combination(slopes: RegressionSums, combination: Float[np.ndarray, " p"]) -> RegressionSums:
    """Slopes with respect to sums, from those with respect to the sums `with_combination`."""

    def folded(array: np.ndarray) -> np.ndarray:
        return array[..., :-1] + array[..., -1:] * combination

    def on_both_sides(gram: np.ndarray) -> np.ndarray:
        return np.swapaxes(folded(np.swapaxes(folded(gram), -1, -2)), -1, -2)

    return RegressionSums(
        gram=on_both_sides(slopes.gram),
        moment=folded(slopes.moment),
        square=slopes.square,
        log_determinant=slopes.log_determinant,
        site_gram=folded(slopes.site_gram),
        site_moment=slopes.site_moment,
    )


def coefficients(
    fitted: RegressionPosterior, noise: Float[np.ndarray, "j n"] | None = None
) -> tuple[Float[np.ndarray, "j 2 p"], Float[np.ndarray, "j 2 m"]]:
    """β and g: a draw for each row of standard normal numbers, of which each takes `noise_size`.

    Without `noise`, their posterior mean, as a single draw.
    """
    prior, size = fitted.prior, len(fitted.whitened)
    used = np.zeros((1, noise_size(prior))) if noise is None else noise
    white = fitted.whitened + used[:, :size]
    xi = solve_triangular(fitted.cholesky, white.T, lower=True, trans=1, check_finite=False).T
    raw = np.einsum("jak,nkj->naj", fitted.joint.factors, xi.reshape(len(xi), 2, -1))
    features, sites = len(prior.feature), len(prior.site)
    beta = raw[..., :features]
    if prior.shift is None:
        return beta, np.zeros((len(xi), 2, sites))
    shift = raw[..., features:] @ prior.site.T
    if fitted.parts is None:
        return beta, shift
    root, spread = fitted.parts
    sums = fitted.sums
    residual = sums.site_moment - np.einsum("sabf,nbf->nsa", sums.site_gram, beta)
    residual -= np.einsum("sab,nbs->nsa", sums.site_gram[..., 0], shift)
    own = np.einsum("skl,sal,nsa->nsk", spread, root, residual)
    own += np.einsum("skl,nsl->nsk", np.linalg.cholesky(spread), used[:, size:].reshape(-1, sites, 2))
    return beta, shift + np.einsum("sak,nsk->nas", root, own)


def noise_size(prior: RegressionPrior) -> int:
    """The number of standard normal numbers that a draw of the coefficients takes."""
    shared = 2 * (len(prior.feature) + (0 if prior.shift is None else prior.site.shape[1]))
    return shared if prior.shift is None or prior.own is None else shared + 2 * len(prior.own)


def evidence_slopes(fitted: RegressionPosterior) -> tuple[RegressionSums, RegressionPrior]:
    """The slopes of the log evidence with respect to the sums and the prior.

    With coefficients v = (β, g) of the columns, ∂/∂moment = E[v], ∂/∂gram = −½E[vvᵀ], and
    ∂/∂T = E[(moment − gram·v)ξᵀ].
    """
    prior, size = fitted.prior, len(fitted.whitened)
    gram, moment, factors, left = fitted.joint
    features, columns = len(prior.feature), size // 2
    inverse_root = solve_triangular(fitted.cholesky, np.eye(size), lower=True, check_finite=False)
    mean = fitted.whitened @ inverse_root
    # E[ξξᵀ], E[ξvᵀ] and E[vvᵀ], [arm, column, arm, column]; here ξ includes ζ. Sums over the two arms are
    # written out: einsum takes longer.
    white = (inverse_root.T @ inverse_root + np.outer(mean, mean)).reshape(2, columns, 2, columns)
    by_arm = factors.transpose(1, 2, 0)
    mixed = white[:, :, :1] * by_arm[:, 0] + white[:, :, 1:] * by_arm[:, 1]
    products = by_arm[:, 0, :, None, None] * mixed[0] + by_arm[:, 1, :, None, None] * mixed[1]
    mean = mean.reshape(2, columns)
    expected = by_arm[:, 0] * mean[0] + by_arm[:, 1] * mean[1]
    pulled = np.sum(gram.transpose(0, 2, 1, 3)[:, None] * mixed, axis=(3, 4))
    of_factors = (moment[:, None] * mean - pulled).transpose(2, 0, 1)
    of_sums = RegressionSums(
        gram=-0.5 * products[:, :features, :, :features].transpose(0, 2, 1, 3),
        moment=expected[:, :features],
        square=np.asarray(-0.5),
        log_determinant=np.asarray(-0.5),
        site_gram=np.zeros_like(fitted.sums.site_gram),
        site_moment=np.zeros_like(fitted.sums.site_moment),
    )
    if prior.shift is None:
        return of_sums, RegressionPrior(of_factors, None, np.zeros_like(prior.site), prior.own)
    shifts = _shared_shifts(np.asarray(prior.site), expected, products, features)
    # ∂/∂L_sk = E[(m_s − X_sβ − O_s g_s)ᵀT_g ζ_k]
    of_site = left.site_moment @ expected[:, features:]
    of_site -= np.tensordot(left.site_gram, products[:, features:, :, :features], ((1, 2, 3), (0, 2, 3)))
    bound = np.einsum("sab,si->sabi", left.site_gram[..., 0], prior.site)
    of_site -= np.tensordot(bound, products[:, features:, :, features:], ((1, 2, 3), (0, 2, 3)))
    of_shift, of_own = of_factors[features:].sum(axis=0), None
    if fitted.parts is not None:
        assert prior.own is not None
        shifts, of_root = _all_shifts(fitted.parts, fitted.sums, shifts, of_sums)
        of_shift = of_shift + np.einsum("s,sak->ak", prior.own, of_root)
        of_own = np.einsum("sak,ak->s", of_root, prior.shift)
    of_sums = of_sums._replace(site_gram=-shifts.with_features, site_moment=shifts.mean)
    of_sums.site_gram[..., 0] -= 0.5 * shifts.squares
    return of_sums, RegressionPrior(of_factors[:features], of_shift, of_site, of_own)


class Shifts(NamedTuple):
    """Posterior expectations of the sites' shifts, of their products with β, and with themselves."""

    mean: Float[np.ndarray, "m 2"]
    with_features: Float[np.ndarray, "m 2 2 p"]
    squares: Float[np.ndarray, "m 2 2"]


def _shared_shifts(site: np.ndarray, expected: np.ndarray, products: np.ndarray, features: int) -> Shifts:
    """The part T_g Σ_k L_sk ζ_k of the shifts, from E[v] and E[vvᵀ]."""
    with_features = np.tensordot(site, products[:, features:, :, :features], (1, 1))
    half = np.tensordot(site, products[:, features:, :, features:], (1, 1))
    return Shifts(site @ expected[:, features:].T, with_features, np.einsum("sabi,si->sab", half, site))


def _all_shifts(
    parts: SiteParts, sums: RegressionSums, shared: Shifts, slopes: RegressionSums
) -> tuple[Shifts, Float[np.ndarray, "m 2 2"]]:
    """The shifts with the sites' own parts, and the slopes with respect to B_s.

    Given r_s, the own part B_sε_s has mean C_s r_s and covariance C_s = B_s N_s B_sᵀ.
    """
    root, spread = parts
    own = root @ spread @ np.swapaxes(root, 1, 2)
    moment, information = sums.site_moment, sums.site_gram[..., 0]
    # E[r], E[rβᵀ], E[rgᵀ] of the shared part g, and E[rrᵀ].
    products = -2.0 * slopes.gram.transpose(0, 2, 1, 3)
    mean = moment - np.einsum("sabf,bf->sa", sums.site_gram, slopes.moment)
    mean -= np.einsum("sab,sb->sa", information, shared.mean)
    with_features = np.einsum("sa,bf->sabf", moment, slopes.moment)
    with_features -= np.tensordot(sums.site_gram, products, ((2, 3), (0, 1)))
    with_features -= np.einsum("sab,sbcf->sacf", information, shared.with_features)
    with_shift = np.einsum("sa,sb->sab", moment, shared.mean)
    with_shift -= np.einsum("sabf,scbf->sac", sums.site_gram, shared.with_features)
    with_shift -= information @ shared.squares
    squares = np.einsum("sa,sb->sab", mean, moment)
    squares -= np.einsum("sabf,scbf->sac", with_features, sums.site_gram)
    squares -= with_shift @ np.swapaxes(information, 1, 2)
    crossed = own @ with_shift
    found = Shifts(
        shared.mean + np.einsum("sab,sb->sa", own, mean),
        shared.with_features + np.einsum("sab,sbcf->sacf", own, with_features),
        shared.squares + crossed + np.swapaxes(crossed, 1, 2) + own + own @ squares @ own,
    )
    pulled = squares @ root @ spread
    return found, pulled - information @ root @ (spread + spread @ np.swapaxes(root, 1, 2) @ pulled)


def _joint(sums: RegressionSums, prior: RegressionPrior) -> JointSums:
    feature = np.asarray(prior.feature)
    if prior.shift is None:
        return JointSums(sums.gram, sums.moment, feature, sums)
    site, features = np.asarray(prior.site), len(feature)
    columns = features + site.shape[1]
    cross = np.tensordot(site, sums.site_gram, (0, 0))
    own = np.tensordot(site[:, :, None, None] * sums.site_gram[:, None, :, :, 0], site, (0, 0))
    gram = np.empty((2, 2, columns, columns))
    gram[:, :, :features, :features] = sums.gram
    gram[:, :, features:, :features] = cross.transpose(1, 2, 0, 3)
    gram[:, :, :features, features:] = cross.transpose(2, 1, 3, 0)
    gram[:, :, features:, features:] = own.transpose(1, 2, 0, 3)
    moment = np.concatenate([sums.moment, sums.site_moment.T @ site], axis=1)
    factors = np.concatenate([feature, np.broadcast_to(prior.shift, (site.shape[1], 2, 2))])
    return JointSums(gram, moment, factors, sums)


def _both_sides(t: Float[np.ndarray, "j 2 2"], gram: np.ndarray) -> Float[np.ndarray, "2 j 2 j"]:
    """Σ_ab T_j[a,k]·gram[a,b,j,i]·T_i[b,l]."""
    by_arm, columns = np.transpose(t, (1, 2, 0)), len(t)
    found = np.empty((2, columns, 2, columns))
    for k in range(2):
        left = by_arm[0, k][:, None] * gram[0] + by_arm[1, k][:, None] * gram[1]
        for other in range(2):
            np.multiply(left[0], by_arm[0, other], out=found[k, :, other])
            found[k, :, other] += left[1] * by_arm[1, other]
    return found


def _site_parts(sums: RegressionSums, prior: RegressionPrior) -> SiteParts:
    root = np.asarray(prior.own)[:, None, None] * np.asarray(prior.shift)
    precision = np.eye(2) + np.swapaxes(root, 1, 2) @ sums.site_gram[..., 0] @ root
    return SiteParts(root, np.linalg.solve(precision, np.broadcast_to(np.eye(2), precision.shape)))


def _without(parts: SiteParts, sums: RegressionSums) -> RegressionSums:
    """The sums with the sites' own parts integrated out."""
    own = parts.root @ parts.spread @ np.swapaxes(parts.root, 1, 2)
    told = np.einsum("sab,sbcf->sacf", own, sums.site_gram)
    seen = np.einsum("sab,sb->sa", own, sums.site_moment)
    information = sums.site_gram[..., 0]
    explained = np.tensordot(sums.site_gram, told, ((0, 1), (0, 1)))
    return RegressionSums(
        gram=sums.gram - explained.transpose(0, 2, 1, 3),
        moment=sums.moment - np.einsum("sabf,sa->bf", sums.site_gram, seen),
        square=sums.square - np.sum(seen * sums.site_moment),
        log_determinant=sums.log_determinant - np.sum(np.linalg.slogdet(parts.spread)[1]),
        site_gram=sums.site_gram - np.einsum("sab,sbcf->sacf", information, told),
        site_moment=sums.site_moment - np.einsum("sab,sb->sa", information, seen),
    )
