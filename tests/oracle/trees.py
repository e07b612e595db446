"""A plain recursive tree on one stacked table, split by bins, person by person in the histograms."""

from __future__ import annotations

import numpy as np

BINS = 32


def tree(
    bins: np.ndarray,
    num: np.ndarray,
    den: np.ndarray,
    tried: list[np.ndarray],
    smallest: float,
    last_bits: int,
) -> dict[int, tuple[int, int]]:
    """{node: (feature, cut)} of the nodes that are split; `tried` are the features of each level."""
    depth = len(tried)
    cells = max(BINS, 2 ** (depth - 1 + last_bits))
    found: dict[int, tuple[int, int]] = {}

    def grow(node: int, level: int, people: np.ndarray) -> None:
        if level == depth:
            return
        width = max(BINS // (cells // 2**level), 1)  # the deeper, the wider the bins
        whole = num[people].sum() ** 2 / den[people].sum() if den[people].sum() > 0 else 0.0
        best, chosen = 0.0, None
        for feature in tried[level]:
            for cut in range(width - 1, BINS - 1, width):
                left = people & (bins[:, feature] <= cut)
                right = people & (bins[:, feature] > cut)
                if min(den[left].sum(), den[right].sum()) < smallest * den.sum():
                    continue
                gain = sum(num[side].sum() ** 2 / den[side].sum() for side in (left, right)) - whole
                if gain > best * (1 + 1e-7) + 1e-9:
                    best, chosen = gain, (int(feature), cut)
        if chosen is None:
            return
        found[node] = chosen
        feature, cut = chosen
        grow(2 * node + 1, level + 1, people & (bins[:, feature] <= cut))
        grow(2 * node + 2, level + 1, people & (bins[:, feature] > cut))

    grow(0, 0, den > 0.0)
    return found


def leaf(splits: dict[int, tuple[int, int]], depth: int, bins: np.ndarray) -> int:
    """The leaf of one person: nodes without a split send everybody to the left."""
    node = 0
    for _ in range(depth):
        feature, cut = splits.get(node, (0, BINS - 1))
        node = 2 * node + 1 + int(bins[feature] > cut)
    return node - (2**depth - 1)


def groups(total: np.ndarray, largest: np.ndarray, least: float) -> list[int]:
    """The first cell of the group of each cell of one node; −1 if there is no group large enough."""
    found: list[list[int]] = [[]]
    for cell in range(len(total)):
        found[-1].append(cell)
        top = max(largest[one] for one in found[-1])
        if top > 0 and sum(total[one] for one in found[-1]) > least * top:
            found.append([])
    rest = found.pop()
    if not found:
        return [-1] * len(total)
    starts = [group[0] for group in found for _ in group]
    return starts + [found[-1][0]] * len(rest)
