"""A setting that has no effect is refused; the message names it and the setting that decides."""

from __future__ import annotations

from typing import Any

import pytest

from unpooled.errors import StudyError
from unpooled.methods.method import METHODS, find, settings_of, with_settings
from unpooled.study import Study

IDLE: list[tuple[str, dict[str, Any], str, str]] = [
    ("fedci", {"rounds": 50}, "rounds", "inference = 'collapsed'; it needs inference = 'variational'"),
    ("fedci", {"wishart_mean": 0.7}, "wishart_mean", "inference = 'collapsed'"),
    ("fedci", {"inference": "variational", "structure": "ard"}, "structure", "inference = 'variational'"),
    ("fedci", {"inference": "variational", "evaluations": 9}, "evaluations", "inference = 'variational'"),
    (
        "fedci",
        {"structure": "projection", "basis": 8},
        "basis",
        "structure = 'projection'; it needs structure = 'auto' or 'isotropic' or 'ard'",
    ),
    ("fedci", {"structure": "paper", "basis": 8}, "basis", "structure = 'paper'"),
    ("fedci", {"structure": "isotropic", "folds": 3}, "folds", "structure = 'isotropic'"),
    ("causal_rff", {"confounding": "observed", "latent": "both"}, "latent", "confounding = 'observed'"),
    ("causal_rff", {"confounding": "observed", "classes": 3}, "classes", "confounding = 'observed'"),
    (
        "causal_rff",
        {"confounding": "latent", "latent": "gaussian", "classes": 3},
        "classes",
        "latent = 'gaussian'; it needs latent = 'categorical' or 'both'",
    ),
    ("causal_rff", {"gaussian_rounds": 9}, "gaussian_rounds", "latent = 'categorical'"),
    ("causal_rff", {"confounding": "latent", "site_terms": "none"}, "site_terms", "confounding = 'latent'"),
    ("causal_fi", {"hidden": (4,)}, "hidden", "inference = 'compatible'"),
    ("causal_fi", {"inference": "variational", "sweeps": 9}, "sweeps", "inference = 'variational'"),
    ("causal_fi", {"structure": "linear", "folds": 2}, "folds", "structure = 'linear'"),
    ("aipw", {"estimator": "difference", "trim": 0.05}, "trim", "estimator = 'difference'"),
    ("aipw", {"estimator": "difference", "folds": 2}, "folds", "estimator = 'difference'"),
]


@pytest.mark.parametrize(("method", "values", "idle", "decides"), IDLE, ids=str)
def test_a_setting_without_effect_is_refused_and_both_settings_are_named(
    method: str, values: dict[str, Any], idle: str, decides: str
) -> None:
    with pytest.raises(StudyError) as raised:
        settings_of(find(method), values)
    assert raised.value.expected == "every setting must have an effect"
    assert f"'{idle}' has no effect with {decides}" in raised.value.found
    assert raised.value.remedy == "remove it"


def test_a_study_is_refused_where_one_of_its_settings_has_no_effect() -> None:
    study = Study(treatment="w", outcome="y", covariates=["a"])
    with pytest.raises(StudyError, match="'basis' has no effect with structure = 'paper'"):
        with_settings(study, "fedci", {"structure": "paper", "basis": 8})


@pytest.mark.parametrize(
    ("method", "values"),
    [
        ("fedci", {"basis": 8, "folds": 3, "evaluations": 9}),
        ("fedci", {"inference": "variational", "rounds": 50, "mean": "network"}),
        ("fedci", {"structure": "ard", "basis": 8}),
        ("causal_rff", {"classes": 3, "site_terms": "transfer"}),
        # With `auto`, classes are among the candidates whatever `latent` is.
        ("causal_rff", {"confounding": "auto", "latent": "gaussian", "classes": 3, "latent_dimension": 2}),
        ("causal_rff", {"confounding": "latent", "latent": "both", "classes": 3, "latent_dimension": 2}),
        ("causal_fi", {"inference": "variational", "hidden": (4,), "rounds": 9}),
        ("causal_fi", {"folds": 2, "sweeps": 9}),
        ("aipw", {"estimator": "ipw", "trim": 0.05, "folds": 2}),
    ],
    ids=str,
)
def test_settings_that_have_an_effect_are_taken(method: str, values: dict[str, Any]) -> None:
    settings = settings_of(find(method), values)
    assert {name: getattr(settings, name) for name in values} == values


@pytest.mark.parametrize("method", METHODS)
def test_a_default_is_never_refused_even_where_it_has_no_effect(method: str) -> None:
    """A study is stored with every setting spelled out, those without effect included."""
    kind = find(method).Settings
    deciding = {other for _, needed in kind.applies for other in needed}
    for name in deciding:
        for value in kind.model_fields[name].annotation.__args__:  # type: ignore[union-attr]
            whole = settings_of(find(method), {name: value}) if _alone(kind, name, value) else None
            if whole is not None:
                assert settings_of(find(method), whole.model_dump(mode="json")) == whole


def _alone(kind: Any, name: str, value: object) -> bool:
    """Whether this value is allowed where every other setting keeps its default."""
    try:
        kind(**{name: value})
    except ValueError:
        return False
    return True


@pytest.mark.parametrize("method", METHODS)
def test_conditions_name_settings_and_values_that_exist(method: str) -> None:
    kind = find(method).Settings
    for names, needed in kind.applies:
        assert set(names) | set(needed) <= set(kind.model_fields)
        for other, values in needed.items():
            assert set(values) <= set(kind.model_fields[other].annotation.__args__)  # type: ignore[union-attr]
