"""The content of the JSON files in a results folder: result, refutation, policy and report.json.

Numbers that are not finite are null in the files. Tables are lists of rows, by column name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NotRequired, TypedDict

if TYPE_CHECKING:  # the command line imports this module, and should start quickly
    from unpooled.diagnostics.heterogeneity import SiteHeterogeneity
    from unpooled.disclosure.reveals import Sent

Rows = list[dict[str, object]]
"""A table whose columns depend on the study or on the diagnostic."""


class ColumnsContent(TypedDict):
    """The columns of a study besides treatment and outcome."""

    covariates: list[str]
    incomplete: list[str]
    family: str
    """The family of the outcome, as the study names it or as it was chosen when the sites agreed."""
    units: dict[str, str]


class SiteEffect(TypedDict):
    """The average effect at one site."""

    site: str
    n: int
    ate: float | None
    variance: float | None
    sd: float | None
    skewness: float | None
    kurtosis: float | None
    lower: float | None
    upper: float | None
    failed_checks: int
    family: str


class AverageEffect(TypedDict):
    """A mean outcome, or an effect by name: `unpooled.effects.contrasts`."""

    effect: str
    estimate: float | None
    lower: float | None
    upper: float | None
    note: str
    """Why the effect is not defined, or how to read it."""
    two_parts: bool
    """Whether the interval is all numbers up to `lower` and from `upper` on."""


class GroupEffects(TypedDict):
    """Mean outcomes and effects in a group of people, over all sites."""

    group: str
    people: int | None
    """None for the overlap population, which weights people."""
    effects: list[AverageEffect]


class SubgroupEffect(TypedDict):
    """The average effect in a subgroup that the study names."""

    by: str
    """The key under which the study names it."""
    group: str
    n: int
    control: float | None
    treated: float | None
    effect: float | None
    lower: float | None
    upper: float | None
    simultaneous_lower: float | None
    simultaneous_upper: float | None
    note: str


class SubgroupTest(TypedDict):
    """A Wald test that the groups of a column have the same average effect."""

    by: str
    statistic: float
    degrees: int
    p_value: float


class CostContent(TypedDict):
    """`unpooled.disclosure.reveals.Cost`, and what was sent by site if the journal is available."""

    rounds: int
    rounds_without_bytes: int
    seconds: float
    bytes_down: dict[str, int]
    bytes_up: dict[str, int]
    left: NotRequired[dict[str, list[Sent]]]


class ResultContent(TypedDict):
    """result.json: every number of a study; effects are in the outcome's unit."""

    study: str
    ate: float | None
    ate_interval: list[float | None]
    interval_probability: float
    target: str
    """Over whom effects are averaged: "population" or "sample"."""
    sd: float | None
    outcome: str
    outcome_unit: str
    treatment: str
    columns: ColumnsContent
    outcome_words: str
    """How the outcome was read and modelled, and how to overrule it."""
    people: int
    site_count: int
    sites: list[SiteEffect]
    hidden: dict[str, str]
    average_effects: list[GroupEffects]
    subgroups: list[SubgroupEffect]
    subgroup_tests: list[SubgroupTest]
    hidden_groups: dict[str, str]
    """Groups that are withheld because of few people, with reasons."""
    lost_sites: dict[str, str]
    notes: list[str]
    """How the study that was run differs from the study asked, because of the sites' limits."""
    checks: Rows
    """All checks of the fit and of the diagnostics."""
    method: str
    settings: dict[str, object]
    seed: int
    study_hash: str
    structure_weights: object
    diagnostics: dict[str, object]
    minimax_bounds: list[MinimaxBound]
    cost: CostContent
    versions: dict[str, str]


class MinimaxBound(TypedDict):
    """A lower bound on the error of some coefficients, in standard units."""

    name: str
    bound: float
    parameters_of: str


class MainEstimate(TypedDict):
    """The average effect of the main analysis."""

    estimate: float
    lower: float
    upper: float


class RefutationContent(TypedDict):
    """refutation.json: the results of all robustness checks. The folder is printed, but not in the file."""

    folder: NotRequired[str]
    worrying: list[str]
    main: MainEstimate
    table: Rows
    refits: Rows
    e_value: dict[str, float] | None
    notes: list[str]


