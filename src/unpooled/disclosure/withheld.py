"""Which sites and cells must be withheld, including those that could be recovered from the totals."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np

from unpooled.disclosure.limits import CELL, LEAST


def few(count: np.ndarray) -> np.ndarray:
    """Whether a count is positive but below the minimum cell size."""
    return (count > 0) & (count < CELL)


def withheld(
    counts: Mapping[str, int],
    arms: np.ndarray | None = None,
    total: np.ndarray | None = None,
    least: int = LEAST,
    kind: str = "site",
    one_arm: Collection[str] = (),
) -> dict[str, str]:
    """Sites, or groups of another `kind`, to withhold, with the reason for each.

    The sites `one_arm` have people in one arm only, which is known to all who take part: an empty arm is not
    a small one.

    `arms` [site, arm] are the counts reported by the sites and `total` [arm] the counts over all sites. The
    totals minus what is shown would reveal a single hidden site, or several hidden sites with few people
    overall or in an arm; in that case the next smallest site is withheld as well.

    >>> list(withheld({"a": 413, "b": 164, "c": 22, "d": 3}))
    ['d', 'c']
    >>> withheld({"a": 413, "b": 164})
    {}
    >>> withheld({"a": 60, "b": 50, "c": 30}, np.array([[20, 40], [30, 20], [26, 0]]), np.array([76, 64]))
    {'c': 'fewer than 5 people in an arm', 'b': 'so that a smaller site cannot be worked out from the totals'}
    """
    known = dict(zip(counts, np.zeros((len(counts), 0)) if arms is None else arms, strict=True))
    everybody = np.zeros(0) if arms is None or total is None else total
    hidden = {site: f"fewer than {least} people" for site, count in counts.items() if count < least}
    for site in counts:
        smallest = np.max if site in one_arm else np.min
        if site not in hidden and arms is not None and smallest(known[site]) < CELL:
            hidden[site] = f"fewer than {CELL} people in an arm"

    def recoverable() -> bool:
        remaining = everybody - sum(known[site] for site in counts if site not in hidden)
        return len(hidden) < 2 or sum(counts[site] for site in hidden) < least or bool(np.any(few(remaining)))

    rest = sorted((count, site) for site, count in counts.items() if site not in hidden)
    while hidden and rest and recoverable():
        hidden[rest.pop(0)[1]] = f"so that a smaller {kind} cannot be worked out from the totals"
    return hidden


def complemented(
    kept: np.ndarray, people: Sequence[int], groups: np.ndarray, totals: np.ndarray
) -> np.ndarray:
    """Which cells [site, feature] may be shown together with the totals over sites (secondary suppression).

    `kept` marks the cells that the sites reported. `groups` [group, site, feature] are the counts behind
    them, such as treated people with a 0/1 feature equal to 1, and `totals` [group, feature] the counts over
    all sites. If a single cell, or cells with few people overall, would be hidden, the cell of the next
    smallest site is hidden too.

    >>> kept, groups = np.array([[True], [True], [False]]), np.array([[[30], [10], [0]]])
    >>> complemented(kept, [50, 20, 9], groups, np.array([[42]])).ravel().tolist()
    [True, False, False]
    """
    shown = kept.copy()
    for feature in range(kept.shape[1]):
        for site in np.argsort(people, kind="stable"):
            hidden = ~shown[:, feature]
            remaining = totals[:, feature] - groups[:, ~hidden, feature].sum(axis=1)
            if not hidden.any() or (hidden.sum() > 1 and not np.any(few(remaining))):
                break
            shown[site, feature] = False
    return shown
