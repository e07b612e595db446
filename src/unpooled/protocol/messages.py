"""The messages exchanged between the coordinator and the sites; nothing else is sent.

Every reply class states what it reveals, and no reply holds a row. Every question class names the class of
its reply. A new message joins here, with these two classes, and in `unpooled.site.answer`, which computes
the reply.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any, ClassVar

import jax
import numpy as np

from unpooled.maths.missing_patterns import Pattern
from unpooled.protocol.fixed_point import Scale
from unpooled.protocol.records import Arrays, Limits, Parameters, Record, Scaling
from unpooled.study import ColumnRoles, Description, Schema, Study


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
class Described(Reply):
    """Reveals: number of rows, rows per arm, kinds of columns and outcome, category levels, the limits."""

    reveals: ClassVar[str] = (
        "number of rows, rows per arm, kinds of the columns and of the outcome, category levels; the site's "
        "limits"
    )
    description: Description
    limits: Limits = Limits(0, 0, float("inf"))


@dataclass(frozen=True)
class Summary(Reply):
    """Reveals: number of rows; sums and products of the columns; if asked for, moments at this site."""

    reveals: ClassVar[str] = (
        "number of rows; for sums over sites: mean, sd and correlations of the columns, of incomplete "
        "columns also the number of values present, of sampling weights their sum and that of their squares; "
        "at this site, if effects by site are part of the study: "
        "the number of values present in incomplete columns; if the method compares sites: mean, sd, and "
        "skewness and kurtosis to one decimal, of each covariate"
    )
    totals: ClassVar[tuple[str, ...]] = ("sums",)
    people: int
    sums: Arrays
    by_site: Arrays = field(default_factory=dict)


@dataclass(frozen=True)
class Patterns(Reply):
    """Reveals: number of people, means and covariances for each sufficiently common missingness pattern."""

    reveals: ClassVar[str] = (
        "for every pattern of missing values that enough people share: their number, and means and "
        "covariances of the columns; how many patterns and people were left out"
    )
    patterns: tuple[Pattern, ...]
    withheld_patterns: int
    withheld_rows: int


@dataclass(frozen=True)
class Observed(Reply):
    """Reveals: for sums over sites, the number and the sum of the values that are present."""

    reveals: ClassVar[str] = (
        "number of rows; for sums over sites: of each incomplete column, the number of values present and "
        "their sum"
    )
    totals: ClassVar[tuple[str, ...]] = ("sums",)
    people: int
    sums: Arrays


@dataclass(frozen=True)
class LeftOutForGaps(Reply):
    """Reveals: how many people were left out, and how they differ from the others on average."""

    reveals: ClassVar[str] = (
        "how many people of each arm are left out for missing values, unless that is a small number; for "
        "sums over sites: of these people, sums of the complete covariates, the treatment and the outcome"
    )
    totals: ClassVar[tuple[str, ...]] = ("sums",)
    arms: dict[str, int | None]
    """By level of the treatment; None for a number below the site's limit."""
    sums: Arrays


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
class Introduction(Reply):
    """Reveals: public keys of this site."""

    reveals: ClassVar[str] = "public keys of this site, by which sites agree on masks that cancel in sums"
    key: bytes
    """A new X25519 key for this run."""
    identity: bytes
    """The site's Ed25519 key."""
    signature: bytes


@dataclass(frozen=True)
class Met(Reply):
    """Reveals: whether two sites have the same table, whether it has changed, and nothing else about it."""

    reveals: ClassVar[str] = (
        "whether the table has changed or another site has the same; nothing else about it"
    )
    tags: dict[str, bytes]
    """By other site: a tag of the own table that only these two sites can compute."""
    mark: bytes
    """A tag of the own table that only this site can compute, the same in every run."""


@dataclass(frozen=True)
class Masked(Reply):
    """Reveals: nothing but the sum over all sites of the masked numbers, and all that `plain` reveals."""

    reveals: ClassVar[str] = "masked numbers, of which only the sum over all sites can be known"
    words: np.ndarray
    """The numbers in fixed point, plus masks that cancel in the sum over all sites, [words, numbers]."""
    scale: Scale
    plain: Message
    """The reply with gaps in place of the masked arrays."""
    finite: np.ndarray
    """For each masked array, and each entry of its first axis, whether its numbers are finite."""


@dataclass(frozen=True)
class TooLarge(Reply):
    """Reveals: that a number is too large for the scale that was asked for."""

    reveals: ClassVar[str] = "that a number is too large for the scale on which numbers are masked"


