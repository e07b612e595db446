"""The messages exchanged between the coordinator and the sites; nothing else is sent.

Every reply class states what it reveals, and no reply holds a row. Every question class names the class of
its reply. A new message joins with these two classes and in `unpooled.site.answer`, which computes the reply.
Here are the base classes and the messages of a fit. Those about tables, keys for masks, and people at several
sites are in `table_messages`, `key_messages` and `duplicate_messages`; `codec` knows these modules.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any, ClassVar

import jax
import numpy as np

from unpooled.protocol.records import Arrays, Parameters, Record, Scaling
from unpooled.study import Schema, Study


@dataclass(frozen=True)
class Message(Record):
    """Base class of questions and replies."""

    reveals: ClassVar[str] = "nothing about any person"


# ------------------------------------------------------------------ replies


@dataclass(frozen=True)
class Reply(Message):
    """A message that a site sends back; `combine` merges the replies of all sites for the procedure."""

    added: ClassVar[bool] = False
    """Whether replies are summed over sites, which requires equal shapes."""
    totals: ClassVar[tuple[str, ...]] = ()
    """Fields of which only the sum over sites is needed, so that masks may hide those of a single site."""

    @classmethod
    def combine(cls, replies: Mapping[str, Any]) -> Message:
        return SiteReplies(dict(replies))


@dataclass(frozen=True)
class Adopted(Reply):
    """Reveals: which columns and subgroups the site leaves out; the number of rows is already known."""

    reveals: ClassVar[str] = (
        "which columns are left out because too few people differ in them, and which subgroups because sums "
        "over few people would follow"
    )
    rows: int
    left_out: tuple[str, ...] = ()
    """Columns that are constant in everything this site sends."""
    without_subgroups: tuple[str, ...] = ()
    """Subgroups for which this site does not answer."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Statistics(Reply):
    """Reveals: what the stage declares in its `reveals`.

    `summed` is needed only as a sum over sites, `per_site` for each site separately. A stage returns both
    for one θ; a reply has a leading batch axis. After combination `per_site` is [batch, site, …].
    """

    reveals: ClassVar[str] = "the stage's statistics (see the stage)"
    added: ClassVar[bool] = True
    totals: ClassVar[tuple[str, ...]] = ("summed",)
    summed: Any = field(default_factory=dict)
    per_site: Arrays = field(default_factory=dict)

    @classmethod
    def combine(cls, replies: Mapping[str, Any]) -> Message:
        parts = [reply.per_site for reply in replies.values()]
        stacked = jax.tree.map(lambda *leaves: np.stack(leaves, axis=1), *parts)
        return Statistics(_sum([reply.summed for reply in replies.values()]), stacked)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Gradient(Reply):
    """Reveals: the derivative of this site's statistics with respect to θ, weighted by the cotangent."""

    reveals: ClassVar[str] = "a weighted derivative of the stage's statistics"
    added: ClassVar[bool] = True
    totals: ClassVar[tuple[str, ...]] = ("gradient", "value")
    gradient: Arrays
    value: Any = None

    @classmethod
    def combine(cls, replies: Mapping[str, Any]) -> Message:
        parts = replies.values()
        return Gradient(_sum([reply.gradient for reply in parts]), _sum([reply.value for reply in parts]))


@dataclass(frozen=True)
class Refusal(Reply):
    """Reveals: which limit or check the answer would have broken."""

    reveals: ClassVar[str] = "which limit or check the answer would have broken"
    kind: str
    expected: str
    found: str
    remedy: str


@dataclass(frozen=True)
class Replies(Reply):
    """The replies to `Together`, in the same order."""

    reveals: ClassVar[str] = "what each of the replies inside reveals"
    replies: tuple[Message, ...]


@dataclass(frozen=True)
class SiteReplies(Message):
    """The individual replies of all sites, by name. Used at the coordinator only, never sent."""

    replies: dict[str, Any]


def _sum(trees: list[Any]) -> Any:
    return reduce(lambda left, right: jax.tree.map(np.add, left, right), trees)


# ---------------------------------------------------------------- questions


@dataclass(frozen=True)
class Question(Message):
    """What the coordinator asks of every site."""

    reply: ClassVar[type[Reply]]
    """The class of the answer, and so what the answer reveals."""
    words: ClassVar[str] = ""
    """The kind of question, for people; by default the name of its class in words."""
    repeated_on_resume: ClassVar[bool] = False
    """Whether the question is asked again when a study resumes, because the site may have restarted."""
    of_stages: ClassVar[bool] = False
    """Whether statistics of stages are asked for, which are in standard units."""

    def __init_subclass__(cls) -> None:
        if "words" not in vars(cls):
            cls.words = re.sub(r"(?<!^)(?=[A-Z])", " ", cls.__name__).lower()

    @classmethod
    def concerns(cls, study: Study) -> bool:
        """Whether such a question may be asked in this study at all."""
        return True

    @property
    def label(self) -> str:
        """A short name for people."""
        return self.words

    def to_site(self, site: int) -> Question:
        """The question as the site with this index receives it."""
        return self

    def common(self, differs: Callable[[str], bool]) -> Question:
        """The part of the question that is the same for every site.

        Sites may receive different parameters of the stages for which `differs` is true.
        """
        return self

    def mismatch(self, study: Study) -> str | None:
        """How the question departs from the study a custodian approved; None if it belongs to it.

        A question is refused unless its class says otherwise.
        """
        return "a question that no study asks"


