"""Progress of a study: a live line on a terminal, otherwise one line per stage."""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING, Self

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

if TYPE_CHECKING:
    from unpooled.coordinator.rounds import Round

RECENT = 12
AGREEING = ("describe", "summarise", "adopt")


class ProgressDisplay:
    """Called with every finished round; prints to stderr and leaves stdout to the result."""

    def __init__(self, *, most_rounds: int | None = None, show: bool = True) -> None:
        self._console = Console(stderr=True, quiet=not show)
        self._live = show and self._console.is_terminal
        self._bar = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            TextColumn("{task.fields[detail]}", style="dim"),
            TimeElapsedColumn(),
            TextColumn("{task.fields[remaining]}", style="dim"),
            console=self._console,
            disable=not self._live,
            transient=True,
        )
        self._task = self._bar.add_task("reading the tables", total=None, detail="", remaining="")
        self._most, self._bytes, self._stage = most_rounds, 0, ""
        self._finished: deque[float] = deque([time.monotonic()], maxlen=RECENT)
        self.fitting = False
        """Whether fitting has started; before that there is nothing to resume."""

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self._bar.stop()

    def __call__(self, happened: Round) -> None:
        self.fitting = self.fitting or happened.question not in AGREEING
        self._bytes += sum(traffic.up + traffic.down for traffic in happened.traffic.values())
        self._finished.append(time.monotonic())
        stage = stage_name(happened.question)
        if stage != self._stage and not self._live:
            self._console.print(f"round {happened.number}: {stage}", highlight=False)
        self._stage = stage
        detail, remaining = self._detail(happened), self._remaining(happened.number)
        self._bar.update(self._task, description=stage, detail=detail, remaining=remaining)

    def _detail(self, happened: Round) -> str:
        objective = "" if happened.objective is None else f"objective {happened.objective:,.2f}  "
        again = "replayed  " if happened.replayed else ""
        return f"round {happened.number}  {again}{objective}{readable(self._bytes)}"

    def _remaining(self, number: int) -> str:
        if self._most is None or number >= self._most or len(self._finished) < RECENT:
            return ""
        pace = (self._finished[-1] - self._finished[0]) / (len(self._finished) - 1)
        minutes, seconds = divmod(int(pace * (self._most - number)), 60)
        return f"at most {minutes}:{seconds:02d} left"


def stage_name(question: str) -> str:
    """The stage of the study to which a round's question belongs.

    >>> stage_name("projection: gradient + isotropic: gradient")
    'projection + isotropic'
    """
    return " + ".join(dict.fromkeys(part.partition(": ")[0] for part in question.split(" + ")))


def readable(count: float) -> str:
    """A number of bytes with a readable unit.

    >>> readable(2_935_076)
    '2.9 MB'
    """
    for scale, unit in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if count >= scale:
            return f"{count / scale:.1f} {unit}"
    return f"{count:.0f} B"
