"""The result of a study: draws, effects, diagnostics and cost; saved as msgpack and JSON."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Self

import numpy as np

from unpooled.coordinator.rounds import Round
from unpooled.disclosure.by_site import Diagnostics
from unpooled.disclosure.private_files import make_own_folder, replace_file
from unpooled.disclosure.reveals import Cost
from unpooled.errors import MessageError, ResultsError, StudyError
from unpooled.methods import method as methods
from unpooled.methods.diagnostics.rounds import DiagnosticStatistics, Unavailable
from unpooled.methods.outcome_words import outcome_words
from unpooled.models.calibration import Calibration, NoiseOfArms
from unpooled.protocol.codec import decode, encode
from unpooled.protocol.messages import Message
from unpooled.protocol.records import AverageOutcomes, Check, Draws, Scaling, field_values
from unpooled.study import Schema, Study
from unpooled.study.family import Family

_STORED = (
    "asked",
    "schema",
    "scaling",
    "draws",
    "average_outcomes",
    "fit_diagnostics",
    "fit_checks",
    "calibration",
    "noise_of_arms",
    "diagnostic_statistics",
    "cost",
    "lost_sites",
    "notes",
)


@dataclass(frozen=True)
class StudyResult:
    """Everything a study produces; it contains no rows. Effects are in the outcome's units, draws in
    standard units."""

    study: Study
    """The study as it was run, with every setting of its method filled in."""
    asked: str
    """The hash of the study as it was asked and approved, of which a coarser plan may have been run."""
    schema: Schema
    scaling: Scaling
    context: object
    """The method's context record."""
    draws: Draws
    average_outcomes: AverageOutcomes
    fit_diagnostics: Diagnostics
    """Diagnostics of the fit; numbers that belong to single sites are `BySite`."""
    fit_checks: tuple[Check, ...]
    """Verdicts on the fit itself."""
    calibration: Calibration | None
    """Held-out errors, by which intervals of individual effects are calibrated, if there are any."""
    noise_of_arms: NoiseOfArms | None
    """The noise of both arms, by which intervals of conditional effects can be widened, if it is known."""
    diagnostic_statistics: DiagnosticStatistics | Unavailable | None
    """Statistics for balance, overlap and simpler estimates, if the study requested diagnostics."""
    cost: Cost
    lost_sites: dict[str, str] = field(default_factory=dict)
    """Sites that became unreachable, with the reason; they do not contribute to the result."""
    notes: tuple[str, ...] = ()
    """Who was left out, and how the study that was run differs from the study asked because of the sites'
    limits; as sentences."""
    rounds: tuple[Round, ...] = ()
    """The rounds of this run; empty for a loaded result."""

    @property
    def site_effects(self) -> np.ndarray:
        """Draws [K, site] of the sites' average effects, over what the study targets."""
        return self.average_outcomes.effects(self.study.target)[:, :, 0]

    @property
    def family(self) -> Family:
        """The family of the outcome: as the study names it, or as it was chosen when the sites agreed."""
        return self.scaling.family

    @property
    def outcome_words(self) -> str:
        """How the outcome was read and modelled, and how to overrule it, in words."""
        return outcome_words(self.study, self.family)

    @property
    def sites(self) -> tuple[str, ...]:
        return self.scaling.site_names

    @property
    def sites_with_effects(self) -> tuple[str, ...]:
        """The sites whose own effects are known: all, or none if the study leaves out effects by site."""
        return self.sites if self.study.by_site else ()

    @property
    def sites_without_effects(self) -> dict[str, str]:
        """Sites with people in one arm whose own effects are not known, with the reason."""
        method = methods.find(self.study.method.name)
        settings = methods.settings_of(method, self.study.method.settings)
        if settings.models_outcomes or not self.study.by_site:
            return {}
        reason = ("everybody was treated", "nobody was treated")
        return {
            site: f"{reason[arm == 'control']}, and the method compares people of a site"
            for site, arm in self.scaling.known.one_arm.items()
        }

    @property
    def counts(self) -> tuple[int, ...]:
        """Number of rows of each site."""
        return self.scaling.counts

    @property
    def outcome_sd(self) -> float:
        return self.scaling.outcome_sd

    def save(self, folder: Path) -> Path:
        if folder.exists() and any(folder.iterdir()):
            raise ResultsError(
                "a model folder must be new or empty",
                found=f"files in {folder.name}/",
                remedy="choose another folder",
            )
        make_own_folder(folder)
        question = self.study.model_dump(mode="json", exclude={"sites"})
        replace_file(folder / "study.json", json.dumps(question, indent=2).encode())
        parts = {item.name: getattr(self, item.name) for item in fields(self) if item.name in _STORED}
        replace_file(folder / "model.msgpack", encode(StoredResult(field_values(self.context), parts)))
        return folder

    @classmethod
    def load(cls, folder: Path) -> Self:
        try:
            study = Study(**json.loads((folder / "study.json").read_text(encoding="utf-8")))
            stored = decode((folder / "model.msgpack").read_bytes())
        except (OSError, ValueError, StudyError, MessageError):
            raise _not_a_model(folder) from None
        if not isinstance(stored, StoredResult) or set(stored.parts) != set(_STORED):
            raise _not_a_model(folder)
        context = methods.find(study.method.name).Context(**stored.context)
        return cls(study=study, context=context, **stored.parts)


@dataclass(frozen=True)
class StoredResult(Message):
    """A result as it is saved to disk; never sent."""

    context: dict[str, object]
    parts: dict[str, Any]


def _not_a_model(folder: Path) -> ResultsError:
    return ResultsError(
        "a model folder must hold study.json and model.msgpack",
        found=f"{folder} is not a saved model",
        remedy="pass a folder written by model.save(...)",
    )
