"""Which numbers of a study the coordinator sees of each site, where all others are sums over sites."""

from __future__ import annotations

from dataclasses import replace

import jax
import numpy as np

from unpooled.diagnostics.expected_cost import shape_of
from unpooled.methods import method as methods
from unpooled.methods.diagnostics import rounds as diagnostic_rounds
from unpooled.protocol.records import Scaling
from unpooled.protocol.rows import shapes_of_rows
from unpooled.site.answer import statistics_of
from unpooled.study import Study

SIZE = 100
"""People of a table whose shapes are asked for; no number by site depends on how many there are."""


def seen_by_site(study: Study, scaling: Scaling, subgroups: int = 0) -> dict[str, dict[str, int]]:
    """By stage, as a fit usually asks: the names of the numbers that leave for each site, and how many.

    Numbers of different θ count separately. `subgroups` is how many groups the study names.
    """
    method = methods.find(study.method.name)
    settings = methods.settings_of(method, study.method.settings)
    context = method.context(settings, scaling, study.seed)
    stages = diagnostic_rounds.of_study(study, method.stages(settings, context), scaling)
    course = method.expected(settings, context)
    if study.diagnostics and study.by_site:
        course = course.beside(diagnostic_rounds.expected(scaling, diagnostic_rounds.FOLDS))
    features, incomplete = len(scaling.mean), len(scaling.incomplete_mean)
    rows = shapes_of_rows(SIZE, features, incomplete, fold_draws=settings.fold_draws, groups=subgroups)
    others = replace(shapes_of_rows(SIZE, features + 2 * incomplete), seen=rows.seen)
    found: dict[str, dict[str, int]] = {}
    for one in course.questions:
        if one.gradient:
            continue  # gradients are sums
        table = others if one.stage.startswith(diagnostic_rounds.PREFIX) else rows
        reply = jax.eval_shape(
            statistics_of, jax.tree.map(shape_of, one.parameters), stages[one.stage], table
        )
        counts = found.setdefault(one.stage, {})
        for name, part in reply.per_site.items():
            size = one.thetas * sum(int(np.prod(leaf.shape)) for leaf in jax.tree.leaves(part))
            counts[name] = counts.get(name, 0) + size
    return {stage: counts for stage, counts in found.items() if counts}