@dataclass(frozen=True)
class KeysCounted(Reply):
    """Reveals: rows; rows without a key or with a wrong one, rows of people seen before, if they are many."""

    reveals: ClassVar[str] = (
        "number of rows; number of people, rounded up; how many rows have no key, a wrong check digit, or a "
        "person of an earlier row, unless that is a small number"
    )
    rows: int
    size: int
    """Length of the site's list: its people with a key, rounded up."""
    without_key: int | None
    """None for a number below the site's limit."""
    wrong_check: int | None
    repeated: int | None


@dataclass(frozen=True)
class Blinded(Reply):
    """Reveals: nothing; points that cannot be told from random ones."""

    reveals: ClassVar[str] = "points of a group that cannot be told from random ones, in random order"
    points: np.ndarray
    """[size, 32], people and random points."""


@dataclass(frozen=True)
class Raised(Reply):
    """Reveals: nothing; another site's list, raised to a secret power of this site."""

    reveals: ClassVar[str] = "another site's points, raised to a secret power"
    points: np.ndarray


@dataclass(frozen=True)
class Tagged(Reply):
    """Reveals: how many people two or more sites have in common."""

    reveals: ClassVar[str] = (
        "tags of people in random order, which are equal at two sites if the person is: how many people the "
        "sites have in common; with keyed hashes, whoever has the key can test every possible person"
    )
    tags: np.ndarray
    """[size, 16], people and random tags."""


@dataclass(frozen=True)
class LeftOut(Reply):
    """Reveals: number of rows that remain."""

    reveals: ClassVar[str] = "how many rows remain after those of people counted elsewhere are left out"
    rows: int


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
class Introduce(Question):
    """Make a key for a run with these sites."""

    reply: ClassVar[type[Reply]] = Introduction
    sites: tuple[str, ...]

    def mismatch(self, study: Study) -> str | None:
        return None  # what the site does with it reveals nothing


@dataclass(frozen=True)
class Meet(Question):
    """The keys of all sites of a run."""

    reply: ClassVar[type[Reply]] = Met
    introductions: dict[str, Introduction]

    def mismatch(self, study: Study) -> str | None:
        return None  # the site checks the signatures


KEY_EXCHANGE = (Introduce.words, Meet.words)
"""Questions by which sites exchange keys. They belong to the connection, not to the study."""


OTHER_WAY = "another way of finding people at several sites than the study's"


@dataclass(frozen=True)
class CountKeys(Question):
    """How many people have a key?"""

    reply: ClassVar[type[Reply]] = KeysCounted
    columns: ColumnRoles

    @classmethod
    def concerns(cls, study: Study) -> bool:
        return study.duplicates != "ignore"

    def mismatch(self, study: Study) -> str | None:
        if not self.concerns(study):
            return OTHER_WAY
        return None if self.columns == study.columns else "a question about other columns"


@dataclass(frozen=True)
class BlindKeys(Question):
    """The site's people as blinded points, for a study with these sites and lengths of lists."""

    reply: ClassVar[type[Reply]] = Blinded
    sizes: dict[str, int]

    @classmethod
    def concerns(cls, study: Study) -> bool:
        return study.duplicates == "leave out"

    def mismatch(self, study: Study) -> str | None:
        return None if self.concerns(study) else OTHER_WAY


@dataclass(frozen=True)
class RaiseKeys(Question):
    """Raise another site's list to the site's power; with every hop, each list moves on by one site."""

    reply: ClassVar[type[Reply]] = Raised
    sizes: dict[str, int]
    hop: int
    lists: dict[str, np.ndarray]
    """By the site whose people they are; a site receives one of them."""

    @classmethod
    def concerns(cls, study: Study) -> bool:
        return study.duplicates == "leave out"

    def mismatch(self, study: Study) -> str | None:
        return None if self.concerns(study) else OTHER_WAY

    def to_site(self, site: int) -> Question:
        owner = list(self.lists)[(site - self.hop) % len(self.lists)]
        return replace(self, lists={owner: self.lists[owner]})


@dataclass(frozen=True)
class FinishKeys(Question):
    """The site's list, raised to the powers of all other sites. What are the tags of its people?"""

    reply: ClassVar[type[Reply]] = Tagged
    sizes: dict[str, int]
    lists: dict[str, np.ndarray]
    """By site; a site receives its own."""

    @classmethod
    def concerns(cls, study: Study) -> bool:
        return study.duplicates == "leave out"

    def mismatch(self, study: Study) -> str | None:
        return None if self.concerns(study) else OTHER_WAY

    def to_site(self, site: int) -> Question:
        owner = list(self.lists)[site]
        return replace(self, lists={owner: self.lists[owner]})


