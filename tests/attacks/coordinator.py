"""A coordinator who means ill: it may send a site any bytes, through the same door as in a deployment."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from engines.stage import approve_together
from unpooled.coordinator.agreement import reach_agreement
from unpooled.coordinator.run import adoption
from unpooled.disclosure.limits import Limits
from unpooled.methods.method import with_explicit_settings
from unpooled.protocol.codec import decode, encode
from unpooled.protocol.envelope import Asked, open_reply
from unpooled.protocol.messages import Adopt, Ask, Message, Question, Refusal, SiteReplies
from unpooled.protocol.records import Parameters
from unpooled.site.folder import SiteFolder
from unpooled.site.gateway import Gateway
from unpooled.study import Source, Study


class Attacker:
    """Holds the door of one site, whose custodian has approved the study."""

    def __init__(self, root: Path, table: pd.DataFrame, study: Study, limits: Limits = Limits()) -> None:
        self.study = with_explicit_settings(study)
        self.path = root / "table.parquet"
        table.to_parquet(self.path)
        self.own = SiteFolder.create(root / "site", "site", Source(path=str(self.path)), limits=limits)
        self.approve()
        self.restart()
        self.round = 0

    def approve(self) -> None:
        approve_together([self.own.folder], self.study)

    def restart(self) -> None:
        self.gateway = Gateway(self.own.folder)

    def ask(self, question: Question) -> Any:
        self.round += 1
        asked = self.study.model_dump_json(exclude={"sites"})
        envelope = Asked(asked, b"run", self.round, encode(question)).seal()
        return self.send(envelope)

    def send(self, envelope: bytes) -> Any:
        return decode(open_reply(self.gateway.answer(envelope), envelope, "site").reply)

    def agreed(self) -> Adopt:
        """An honest agreement with this site alone, and the question that adopts the study."""
        procedure = reach_agreement(self.study)
        reply: Message | None = None
        while True:
            try:
                question = procedure.send(reply)  # type: ignore[arg-type]
            except StopIteration as done:
                agreement = done.value
                break
            found = self.ask(question)
            assert not isinstance(found, Refusal), found
            reply = SiteReplies({"site": found})
        return adoption(self.study, agreement.schema, agreement.scaling)

    def adopted(self, **changes: Any) -> Adopt:
        """As `agreed`, and the site has adopted the study."""
        question = replace(self.agreed(), **changes)
        reply = self.ask(question.to_site(0))
        assert not isinstance(reply, Refusal), reply
        return question

    def statistics(self, stage: str, **parts: dict[str, Any]) -> Any:
        return self.ask(Ask(stage, Parameters(**parts)))


def people(rows: int, flags: int = 0, numbers: int = 3, seed: int = 0) -> pd.DataFrame:
    """People with numeric and 0/1 covariates, half of them treated."""
    rng = np.random.default_rng(seed)
    table = {f"x{i}": rng.normal(size=rows) for i in range(numbers)}
    table |= {f"flag{i}": (rng.random(rows) < 0.4).astype(int) for i in range(flags)}
    first = next(iter(table.values()))
    w = rng.permutation(np.arange(rows) % 2)
    return pd.DataFrame({**table, "w": w, "y": 0.5 * first + w + rng.normal(size=rows)})


def study(table: pd.DataFrame, method: dict[str, Any], **more: Any) -> Study:
    covariates = [name for name in table.columns if name not in ("w", "y")]
    return Study(treatment="w", outcome="y", covariates=covariates, method=method, **more)
