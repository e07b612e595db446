"""The whole disclosure surface of a site: one match over the questions it may be asked."""

from __future__ import annotations

import jax
import numpy as np

from unpooled.data.describing import describe
from unpooled.data.encoding import encode
from unpooled.errors import MessageError, UnpooledError
from unpooled.protocol.batch import one_by_one
from unpooled.protocol.messages import (
    Adopt,
    Adopted,
    Ask,
    Describe,
    Described,
    Gradient,
    Message,
    PullBack,
    Refusal,
    Replies,
    Statistics,
    Summarise,
    Summary,
    Together,
    Tree,
)
from unpooled.protocol.rows import Rows
from unpooled.protocol.stage import Stage
from unpooled.site.limits import check_cells, check_parameters, check_rows
from unpooled.site.site import Adoption, Site, adopt
from unpooled.study import Schema


def answer(site: Site, question: Message) -> Message:
    """The site's reply, or its refusal in words; never a row."""
    try:
        return _answer(site, question)
    except UnpooledError as error:
        return Refusal(type(error).__name__, error.expected, error.found, error.remedy)


def _answer(site: Site, question: Message) -> Message:
    match question:
        case Describe():
            described = describe(site.frame, site.columns)
            check_rows(site.limits, described.rows)
            check_cells(site.limits, {f"arm {level}": count for level, count in described.arms.items()})
            return Described(described.model_dump(mode="json"))
        case Summarise(schema, centre):
            return Summary(_summarise(site, Schema(**schema), centre))
        case Adopt():
            site.adopted = adopt(site, question)
            features = len(site.adopted.schema.features)
            check_parameters(site.limits, features + 1, site.adopted.count)
            return Adopted(site.adopted.count)
        case Ask(name, parameters):
            study = _adopted(site)
            result = one_by_one(_statistics, parameters, _stage(study, name), study.rows)
            return Statistics(result["total"], result["each"])
        case PullBack(name, parameters, cotangent):
            study = _adopted(site)
            batch = (parameters["free"], parameters["fixed"], cotangent)
            gradient, value = one_by_one(_pull_back, batch, _stage(study, name), study.rows)
            # Statistics with structure travel by `Ask`; a scalar comes along for nothing (Algorithm 1).
            return Gradient(gradient, value["total"] if isinstance(value["total"], np.ndarray) else None)
        case Together(questions):
            return Replies(tuple(_answer(site, part) for part in questions))
    raise MessageError(
        "a site answers the protocol's questions only", found=type(question).__name__, remedy="see docs"
    )


def _summarise(site: Site, schema: Schema, centre: Tree) -> Tree:
    arrays = encode(site.frame, site.columns, schema, site=site.name)
    assert arrays.outcome is not None
    values = np.column_stack([arrays.covariates, arrays.outcome])
    binary = np.flatnonzero(schema.binary)
    ones = {schema.features[i]: int(arrays.covariates[:, i].sum()) for i in binary}
    zeros = {f"{name} (zeros)": len(values) - count for name, count in ones.items()}
    check_cells(site.limits, ones | zeros)
    if centre is None:
        return {"count": len(values), "total": values.sum(axis=0)}
    centred = values - centre
    powers = {f"power{k}": (centred**k).sum(axis=0) for k in (1, 2, 3, 4)}
    return {"count": len(values), "cross": centred[:, :-1].T @ centred[:, :-1], **powers}


def _adopted(site: Site) -> Adoption:
    if site.adopted is None:
        raise MessageError(
            "a site must adopt a study first", found="a question before it", remedy="ask `Adopt` first"
        )
    return site.adopted


def _stage(study: Adoption, name: str) -> Stage:
    if name not in study.stages:
        raise MessageError(
            "the stage must be the method's", found="an unknown stage", remedy="run one version"
        )
    return study.stages[name]


def _statistics(parameters: Tree, stage: Stage, rows: Rows) -> Tree:
    return stage.statistics(parameters, rows)


def _pull_back(leaves: Tree, stage: Stage, rows: Rows) -> tuple[Tree, Tree]:
    free, fixed, cotangent = leaves
    value, pull = jax.vjp(lambda moving: stage.statistics({"free": moving, "fixed": fixed}, rows), free)
    mine = jax.tree.map(lambda leaf: leaf[rows.site], cotangent["each"])
    return pull({"total": cotangent["total"], "each": mine})[0], value