@dataclass(frozen=True)
class HashKeys(Question):
    """The tags of the site's people, by a key that the sites share."""

    reply: ClassVar[type[Reply]] = Tagged
    sizes: dict[str, int]

    @classmethod
    def concerns(cls, study: Study) -> bool:
        return study.duplicates == "keyed hash"

    def mismatch(self, study: Study) -> str | None:
        return None if self.concerns(study) else OTHER_WAY


@dataclass(frozen=True)
class LeaveOut(Question):
    """Leave out the people at these places of the site's list of tags."""

    reply: ClassVar[type[Reply]] = LeftOut
    repeated_on_resume: ClassVar[bool] = True
    sizes: dict[str, int]
    places: dict[str, np.ndarray]
    """By site; a site receives its own."""

    @classmethod
    def concerns(cls, study: Study) -> bool:
        return study.duplicates != "ignore"

    def mismatch(self, study: Study) -> str | None:
        return None if self.concerns(study) else OTHER_WAY

    def to_site(self, site: int) -> Question:
        owner = list(self.sizes)[site]
        return replace(self, places={owner: self.places[owner]})


ABOUT_PEOPLE = (CountKeys, BlindKeys, RaiseKeys, FinishKeys, HashKeys, LeaveOut)
"""Questions by which people who are at several sites are found and left out, before all others."""


@dataclass(frozen=True)
class Describe(Question):
    """What does your table look like, read by these column roles?"""

    reply: ClassVar[type[Reply]] = Described
    columns: ColumnRoles
    repeated_on_resume: ClassVar[bool] = True

    def mismatch(self, study: Study) -> str | None:
        return None if self.columns == study.columns else "a question about other columns"


@dataclass(frozen=True)
class Centre(Record):
    """Means about which moments are taken: of covariates and outcome, and of the incomplete covariates."""

    complete: np.ndarray
    incomplete: np.ndarray


@dataclass(frozen=True)
class Summarise(Question):
    """Sums of the encoded columns, about this centre (None: about zero)."""

    reply: ClassVar[type[Reply]] = Summary
    schema: Schema
    centre: Centre | None = None
    by_site: bool = False
    """Without a centre: whether the site tells how many values are present in incomplete columns. With one:
    whether it tells the moments of its covariates, by which a method compares sites."""
    repeated_on_resume: ClassVar[bool] = True

    def mismatch(self, study: Study) -> str | None:
        return None if self.schema.is_of(study.columns) else "sums of other columns"


@dataclass(frozen=True)
class MissingPatterns(Question):
    """Which values are missing together, and the moments of the columns among the people of each pattern."""

    reply: ClassVar[type[Reply]] = Patterns
    schema: Schema
    centre: np.ndarray

    @classmethod
    def concerns(cls, study: Study) -> bool:
        return bool(study.columns.modelled)

    def mismatch(self, study: Study) -> str | None:
        if not self.concerns(study):
            return "a question about missing values in a study without incomplete columns"
        return None if self.schema.is_of(study.columns) else "missing values of other columns"


@dataclass(frozen=True)
class SumObserved(Question):
    """The number and the sum of the values present in incomplete columns, by which gaps are filled."""

    reply: ClassVar[type[Reply]] = Observed
    schema: Schema
    repeated_on_resume: ClassVar[bool] = True

    @classmethod
    def concerns(cls, study: Study) -> bool:
        return study.columns.missing == "indicator"

    def mismatch(self, study: Study) -> str | None:
        if not self.concerns(study):
            return "a question about values that fill gaps in a study that fills none"
        return None if self.schema.is_of(study.columns) else "sums of other columns"


@dataclass(frozen=True)
class CompareLeftOut(Question):
    """How do the people who are left out for missing values differ from these means of the others?"""

    reply: ClassVar[type[Reply]] = LeftOutForGaps
    schema: Schema
    centre: np.ndarray
    """Of the complete covariates, the treatment and the outcome."""

    @classmethod
    def concerns(cls, study: Study) -> bool:
        return study.columns.missing == "complete cases"

    def mismatch(self, study: Study) -> str | None:
        if not self.concerns(study):
            return "a question about people who are left out, in a study that leaves out none"
        return None if self.schema.is_of(study.columns) else "sums of other columns"


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


def question_kinds() -> dict[str, type[Question]]:
    """Every class of question that travels, by its words, in the order of their definitions."""
    return {kind.words: kind for kind in Question.__subclasses__() if hasattr(kind, "reply")}
