"""What a coordinator may still ask under one approval: a table, a plan, rounds, θ by stage, and bytes.

The state is a file in the site's folder, written before a reply leaves, so that it holds across restarts. A
question that was answered before is answered with the recorded reply and costs nothing.
"""

from __future__ import annotations

import hashlib
import hmac
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import jax
import pandas as pd
from pydantic import BaseModel, ConfigDict, ValidationError

from unpooled.disclosure.private_files import make_own_folder
from unpooled.errors import ApprovalError, LimitRefusal, ResultsError
from unpooled.methods import method as methods
from unpooled.methods.diagnostics import rounds as diagnostic_rounds
from unpooled.protocol.duplicate_messages import AboutPeople
from unpooled.protocol.messages import Adopt, Ask, Question, Together, Vjp
from unpooled.site.private_files import keeping, write_whole
from unpooled.site.site import Adoption
from unpooled.study import Study

BEFORE_FITTING = 4
"""Rounds before the fit: a description, two rounds of sums, and the adoption of the study."""
PEOPLE = ".people"
"""Ending of the files with a keyed digest of every row, one for each table that a study was approved for."""
PREPARATION = 2
"""Most questions of one kind, other than for statistics, in one run of a study."""


class Spent(BaseModel):
    """What was asked under one approval, and what it is bound to."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    approval: str
    salt: str
    """The secret from which the site's folds and random numbers are drawn, for the life of the study here."""
    table: str
    """Digest of the table."""
    answered: tuple[str, ...] = ()
    """Digests of the questions that were answered."""
    sites: tuple[str, ...] = ()
    """The sites of the first adoption; later ones may only have lost some."""
    met: tuple[tuple[str, ...], ...] = ()
    """The different sets of sites with which keys were exchanged."""
    kinds: dict[str, int] = {}
    """Number of questions by kind."""
    theta: dict[str, int] = {}
    """Number of θ by stage and kind of question."""
    bytes: int = 0

    @property
    def rounds(self) -> int:
        return sum(self.kinds.values())


@dataclass(frozen=True)
class Budget:
    """The most that may be asked of a site under one approval."""

    rounds: int
    runs: int
    """How often the study may be run: twice if it may start again without a lost site."""
    bytes: int


def budget_of(study: Study, most_bytes: int) -> Budget:
    """The budget of an approved study."""
    method = methods.find(study.method.name)
    settings = methods.settings_of(method, study.method.settings)
    fitting = max(method.most_rounds(settings), diagnostic_rounds.MOST_ROUNDS if study.diagnostics else 0)
    incomplete = 1 if study.columns.incomplete else 0
    runs = 1 if study.min_sites is None else 2
    return Budget(runs * (BEFORE_FITTING + incomplete + fitting), runs, most_bytes)


class Allowances:
    """The allowances of all studies of one site, one file each."""

    def __init__(self, folder: Path, least: int) -> None:
        self._folder, self._least = folder, least

    def open(self, study: str, approval: str, frame: pd.DataFrame, key: bytes) -> Spent:
        """The state under this approval, bound to this table; a new approval starts with nothing spent."""
        people = _people(frame, key)
        table = hashlib.sha256("\n".join(people).encode()).hexdigest()
        stored = self.read(study) if self._path(study).exists() else None
        if stored is not None and stored.approval == approval:
            if stored.table != table:
                raise ApprovalError(
                    "the table must be the one that was approved",
                    found="a table that has changed since this study was approved",
                    remedy="restore the table, or review and approve the study again",
                )
            return stored
        self._refuse_small_changes(people)
        salt = hmac.new(key, f"folds {study}".encode(), hashlib.sha256).hexdigest()[:32]
        spent = Spent(approval=approval, salt=salt, table=table)
        self._make_folder()
        write_whole(self._folder / f"{study}-{table[:16]}{PEOPLE}", "\n".join(people) + "\n")
        self.write(study, spent)
        return spent

    def _refuse_small_changes(self, people: list[str]) -> None:
        """The sums of two tables that differ in a few people reveal these people."""
        columns, *rows = people
        for path in sorted(self._folder.glob(f"*{PEOPLE}")):
            with keeping(path):
                others = path.read_text().split()
            if others[0] == columns and 0 < _changed(others[1:], rows) < self._least:
                raise LimitRefusal(
                    f"two tables of approved studies must be equal or differ in {self._least} people",
                    found="a table that differs in fewer people from the one of an earlier study",
                    remedy="use the earlier table, or wait until more people have changed",
                )

    def _make_folder(self) -> None:
        with keeping(self._folder):
            make_own_folder(self._folder)

    def write(self, study: str, spent: Spent) -> None:
        self._make_folder()
        write_whole(self._path(study), spent.model_dump_json(indent=1) + "\n")

    def _path(self, study: str) -> Path:
        return self._folder / f"{study}.json"

    def read(self, study: str) -> Spent:
        """The state of a study that was opened."""
        path = self._path(study)
        try:
            return Spent.model_validate_json(path.read_bytes())
        except (OSError, ValidationError):
            raise ResultsError(
                "the site's record of what was asked must be readable",
                found=f"a file that is damaged or cannot be read: {path.name}",
                remedy="restore an undamaged copy, or remove it and approve the study again",
            ) from None


