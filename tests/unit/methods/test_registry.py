"""Methods are found by name, and their settings are checked before anything is sent."""

from __future__ import annotations

import pytest

from unpooled.errors import StudyError
from unpooled.methods.method import METHODS, find, settings_of


@pytest.mark.parametrize("name", METHODS)
def test_every_method_has_the_same_face(name: str) -> None:
    method = find(name)
    for part in (
        "Settings",
        "Context",
        "context",
        "stages",
        "fit",
        "conditional_effects",
        "individual_effects",
    ):
        assert hasattr(method, part)
    assert find(name) is method


def test_an_unknown_method_is_refused_with_the_nearest_known_one() -> None:
    with pytest.raises(StudyError, match="did you mean 'fedci'"):
        find("fedcy")


@pytest.mark.parametrize(
    ("setting", "value"),
    [("draws", 1), ("structure", "linear"), ("noise_correlation", 1.0), ("folds", "many")],
)
def test_a_value_out_of_range_is_refused_by_its_name(setting: str, value: object) -> None:
    with pytest.raises(StudyError, match=f"setting '{setting}' must be valid"):
        settings_of(find("fedci"), {setting: value})


def test_settings_cannot_be_changed_once_checked() -> None:
    settings = settings_of(find("fedci"), {})
    with pytest.raises(ValueError, match="frozen"):
        settings.draws = 3
