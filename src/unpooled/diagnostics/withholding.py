"""What may be shown of which site, so that nobody is found in it: not even by subtraction from totals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

LEAST = 10
"""Fewest people of a site that anything is shown of by itself: as many as a site's own limits ask for."""
CELL = 5
"""Fewest people behind a number that is shown."""


def withheld(counts: Mapping[str, int], least: int = LEAST) -> dict[str, str]:
    """Sites that nothing is shown of, and why.

    Totals less what is shown would tell of a single hidden site, or of several with few people in all: then
    the next smallest site is hidden with them.

    >>> list(withheld({"a": 413, "b": 164, "c": 22, "d": 3}))
    ['d', 'c']
    >>> withheld({"a": 413, "b": 164})
    {}
    """
    small = {site: f"fewer than {least} people" for site, count in counts.items() if count < least}
    if not small:
        return {}
    rest = sorted((count, site) for site, count in counts.items() if site not in small)
    hidden = dict(small)
    while rest and (len(hidden) < 2 or sum(counts[site] for site in hidden) < least):
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
            if not hidden.any() or (hidden.sum() > 1 and not np.any((behind > 0) & (behind < CELL))):
                break
            shown[site, feature] = False
    return shown
