"""What may be shown of which site, so that nobody is found in it: not even by subtraction from totals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from unpooled.disclosure.limits import CELL, LEAST


def few(count: np.ndarray) -> np.ndarray:
    """Whether somebody stands behind a number, and too few to be hidden among."""
    return (count > 0) & (count < CELL)


def withheld(
    counts: Mapping[str, int],
    arms: np.ndarray | None = None,
    total: np.ndarray | None = None,
    least: int = LEAST,
) -> dict[str, str]:
    """Sites that nothing is shown of, and why; `arms` [site, arm] are as told, `total` [arm] of all sites.

    Totals less what is shown would tell of a single hidden site, or of several with few people in all or in
    an arm: then the next smallest site is hidden with them.

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
        if site not in hidden and np.any(known[site] < CELL):
            hidden[site] = f"fewer than {CELL} people in an arm"

    def told_apart() -> bool:
        behind = everybody - sum(known[site] for site in counts if site not in hidden)
        return len(hidden) < 2 or sum(counts[site] for site in hidden) < least or bool(np.any(few(behind)))

    rest = sorted((count, site) for site, count in counts.items() if site not in hidden)
    while hidden and rest and told_apart():
        hidden[rest.pop(0)[1]] = "so that a smaller site cannot be worked out from the totals"
    return hidden


def complemented(
    kept: np.ndarray, people: Sequence[int], groups: np.ndarray, totals: np.ndarray
) -> np.ndarray:
    """Which cells [site, feature] may be shown beside the totals over sites.

    `kept` says which a site told of. `groups` [group, site, feature] are the people behind them, such as the
    treated with a flag, and `totals` [group, feature] those of all sites. Where one site's cell would be
    hidden alone, or few people in all, the next smallest site's is hidden too.

    >>> kept, groups = np.array([[True], [True], [False]]), np.array([[[30], [10], [0]]])
    >>> complemented(kept, [50, 20, 9], groups, np.array([[42]])).ravel().tolist()
    [True, False, False]
    """
    shown = kept.copy()
    for feature in range(kept.shape[1]):
        for site in np.argsort(people, kind="stable"):
            hidden = ~shown[:, feature]
            behind = totals[:, feature] - groups[:, ~hidden, feature].sum(axis=1)
            if not hidden.any() or (hidden.sum() > 1 and not np.any(few(behind))):
                break
            shown[site, feature] = False
    return shown
