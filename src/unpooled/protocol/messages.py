"""The only things that travel. Each class says what it reveals; a reply never holds a row."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

Tree = Any
"""Nested dicts, lists and tuples of arrays, numbers and strings."""


@dataclass(frozen=True)
class Message:
    """Base of questions and replies."""

    reveals: ClassVar[str] = "nothing about any person"


# ---------------------------------------------------------------- questions


@dataclass(frozen=True)
class Describe(Message):
    """What does your table look like, read by these column roles?"""

    columns: Tree


@dataclass(frozen=True)
class Summarise(Message):
    """Sums of the encoded columns, about this centre (None: about zero)."""

    schema: Tree
    centre: Tree = None


@dataclass(frozen=True)
class Gaps(Message):
    """Which values are missing together, and what do the columns sum to, about this centre, among those?"""

    schema: Tree
    centre: Tree


@dataclass(frozen=True)
class Adopt(Message):
    """From now on, standardise by these numbers and answer for this method."""

    schema: Tree
    scaling: Tree
    method: str
    settings: Tree
    context: Tree
    seed: int
    sites: tuple[str, ...]
    look: bool = False


@dataclass(frozen=True)
class Ask(Message):
    """S_s(θ) of one stage, for a batch of θ."""

    stage: str
    parameters: Tree


@dataclass(frozen=True)
class PullBack(Message):
    """(∂S_s/∂θ)ᵀ·cotangent of one stage, for a batch of θ."""

    stage: str
    parameters: Tree
    cotangent: Tree


@dataclass(frozen=True)
class Together(Message):
    """Several questions in one exchange."""

    questions: tuple[Message, ...]


# ------------------------------------------------------------------ replies


@dataclass(frozen=True)
class Described(Message):
    """Reveals: number of rows, rows per arm, column kinds and category levels."""

    reveals: ClassVar[str] = "number of rows, rows per arm, column kinds and category levels"
    description: Tree


@dataclass(frozen=True)
class Summary(Message):
    """Reveals: number of rows; sums, then centred second, third and fourth moments, of each column."""

    reveals: ClassVar[str] = (
        "number of rows; mean, sd, skewness, kurtosis and correlations of the columns at this site; of "
        "incomplete columns the number of values present, their mean and sd"
    )
    sums: Tree


@dataclass(frozen=True)
class Patterns(Message):
    """Reveals: by pattern of missing values, where enough people share it: number, means, covariances."""

    reveals: ClassVar[str] = (
        "for every pattern of missing values that enough people share: their number, and means and "
        "covariances of the columns; how many patterns and people were left out"
    )
    patterns: Tree
    withheld: Tree


@dataclass(frozen=True)
class Adopted(Message):
    """Reveals: nothing beyond the number of rows, which is known."""

    reveals: ClassVar[str] = "nothing new"
    rows: int


@dataclass(frozen=True)
class Statistics(Message):
    """Reveals: what the stage says. `total` needs only its sum over sites; `each` is kept by site."""

    reveals: ClassVar[str] = "the stage's statistics (see the stage)"
    total: Tree = field(default_factory=dict)
    each: Tree = field(default_factory=dict)


@dataclass(frozen=True)
class Gradient(Message):
    """Reveals: how this site's statistics move with the parameters, weighted by the cotangent."""

    reveals: ClassVar[str] = "a weighted derivative of the stage's statistics"
    total: Tree
    value: Tree = None


@dataclass(frozen=True)
class Refusal(Message):
    """Reveals: which limit or check the answer would have broken."""

    reveals: ClassVar[str] = "which limit or check the answer would have broken"
    kind: str
    expected: str
    found: str
    remedy: str


@dataclass(frozen=True)
class Replies(Message):
    """The replies to `Together`, in its order."""

    reveals: ClassVar[str] = "what each of the replies inside reveals"
    replies: tuple[Message, ...]


QUESTIONS = (Describe, Summarise, Gaps, Adopt, Ask, PullBack, Together)
REPLIES = (Described, Summary, Patterns, Adopted, Statistics, Gradient, Refusal, Replies)


def label(question: Message) -> str:
    """A question's short name for people."""
    if isinstance(question, Ask):
        return f"{question.stage}: statistics"
    if isinstance(question, PullBack):
        return f"{question.stage}: gradient"
    if isinstance(question, Together):
        return " + ".join(dict.fromkeys(label(part) for part in question.questions))
    return type(question).__name__.lower()
