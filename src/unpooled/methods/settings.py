"""What the settings of all methods share."""

from __future__ import annotations

from typing import ClassVar

from pydantic import BaseModel, ConfigDict, model_validator

Conditions = tuple[tuple[tuple[str, ...], dict[str, tuple[object, ...]]], ...]
"""Settings that have an effect only with some values of other settings: their names, and those values.

A setting that is listed more than once has an effect where any of its conditions hold.
"""


class MethodSettings(BaseModel):
    """Settings are checked when the study is read, before anything is sent."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    applies: ClassVar[Conditions] = ()

    @model_validator(mode="after")
    def _every_setting_applies(self) -> MethodSettings:
        for name, field in type(self).model_fields.items():
            conditions = [needed for names, needed in self.applies if name in names]
            missed = [self._missed(needed) for needed in conditions]
            if getattr(self, name) != field.default and missed and None not in missed:
                raise ValueError(f"'{name}' has no effect with {missed[0]}")
        return self

    def _missed(self, needed: dict[str, tuple[object, ...]]) -> str | None:
        """The first condition that does not hold, in words; None if all do."""
        for other, values in needed.items():
            if getattr(self, other) not in values:
                allowed = " or ".join(repr(value) for value in values)
                return f"{other} = {getattr(self, other)!r}; it needs {other} = {allowed}"
        return None
