"""What a study leaves: draws, schema, cost. Saved as arrays and JSON."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np

from unpooled.coordinator.run import Outcome
from unpooled.errors import MessageError, ResultsError, StudyError
from unpooled.protocol.codec import decode, encode
from unpooled.protocol.messages import Adopt, Statistics, Tree
from unpooled.study import Study


@dataclass(frozen=True)
class Result:
    """Everything but rows. Effects are in the outcome's units, draws in standard units."""

    study: Study
    sites: tuple[str, ...]
    counts: tuple[int, ...]
    schema: Tree
    scaling: Tree
    context: Tree
    draws: Tree
    site_effects: np.ndarray
    diagnostics: dict[str, Any]
    cost: dict[str, Any]
    looked: Tree = None
    """What the sites told beside the fit where a study is looked at: see `unpooled.diagnostics.look`."""
    left_out: dict[str, str] = field(default_factory=dict)
    """Sites that were to answer and did not, and why: no number rests on them."""

    @classmethod
    def of(
        cls, study: Study, outcome: Outcome, cost: dict[str, Any], left_out: dict[str, str] | None = None
    ) -> Self:
        agreement = outcome.agreement
        return cls(
            study=study,
            sites=tuple(agreement.descriptions),
            counts=tuple(description.rows for description in agreement.descriptions.values()),
            schema=agreement.schema.model_dump(mode="json"),
            scaling=agreement.scaling,
            context=outcome.context,
            draws=outcome.fitted.draws,
            site_effects=outcome.fitted.site_effects * agreement.scaling["outcome_sd"],
            diagnostics=outcome.fitted.diagnostics,
            cost=cost,
            looked=outcome.looked,
            left_out=left_out or {},
        )

    @property
    def outcome_sd(self) -> float:
        return float(self.scaling["outcome_sd"])

    def adopt(self) -> Adopt:
        """The question that stands a site ready for effects of people."""
        return Adopt(
            schema=self.schema,
            scaling=self.scaling,
            method=self.study.method.name,
            settings=self.study.method.settings,
            context=self.context,
            seed=self.study.seed,
            sites=self.sites,
            look=self.study.look,
        )

    def save(self, folder: Path) -> Path:
        if folder.exists() and any(folder.iterdir()):
            raise ResultsError(
                "a model folder must be new or empty",
                found=f"files in {folder.name}/",
                remedy="choose another folder",
            )
        folder.mkdir(parents=True, exist_ok=True)
        question = self.study.model_dump(mode="json", exclude={"sites"})
        (folder / "study.json").write_text(json.dumps(question, indent=2), encoding="utf-8")
        parts = {name: getattr(self, name) for name in _STORED}
        (folder / "model.msgpack").write_bytes(encode(Statistics(total=parts)))
        return folder

    @classmethod
    def load(cls, folder: Path) -> Self:
        try:
            study = Study(**json.loads((folder / "study.json").read_text(encoding="utf-8")))
            message = decode((folder / "model.msgpack").read_bytes())
        except (OSError, ValueError, StudyError, MessageError):
            raise ResultsError(
                "a model folder must hold study.json and model.msgpack",
                found=f"{folder} is not a saved model",
                remedy="give the folder that model.save(...) wrote",
            ) from None
        assert isinstance(message, Statistics)
        return cls(study=study, **message.total)


_STORED = (
    "sites",
    "counts",
    "schema",
    "scaling",
    "context",
    "draws",
    "site_effects",
    "diagnostics",
    "cost",
    "looked",
    "left_out",
)
