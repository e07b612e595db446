"""The journal of a study: one JSON line per round, with duration, bytes by site and objective."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from unpooled.coordinator.checkpoint import writing
from unpooled.coordinator.rounds import Round
from unpooled.disclosure.private_files import own
from unpooled.disclosure.reveals import Cost, Line
from unpooled.errors import ResultsError


@dataclass
class Journal:
    """Records rounds in memory and, if a path is given, as JSON lines on disk."""

    path: Path | None = None
    rounds: list[Round] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Drop a last line truncated by a crash, since the next line would be appended to it."""
        if self.path is not None and self.path.exists():
            _drop_cut_line(self.path)
            read_lines(self.path)  # report a damaged file before the fit rather than after it

    def record(self, happened: Round) -> None:
        self.rounds.append(happened)
        if self.path is not None:
            with writing(self.path.parent), open(self.path, "a", encoding="utf-8", opener=own) as file:
                file.write(json.dumps(line(happened)) + "\n")

    def cost(self) -> Cost:
        """Rounds, seconds, and bytes by site."""
        return cost(self.rounds)


def read_lines(path: Path) -> list[Line]:
    """Read every complete line of a journal; a last line truncated by a crash is dropped."""
    try:
        whole, _, _ = path.read_text(encoding="utf-8").rpartition("\n")
        lines = [json.loads(text) for text in whole.split("\n") if text]
    except (OSError, ValueError):
        raise _damaged(path) from None
    if not all(isinstance(one, dict) for one in lines):
        raise _damaged(path)
    return lines


def _damaged(path: Path) -> ResultsError:
    return ResultsError(
        "a study can only be resumed with an undamaged journal",
        found=f"a journal that is damaged or cannot be read: {path}",
        remedy="restore an undamaged copy of the file, or start the study again in another folder",
    )


def _drop_cut_line(path: Path) -> None:
    with writing(path.parent):
        content = path.read_bytes()
        whole = content.rfind(b"\n") + 1
        if whole < len(content):
            with path.open("r+b") as file:
                file.truncate(whole)


def line(happened: Round) -> Line:
    """A round as JSON-ready values.

    `ledgers` has the number of lines and the last hash of each site's ledger after its reply, so that these
    results bear witness to the ledgers.
    """
    ledgers = {site: t.ledger for site, t in happened.traffic.items() if t.ledger}
    return {
        "round": happened.number,
        "question": happened.question,
        "seconds": round(happened.seconds, 6),
        "replayed": happened.replayed,
        "masked": happened.masked,
        "objective": _finite(happened.objective),
        "bytes": {site: {"down": t.down, "up": t.up} for site, t in happened.traffic.items()},
        "ledgers": ledgers,
    }


def _finite(value: float | None) -> float | None:
    """None instead of infinity, the objective before the first evaluation, which JSON cannot represent."""
    return value if value is not None and math.isfinite(value) else None


def cost(rounds: Iterable[Round]) -> Cost:
    """The cost of the rounds of this run; replayed rounds have no bytes."""
    rounds = list(rounds)
    sites = sorted({site for happened in rounds for site in happened.traffic})
    return Cost(
        rounds=len(rounds),
        rounds_without_bytes=sum(not happened.traffic for happened in rounds),
        seconds=sum(happened.seconds for happened in rounds),
        bytes_down={s: sum(r.traffic[s].down for r in rounds if s in r.traffic) for s in sites},
        bytes_up={s: sum(r.traffic[s].up for r in rounds if s in r.traffic) for s in sites},
    )
