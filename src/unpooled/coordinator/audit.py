"""An audit of a results folder: did the coordinator ask exactly the questions of the study, and no others?

The study is replayed from its stored replies, without any site, and every question that it asks is compared
with the stored one. The ledgers of sites then show whether these were the questions that reached them, and
whether the stored replies are theirs.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from unpooled.coordinator.audit_ledger import SiteAudit, SiteLedger, audit_ledger, audit_sums
from unpooled.coordinator.checkpoint import earlier
from unpooled.coordinator.compare import TOLERANCE
from unpooled.coordinator.journal import read_lines
from unpooled.coordinator.replay import replay, unlike
from unpooled.coordinator.result import StudyResult
from unpooled.coordinator.run import Fitted
from unpooled.errors import ResultsError, StudyError
from unpooled.methods.method import with_explicit_settings
from unpooled.protocol.messages import Question
from unpooled.study import Study


@dataclass(frozen=True)
class Audit:
    """What was checked. There is an audit only if nothing was wrong."""

    study: Study
    asked: str
    """The hash under which the custodians have approved the study."""
    rounds: int
    sites: tuple[str, ...]
    starts: int
    """How often the study started: once, and once more after every lost site."""
    ledgers: tuple[SiteAudit, ...]
    sums: bool
    """Whether the combined replies were computed again from those that all sites keep."""


def audit(
    folder: Path, ledgers: Sequence[SiteLedger], *, checkpoint: str, journal: str, result: str
) -> Audit:
    """Audit the results in a folder; an error names the first round that differs, and how.

    `ledgers` are those of some or all sites, and have been verified. The other arguments are the names of
    files in the folder.
    """
    study, path = read_study(folder), folder / checkpoint
    replays = [replay(study, one) for one in (*earlier(path), path)]
    last = replays[-1]
    if isinstance(last.end, Question):
        rounds = f"{path.name} ends after round {len(last.rounds)}"
        raise unlike(f"{rounds}, but then the study asks {last.end.label}")
    _same_results(folder, result, last.end)
    lines, asked = read_lines(folder / journal), StudyResult.load(folder / "model").asked
    known = {name for one in replays for name in one.sites}
    found: list[SiteAudit] = []
    for ledger in ledgers:
        if ledger.site not in known:
            raise ResultsError(
                "a ledger must belong to a site of the study",
                found=f"site '{ledger.site}', where the study has {', '.join(last.sites)}",
                remedy="give the ledger of one of these sites, or its name with --site",
            )
        found.append(audit_ledger(ledger, asked, replays, lines))
    own = {ledger.site: ledger for ledger in ledgers}
    complete = set(last.sites) <= set(own)
    if complete:
        audit_sums(last, own, asked)
    return Audit(study, asked, len(last.rounds), last.sites, len(replays), tuple(found), complete)


def read_study(folder: Path) -> Study:
    """The study of a results folder, with every setting filled in."""
    path = folder / "model" / "study.json"
    try:
        return with_explicit_settings(Study(**json.loads(path.read_text(encoding="utf-8"))))
    except (OSError, ValueError, TypeError, StudyError):
        raise _unfinished(path) from None


def _same_results(folder: Path, name: str, fitted: Fitted) -> None:
    """The saved model and the average effect must be those that the stored rounds give."""
    scaling = fitted.agreement.scaling
    found = fitted.fit.outcomes.scaled(scaling.outcome_mean, scaling.outcome_sd)
    stored = StudyResult.load(folder / "model").average_outcomes
    if not (_close(found.sample, stored.sample) and _close(found.population, stored.population)):
        raise unlike("the saved model has other effects than the stored rounds give")
    try:
        average = float(json.loads((folder / name).read_text(encoding="utf-8"))["ate"])
    except (OSError, ValueError, KeyError, TypeError):
        raise _unfinished(folder / name) from None
    draws = found.average_effects(fitted.study.target)[:, 0]
    if not abs(average - draws.mean()) <= TOLERANCE * np.max(np.abs(draws)):
        raise unlike(f"{name} has another average effect than the stored rounds give")


def _close(expected: np.ndarray, found: np.ndarray) -> bool:
    same = expected.shape == found.shape
    return same and bool(np.max(np.abs(expected - found)) <= TOLERANCE * np.max(np.abs(expected)))


def _unfinished(path: Path) -> ResultsError:
    return ResultsError(
        "an audit needs the results folder of a finished study",
        found=f"a file that is missing or cannot be read: {path}",
        remedy="give the folder written by `unpooled run --output`, or finish the study with --resume",
    )
