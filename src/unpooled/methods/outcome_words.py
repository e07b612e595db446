"""How the outcome of a study was read and modelled, in words for people."""

from __future__ import annotations

from unpooled.methods import method as methods
from unpooled.study import Study
from unpooled.study.family import MODELLED, WHY, Family


def outcome_words(study: Study, family: Family) -> str:
    """Which family the outcome has and why, how the method models it, and how to overrule the choice."""
    method = methods.find(study.method.name)
    model = method.outcome_model(methods.settings_of(method, study.method.settings), family)
    columns = study.columns
    modelled = f"The method {study.method.name} models it {model}."
    if columns.family != "auto":
        return f"The outcome '{columns.outcome}' is {MODELLED[family]}, as the study says. {modelled}"
    other = "binary" if family == "continuous" else "continuous"
    example = f'name a family in the study\'s columns, such as family = "{other}"'
    return (
        f"The outcome '{columns.outcome}' is taken as {MODELLED[family]}: {WHY[family]}. {modelled} "
        f"To overrule the choice, {example}."
    )