def spend(spent: Spent, budget: Budget, question: Question, asked: str, adopted: Adoption | None) -> Spent:
    """The state after this question, which is refused if that is more than the budget.

    Questions about people at several sites are counted by `unpooled.site.duplicates`.
    """
    if isinstance(question, AboutPeople):
        return spent.model_copy(update={"answered": (*spent.answered, asked)})
    kinds = _added(spent.kinds, {question.words: 1})
    theta = _added(spent.theta, theta_of(question))
    if sum(kinds.values()) > budget.rounds:
        raise _too_much(f"more than {budget.rounds} rounds")
    for kind, count in kinds.items():
        if kind not in (Ask.words, Vjp.words, Together.words) and count > PREPARATION * budget.runs:
            raise _too_much(f"more than {PREPARATION * budget.runs} questions of the kind '{kind}'")
    sites = spent.sites
    if isinstance(question, Adopt):
        if kinds[question.words] > budget.runs:
            raise _too_much("a second adoption of the study")
        if sites and not set(question.sites) <= set(sites):
            raise _too_much("other sites than in the first adoption")
        sites = sites or question.sites
    if adopted is not None:
        allowed = stage_budget(adopted)
        for name, count in theta.items():
            if count > budget.runs * allowed.get(name.partition(":")[0], 0):
                raise _too_much(f"too many θ for stage '{name}'")
    return spent.model_copy(
        update={"kinds": kinds, "theta": theta, "sites": sites, "answered": (*spent.answered, asked)}
    )


def may_meet(spent: Spent, budget: Budget, sites: tuple[str, ...]) -> Spent:
    """The state after keys were exchanged with these sites.

    Sums over two sets of sites reveal their difference. A second set is therefore accepted only if the study
    may start again without a lost site.
    """
    met = tuple(sorted(sites))
    if met in spent.met:
        return spent
    if len(spent.met) >= budget.runs or (spent.met and not set(met) <= set(spent.met[0])):
        raise _too_much("other sites than before")
    return spent.model_copy(update={"met": (*spent.met, met)})


def stage_budget(adopted: Adoption) -> dict[str, int]:
    """The most θ by stage in one run."""
    own = adopted.method.budget(adopted.settings, adopted.context)
    return own | diagnostic_rounds.budget(diagnostic_rounds.FOLDS)


def theta_of(question: Question) -> dict[str, int]:
    """The number of θ by stage; gradients are counted separately."""
    if isinstance(question, Together):
        found: dict[str, int] = {}
        for part in question.questions:
            found = _added(found, theta_of(part))
        return found
    if isinstance(question, Ask | Vjp):
        leaves = jax.tree.leaves(question.parameters)
        name = question.stage if isinstance(question, Ask) else f"{question.stage}: {question.words}"
        return {name: len(leaves[0]) if leaves else 1}
    return {}


def _added(left: Mapping[str, int], right: Mapping[str, int]) -> dict[str, int]:
    return {name: left.get(name, 0) + right.get(name, 0) for name in (*left, *right)}


def _people(frame: pd.DataFrame, key: bytes) -> list[str]:
    """Keyed digests of the columns' names and of every row, the rows sorted.

    Who sees them without the key cannot test whether they hold a certain person.
    """
    digests: pd.Series = pd.util.hash_pandas_object(frame, index=False)  # pyright: ignore[reportAttributeAccessIssue]
    rows = [row.tobytes() for row in digests.to_numpy()]
    columns = "\n".join(map(str, frame.columns)).encode()
    first, *rest = (hmac.new(key, one, hashlib.sha256).hexdigest()[:16] for one in (columns, *rows))
    return [first, *sorted(rest)]


def _changed(before: list[str], now: list[str]) -> int:
    """How many rows were added or removed, whichever is more."""
    old, new = Counter(before), Counter(now)
    return max((old - new).total(), (new - old).total())


def _too_much(found: str) -> LimitRefusal:
    return LimitRefusal(
        "a coordinator may ask no more than the custodian was shown",
        found=found,
        remedy="run exactly the study that was approved; to run it once more, ask for a new approval",
    )
