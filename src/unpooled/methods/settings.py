"""The base class of all methods' settings."""

from __future__ import annotations

from typing import ClassVar, Self

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

    @property
    def fold_draws(self) -> int:
        """How many times people are assigned to folds, each time anew."""
        return 1

    @property
    def compares_sites(self) -> bool:
        """Whether the method needs the moments of each site's covariates."""
        return False

    @property
    def differs_by_site(self) -> bool:
        """Whether parameters are sent that may differ by site. If not, a sum is masked with a key that
        depends on them, so that it is lost if a site is sent others."""
        return True

    @property
    def needs_sites(self) -> bool:
        """Whether the method combines estimates of single sites, and so needs effects by site."""
        return False

    @property
    def needs_both_arms(self) -> str:
        """What to do about sites where everybody or nobody was treated; empty if they can take part."""
        return "leave these sites out, or use a method that learns both arms from all sites, such as FedCI"

    @property
    def models_outcomes(self) -> bool:
        """Whether the effect at a site comes from a model of outcomes alone, so that a site with one arm has
        one too. If not, it also rests on comparing the site's own people."""
        return True

    def changed(self, **changes: object) -> Self:
        """The settings with some changed; those that then have no effect return to their defaults."""
        loose = self.model_copy(update=changes)
        fields = type(self).model_fields.items()
        idle = {name: field.default for name, field in fields if loose._without_effect(name)}
        return type(self).model_validate({**loose.model_dump(), **idle})

    @model_validator(mode="after")
    def _every_setting_applies(self) -> Self:
        for name, field in type(self).model_fields.items():
            reason = self._without_effect(name)
            if getattr(self, name) != field.default and reason:
                raise ValueError(f"'{name}' has no effect with {reason}")
        return self

    def _without_effect(self, name: str) -> str | None:
        """Why a setting has no effect; None if it has one."""
        missed = [self._missed(needed) for names, needed in self.applies if name in names]
        return missed[0] if missed and None not in missed else None

    def _missed(self, needed: dict[str, tuple[object, ...]]) -> str | None:
        """A description of the first condition that does not hold; None if all hold."""
        for other, values in needed.items():
            if getattr(self, other) not in values:
                allowed = " or ".join(repr(value) for value in values)
                return f"{other} = {getattr(self, other)!r}; it needs {other} = {allowed}"
        return None
