"""The base class of all methods' settings."""

from __future__ import annotations

from typing import ClassVar

from pydantic import BaseModel, ConfigDict, model_validator

Conditions = tuple[tuple[tuple[str, ...], dict[str, tuple[object, ...]]], ...]
"""Settings that have an effect only for certain values of other settings: names, and required values.

A setting that is listed more than once has an effect if any of its conditions holds.
"""


class MethodSettings(BaseModel):
    """Settings of a method, validated when the study is read, before anything is sent."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    applies: ClassVar[Conditions] = ()
    """Conditions under which settings have an effect; setting one that has none is an error."""

    @model_validator(mode="after")
    def _every_setting_applies(self) -> MethodSettings:
        for name, field in type(self).model_fields.items():
            conditions = [needed for names, needed in self.applies if name in names]
            missed = [self._missed(needed) for needed in conditions]
            if getattr(self, name) != field.default and missed and None not in missed:
                raise ValueError(f"'{name}' has no effect with {missed[0]}")
        return self

    def _missed(self, needed: dict[str, tuple[object, ...]]) -> str | None:
        """A description of the first condition that does not hold; None if all hold."""
        for other, values in needed.items():
            if getattr(self, other) not in values:
                allowed = " or ".join(repr(value) for value in values)
                return f"{other} = {getattr(self, other)!r}; it needs {other} = {allowed}"
        return None
