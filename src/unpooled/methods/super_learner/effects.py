"""Conditional and individual effects at a site, by draws of all candidates in proportion to their weights."""

from __future__ import annotations

import numpy as np

from unpooled.methods.causal_forest.effects import arms_of
from unpooled.methods.fedci.mixture import mix
from unpooled.methods.super_learner.settings import CONSTANT, FOREST, Candidate
from unpooled.models.other_arm import other_arm
from unpooled.models.outcome_family import Family
from unpooled.protocol.records import Draws
from unpooled.protocol.rows import Rows


def conditional(candidates: dict[str, Candidate], draws: Draws, rows: Rows, people: Rows) -> np.ndarray:
    """CATE draws [K, people]: a mixture of those of the candidates, stretched about its mean."""
    shared, found = draws.shared, {}
    names = [*candidates, CONSTANT]
    shares = {name: float(share) for name, share in zip(names, shared["share"], strict=True) if share > 0.0}
    for name in shares:
        if name == CONSTANT:
            found[name] = np.repeat(shared["constant"][:, None], len(people.present), axis=1)
            continue
        one = candidates[name]
        own = Draws(shared["candidates"][name], draws.by_site.get(name, {}))
        found[name] = one.method.conditional_effects(one.settings, one.context, own, rows, people)
    count = len(shared["constant"])
    mixed = mix({name: value[:, None] for name, value in found.items()}, shares, count)
    mean = mixed.mean(axis=0)
    return mean + float(shared["stretch"]) * (mixed - mean)


def arm_draws(
    family: Family, candidates: dict[str, Candidate], draws: Draws, rows: Rows, people: Rows
) -> np.ndarray:
    """Draws [K, people, 2] of the mean outcome in both arms: the forests say what they have in common."""
    effects = conditional(candidates, draws, rows, people)
    trees = candidates[FOREST].settings.nuisance_trees  # pyright: ignore[reportAttributeAccessIssue]
    return arms_of(family, trees, draws.shared["candidates"][FOREST], effects, people)


def individual(
    family: Family, candidates: dict[str, Candidate], draws: Draws, rows: Rows, people: Rows, seed: int
) -> np.ndarray:
    """ITE draws (2w − 1)(y − y_mis) [K, people], with y_mis drawn about the mean of the other arm."""
    means = arm_draws(family, candidates, draws, rows, people)
    return other_arm(family, means, draws.shared["noise"], people, seed)