class Interval(TypedDict):
    """An estimate with its interval; null where it is withheld or does not exist."""

    estimate: float | None
    lower: float | None
    upper: float | None


class PolicyValue(TypedDict):
    """What a policy of whom to treat is worth."""

    policy: str
    treated: float | None
    """The share of people who are treated."""
    outcome: Interval
    """Their mean outcome, without the cost."""
    over_nobody: Interval
    over_everybody: Interval
    note: str
    """Why the numbers are withheld."""


class Fifth(TypedDict):
    """A fifth of the people, by predicted effect."""

    fifth: int
    share: float
    predicted: float | None
    effect: Interval
    note: str


class PolicyContent(TypedDict):
    """policy.json: whom to treat. The folder is printed, but not in the file."""

    folder: NotRequired[str]
    method: str
    """The method that predicts the effects."""
    cost: float
    larger_is_better: bool
    outcome: str
    unit: str
    people: int
    """The number of people who were valued."""
    rule: str
    rules: list[str]
    """The rules that were valued, each found before its part of the people."""
    policies: list[PolicyValue]
    fifths: list[Fifth]
    slope: Interval
    slope_p_value: float | None
    last_minus_first: Interval
    last_minus_first_p_value: float | None


class StudyCard(TypedDict):
    """What was estimated, and everything needed to repeat the study."""

    name: str
    treatment: str
    outcome: str
    outcome_unit: str
    outcome_words: str
    units: dict[str, str]
    covariates: list[str]
    incomplete: list[str]
    subgroups: list[str]
    """How the study defines groups of people, in words."""
    method: str
    settings: dict[str, object]
    seed: int
    hash: str


class Answer(TypedDict):
    """The average effect over all sites."""

    estimate: float | None
    lower: float | None
    upper: float | None
    probability: float
    sd: float | None
    people: int
    sites: int


class DiagnosticsContent(TypedDict):
    """`unpooled.diagnostics.study_diagnostics.StudyDiagnostics`, with its data frames as rows."""

    checks: Rows
    table_one: Rows
    weights: Rows
    balance: Rows
    overlap: Rows
    sites: Rows
    leave_one_out: Rows
    comparators: Rows
    heterogeneity: SiteHeterogeneity
    outside_support: float
    extreme: float


class SentByKind(TypedDict):
    """The messages of one kind that all sites sent."""

    kind: str
    reveals: str
    sites: int
    count: int
    bytes: int


class ReportCost(TypedDict):
    """The cost as the report shows it."""

    rounds: int
    seconds: float
    bytes_up: dict[str, int]
    bytes_down: dict[str, int]
    megabytes_up: float
    megabytes_down: float


class ReportContent(TypedDict):
    """report.json: every number in the report."""

    study: StudyCard
    sentence: str
    failed: str
    """Which checks failed, in one sentence; empty if none did."""
    answer: Answer
    estimand: str
    assumptions: list[str]
    sites: list[SiteEffect]
    hidden: dict[str, str]
    average_effects: list[GroupEffects]
    effect_names: list[str]
    """The effects that are known in some group, in the order of their columns."""
    effect_notes: list[str]
    """Why effects are not defined, or how to read them, as sentences."""
    subgroups: list[SubgroupEffect]
    subgroup_tests: list[SubgroupTest]
    hidden_groups: dict[str, str]
    """Groups that are withheld because of few people, with reasons."""
    lost_sites: dict[str, str]
    notes: list[str]
    """How the study that was run differs from the study asked, because of the sites' limits."""
    checks: Rows
    """All checks of the fit and of the diagnostics."""
    diagnostics: DiagnosticsContent | None
    unavailable_reason: str
    effects: Rows
    borrowed: Rows | None
    missing: Rows
    e_value: dict[str, float] | None
    refutation: RefutationContent | None
    policy: PolicyContent | None
    left: list[SentByKind]
    cost: ReportCost
    limits: list[str]
    citation: str
    versions: dict[str, str]