@dataclass(frozen=True)
class Adopt(Question):
    """From now on, standardise by this scaling and answer for this method."""

    reply: ClassVar[type[Reply]] = Adopted
    schema: Schema
    scaling: Scaling
    method: str
    settings: dict[str, Any]
    seed: int
    sites: tuple[str, ...]
    diagnostics: int = 0
    """Number of folds of the diagnostics; 0 for none."""
    by_site: bool = True
    """Whether average effects are told by site."""
    subgroups: dict[str, Any] = field(default_factory=dict)
    """Groups of people whose mean outcomes are told, as the study defines them."""
    repeated_on_resume: ClassVar[bool] = True

    def to_site(self, site: int) -> Question:
        return replace(self, scaling=self.scaling.shared())

    def mismatch(self, study: Study) -> str | None:
        names = self.sites
        named = isinstance(names, tuple) and all(isinstance(name, str) for name in names)
        expected = {
            "sites without names of their own": named and len(set(names)) == len(names),
            "other columns": self.schema.is_of(study.columns),
            "another method": self.method == study.method.name,
            "another seed": self.seed == study.seed,
            "diagnostics": study.diagnostics or not self.diagnostics,
            "effects by site, or none": self.by_site == study.by_site,
            "other subgroups": self.subgroups == study.subgroups,
        }
        wrong = [what for what, holds in expected.items() if not holds]
        return f"{wrong[0]} to adopt" if wrong else None


@dataclass(frozen=True)
class Ask(Question):
    """S_s(θ) of one stage, for a batch of θ."""

    reply: ClassVar[type[Reply]] = Statistics
    words: ClassVar[str] = "statistics"
    of_stages: ClassVar[bool] = True
    stage: str
    parameters: Parameters

    @property
    def label(self) -> str:
        return f"{self.stage}: {self.words}"

    def to_site(self, site: int) -> Question:
        own = self.parameters.at(site)
        return self if own is self.parameters else replace(self, parameters=own)

    def common(self, differs: Callable[[str], bool]) -> Question:
        if not differs(self.stage):
            return self
        return replace(self, parameters=replace(self.parameters, per_site={}))

    def mismatch(self, study: Study) -> str | None:
        return None  # the site checks the name of the stage


@dataclass(frozen=True)
class Vjp(Question):
    """The vector–Jacobian product (∂S_s/∂θ)ᵀ·cotangent of one stage, for a batch of θ."""

    reply: ClassVar[type[Reply]] = Gradient
    words: ClassVar[str] = "gradient"
    of_stages: ClassVar[bool] = True
    stage: str
    parameters: Parameters
    cotangent: Statistics

    @property
    def label(self) -> str:
        return f"{self.stage}: {self.words}"

    def to_site(self, site: int) -> Question:
        own = jax.tree.map(lambda leaf: leaf[:, site], self.cotangent.per_site)
        cotangent = Statistics(self.cotangent.summed, own)
        return replace(self, parameters=self.parameters.at(site), cotangent=cotangent)

    def common(self, differs: Callable[[str], bool]) -> Question:
        if not differs(self.stage):
            return self
        parameters, cotangent = replace(self.parameters, per_site={}), replace(self.cotangent, per_site={})
        return replace(self, parameters=parameters, cotangent=cotangent)

    def mismatch(self, study: Study) -> str | None:
        return None  # the site checks the name of the stage


MOST_PARTS = 100
"""Most questions in one exchange."""


@dataclass(frozen=True)
class Together(Question):
    """Several questions in one exchange."""

    reply: ClassVar[type[Reply]] = Replies
    of_stages: ClassVar[bool] = True
    questions: tuple[Question, ...]

    def __post_init__(self) -> None:
        kinds = (Ask, Vjp)
        if not isinstance(self.questions, tuple) or len(self.questions) > MOST_PARTS:
            raise TypeError(f"at most {MOST_PARTS} questions are asked together")
        if not all(isinstance(part, kinds) for part in self.questions):
            raise TypeError("every part must ask for statistics or a gradient")

    @property
    def label(self) -> str:
        return " + ".join(dict.fromkeys(part.label for part in self.questions))

    def to_site(self, site: int) -> Question:
        parts = tuple(part.to_site(site) for part in self.questions)
        same = all(part is asked for part, asked in zip(parts, self.questions, strict=True))
        return self if same else Together(parts)

    def common(self, differs: Callable[[str], bool]) -> Question:
        return Together(tuple(part.common(differs) for part in self.questions))

    def mismatch(self, study: Study) -> str | None:
        return next(filter(None, (part.mismatch(study) for part in self.questions)), None)


def question_kinds(base: type[Question] | None = None) -> dict[str, type[Question]]:
    """Every class of question that travels, by its words, in the order of their definitions."""
    found: dict[str, type[Question]] = {}
    for kind in (base or Question).__subclasses__():
        found |= {kind.words: kind} if hasattr(kind, "reply") else question_kinds(kind)
    return found
