"""What the settings of all methods share."""

from __future__ import annotations

from itertools import product
from typing import ClassVar

from pydantic import BaseModel, ConfigDict, model_validator

Conditions = tuple[tuple[tuple[str, ...], dict[str, tuple[object, ...]]], ...]
"""Settings that have an effect only with some values of other settings: their names, and those values."""


class MethodSettings(BaseModel):
    """Settings are checked when the study is read, before anything is sent."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    applies: ClassVar[Conditions] = ()

    @model_validator(mode="after")
    def _every_setting_applies(self) -> MethodSettings:
        for names, conditions in self.applies:
            changed = [name for name in names if getattr(self, name) != type(self).model_fields[name].default]
            for name, (other, values) in product(changed, conditions.items()):
                if getattr(self, other) not in values:
                    needed = " or ".join(repr(value) for value in values)
                    raise ValueError(
                        f"'{name}' has no effect with {other} = {getattr(self, other)!r}; "
                        f"it needs {other} = {needed}"
                    )
        return self
