"""The cost of a study before it runs: rounds, bytes and seconds, from shapes and a few measured constants.

Every method says what it usually asks (`Method.expected`). The bytes of a message follow from its shapes, and
the work of a stage from its steps, so nothing is fitted, and the size of the study does not matter.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, is_dataclass, replace
from typing import Any, Literal

import jax
import numpy as np

from unpooled.coordinator.agreement import Agreement, reach_agreement
from unpooled.coordinator.plan import Plan, choose_plan
from unpooled.coordinator.rounds import Conduct
from unpooled.coordinator.run import ROUNDS_BEFORE_FITTING, adoption
from unpooled.data import Table
from unpooled.diagnostics.stand_ins import Size, columns_of, stand_ins
from unpooled.disclosure.limits import NONE, Limits
from unpooled.engines.in_process import InProcess, open_sites
from unpooled.maths.operations import Operations, with_shapes
from unpooled.methods import method as methods
from unpooled.methods.diagnostics import rounds as diagnostic_rounds
from unpooled.methods.expected import Course, Expected
from unpooled.protocol.codec import encode
from unpooled.protocol.messages import Adopted, Ask, Message, Vjp
from unpooled.protocol.records import REFERENCES, ROUNDED, SiteSummaries, field_values
from unpooled.protocol.rows import Rows, shapes_of_rows
from unpooled.protocol.stage import Stage
from unpooled.site.answer import gradient_of, in_single_precision, statistics_of
from unpooled.study import Study
from unpooled.study.subgroups import listed

Engine = Literal["in-process", "nvflare"]


@dataclass(frozen=True)
class Speeds:
    """Seconds that one unit of work takes, on our two-core machine.

    `product`, `number` and `theta` were fitted to the CPU seconds of 34 programs of AIPW, FedCI, CausalRFF
    and CausalFI, which they reproduce to a factor of 1.4 on average and of four at worst; `compiled` and
    `program` to the first calls of the same. `prepared` is from one study of 3 × 100,000 people. `round` and
    `visit` are the line through two measured rounds, of three and of twenty sites. The others are guesses of
    little weight in small studies; `reply` and `byte` matter with thousands of sites.
    """

    product: float = 4e-11
    """A floating-point operation of a product of matrices, in double precision."""
    number: float = 4.5e-10
    """A number that a step of a program reads or writes (`Operations.numbers`)."""
    theta: float = 8e-5
    """A θ at a site, whatever it computes."""
    question: float = 2e-3
    """A question at a site: decoding it, checking its parameters, encoding the reply."""
    prepared: float = 4e-7
    """A value of a table, from the first question to its place in the rows of a stage."""
    reply: float = 2e-4
    """A site's reply at the coordinator."""
    exchange: float = 5e-3
    """A round at the coordinator."""
    compiled: float = 1.5e-3
    """A step of a program that is compiled."""
    program: float = 0.3
    """A program that is compiled, whatever its steps."""
    byte: float = 2e-9
    """A byte that is encoded or decoded."""
    round: float = 0.03
    """A round over NVIDIA FLARE, whatever the number of sites."""
    visit: float = 0.024
    """A site's part in a round over NVIDIA FLARE, whose server has one connection after the other; a round
    took 0.1 s with three sites and 0.5 s with twenty on one machine."""
    start: float = 15.0
    """The start and the end of a job of NVIDIA FLARE."""


@dataclass(frozen=True)
class StageCost:
    """What one stage is expected to take. `seconds` are of computing, at one site and at the coordinator."""

    stage: str
    asked: int
    thetas: int
    bytes_out: float
    bytes_in: float
    seconds: float


@dataclass(frozen=True)
class ExpectedCost:
    """What a study is expected to take.

    Attributes
    ----------
    method : str
        Name of the method.
    sites, rows, features : int
        Number of sites, rows of the largest site, and columns of the covariates after coding.
    rounds : int
        Number of rounds, with those before the fit.
    bytes_out, bytes_in : float
        Bytes out of and into each site.
    seconds : dict of str to float
        Seconds by what takes them: "sites" and "coordinator" computing, "compiling", "waiting" for rounds
        and "sending".
    stages : tuple of StageCost
        The same by stage.
    notes : tuple of str
        What differs from the study as asked because of the sites' limits.
    longest : ExpectedCost or None
        The longest course, for methods that go on until a criterion is met; this is then the shortest.
    """

    method: str
    sites: int
    rows: int
    features: int
    rounds: int
    bytes_out: float
    bytes_in: float
    seconds: dict[str, float]
    stages: tuple[StageCost, ...] = ()
    notes: tuple[str, ...] = ()
    longest: ExpectedCost | None = None

    @property
    def minutes(self) -> float:
        return sum(self.seconds.values()) / 60.0

    @property
    def dominates(self) -> str:
        """What takes the most time."""
        return max(self.seconds, key=lambda part: self.seconds[part])


def expected_cost(
    study: Study,
    sites: Mapping[str, Table] | None = None,
    *,
    size: Size | None = None,
    engine: Engine = "in-process",
    limits: Limits | None = None,
    bandwidth: float = 100.0,
    cores: int | None = None,
    speeds: Speeds = Speeds(),
) -> ExpectedCost:
    """The rounds, bytes and seconds that a study is expected to take; nothing is fitted.

    Parameters
    ----------
    study : Study
        The study, with its method and settings.
    sites : dict of str to table, optional
        The sites' tables, of which only the agreement is computed. By default, those that the study names.
    size : Size, optional
        The number of sites, of rows and of features of a study whose tables are not here. No table is read.
    engine : {"in-process", "nvflare"}, default="in-process"
        Whether all tables are in one process, or sites are reached over NVIDIA FLARE.
    limits : Limits, optional
        Disclosure limits of the sites. By default none in one process, else the default limits.
    bandwidth : float, default=100.0
        Megabits per second to and from every site, and of the coordinator, which all sites share.
    cores : int, optional
        Cores on which sites of one process answer. By default those of this machine.
    speeds : Speeds, optional
        Seconds that one unit of work takes, if they are known for the machines of a study.

    Returns
    -------
    ExpectedCost
        The expected cost, by stage as well.

    Raises
    ------
    StudyError
        If the study or its size is not valid.
    DataError
        If a table does not fit the study, or the sites disagree about a column.
    LimitRefusal
        If the sites are too small for the method, under their limits.

    Examples
    --------
    >>> from unpooled import Size, Study, expected_cost
    >>> study = Study(treatment="w", outcome="y", covariates=["age"], method={"name": "aipw"})
    >>> cost = expected_cost(study, size=Size(sites=200, rows=50_000, features=30), engine="nvflare")
    >>> cost.rounds, cost.dominates
    (10, 'waiting')
    """
    study = methods.with_explicit_settings(study)
    limits = (NONE if engine == "in-process" else Limits()) if limits is None else limits
    before = _agreed(study, sites, size, limits)
    machine = Machine(engine, bandwidth, cores or os.cpu_count() or 1, speeds)
    return _cost(before, machine)


@dataclass(frozen=True)
class Before:
    """What is known before the fit: the agreement at full size, its plan, and the bytes of both."""

    agreement: Agreement
    plan: Plan
    limits: Limits
    bytes_out: float
    bytes_in: float


@dataclass(frozen=True)
class Machine:
    """Where a study runs."""

    engine: Engine
    bandwidth: float
    cores: int
    speeds: Speeds


def _agreed(study: Study, tables: Mapping[str, Table] | None, size: Size | None, limits: Limits) -> Before:
    """Run the agreement, with stand-ins for tables that are not here, and enlarge it to the study's size."""
    if size is not None:
        study = columns_of(study, size)
        tables = stand_ins(study)
    engine = InProcess(open_sites(study, tables, NONE))
    conduct = Conduct(reach_agreement(study), engine)
    traffic = [happened.traffic for happened in conduct]
    agreement = conduct.result if size is None else enlarged(conduct.result, size)
    agreement = replace(agreement, limits=dict.fromkeys(agreement.descriptions, limits))
    plan = choose_plan(study, agreement)
    out, into = (
        max(sum(getattr(one[site], way) for one in traffic) for site in engine.sites)
        for way in ("up", "down")
    )
    adopting = _adopt_bytes(plan, agreement)
    return Before(agreement, plan, limits, out + len(encode(Adopted(rows=0))), into + adopting)


def enlarged(agreement: Agreement, size: Size) -> Agreement:
    """The agreement as it would be in a study of this size."""
    scaling, counts = agreement.scaling, (size.rows,) * size.sites
    names = tuple(f"site {number:05d}" for number in range(size.sites))
    seen = np.broadcast_to(size.rows, (size.sites, len(scaling.incomplete_mean)))
    grown = replace(
        scaling, sites=size.sites, people=sum(counts), largest_site=-(-size.rows // ROUNDED) * ROUNDED,
        site_distances=np.zeros((size.sites, min(size.sites, REFERENCES))),
        by_site=SiteSummaries(names, counts, seen),
    )  # fmt: skip
    name, one = next(iter(agreement.descriptions.items()))
    arms = {level: size.rows // 2 for level in one.arms}
    described = one.model_copy(update={"rows": size.rows, "arms": arms})
    return replace(agreement, scaling=grown, descriptions={name: described})


def _adopt_bytes(plan: Plan, agreement: Agreement) -> float:
    asked = adoption(plan.study, agreement.schema, agreement.scaling, plan.diagnostics)
    return _size(asked.to_site(0))


def _cost(before: Before, machine: Machine) -> ExpectedCost:
    study, scaling = before.plan.study, before.agreement.scaling
    method = methods.find(study.method.name)
    settings = methods.settings_of(method, study.method.settings)
    context = method.context(settings, scaling, study.seed)
    course = method.expected(settings, context)
    stages, folds = abstract_stages(method, settings, context), before.plan.diagnostics
    features, incomplete = len(scaling.mean), len(scaling.incomplete_mean)
    bounds = {"least": before.limits.cell, "per_feature": 1.0 / before.limits.share}
    largest = max(scaling.counts)
    groups = len(listed(study.subgroups, before.agreement.schema))
    rows = shapes_of_rows(
        largest, features, incomplete, fold_draws=settings.fold_draws, groups=groups, **bounds
    )
    others = replace(
        shapes_of_rows(largest, features + 2 * incomplete, least=before.limits.cell), seen=rows.seen
    )
    if folds:
        course = course.beside(diagnostic_rounds.expected(scaling, folds))
        stages = diagnostic_rounds.joined(stages, scaling, diagnostics=True, by_site=True)
    costs = _Costs(stages, rows, others, single=bool(before.limits.cell))
    whole = _whole(course, costs, before, machine)
    if course.longest is None:
        return whole
    return replace(whole, longest=_whole(course.longest, costs, before, machine))


def _whole(course: Course, costs: _Costs, before: Before, machine: Machine) -> ExpectedCost:
    """Add up bytes and seconds of a course and of the rounds before it."""
    scaling, speeds = before.agreement.scaling, machine.speeds
    sites, rows, features = (
        scaling.sites,
        max(scaling.counts),
        len(scaling.mean) + len(scaling.incomplete_mean),
    )
    first = StageCost(
        "before the fit", ROUNDS_BEFORE_FITTING, 0, before.bytes_out, before.bytes_in,
        speeds.prepared * rows * (2 + features),
    )  # fmt: skip
    each = [(one, costs.of(one)) for one in course.questions]
    stages = [_stage_cost(one, found, speeds) for one, found in each]
    rounds = ROUNDS_BEFORE_FITTING + course.rounds
    out, into = (sum(getattr(one, way) for one in (first, *stages)) for way in ("bytes_out", "bytes_in"))
    alone = machine.engine == "in-process"
    shares = [one.share if alone else 1.0 for one in course.questions]
    at_site = first.seconds + speeds.byte * (out + into)
    at_site += sum(share * one.seconds for share, one in zip(shares, stages, strict=True))
    solved = sum(one.thetas * _seconds(one.solve, speeds) for one, _ in each)
    handled = rounds * (speeds.exchange + sites * speeds.reply) + sites * speeds.byte * (out + into)
    programs = {id(found): found.site for _, found in each}
    steps = [work.steps for work in (*programs.values(), *_solves(course)) if work.steps]
    seconds = {
        "sites": at_site,
        "coordinator": solved + handled,
        "compiling": sum(speeds.program + speeds.compiled * count for count in steps),
        "waiting": 0.0,
        "sending": 0.0,
    }
    if alone:
        seconds["sites"] *= max(sites / machine.cores, 1.0)
    else:
        seconds["waiting"] = speeds.start + rounds * (speeds.round + sites * speeds.visit)
        seconds["sending"] = 8e-6 / machine.bandwidth * sites * (out + into)
    return ExpectedCost(
        before.plan.study.method.name, sites, rows, features, rounds, out, into, seconds,
        (first, *stages), before.plan.notes,
    )  # fmt: skip


def _stage_cost(one: Expected, found: _Question, speeds: Speeds) -> StageCost:
    seconds = one.asked * speeds.question + one.thetas * (speeds.theta + _seconds(found.site, speeds))
    out, into = (
        one.asked * a + one.thetas * t
        for a, t in ((found.asked_out, found.theta_out), (found.asked_in, found.theta_in))
    )
    return StageCost(label(one), one.asked, one.thetas, out, into, seconds)


def label(one: Expected) -> str:
    """The questions as a journal names them."""
    return f"{one.stage}: {Vjp.words if one.gradient else Ask.words}"


def _solves(course: Course) -> Iterable[Operations]:
    """The coordinator's programs; those of value and slopes are shared by all stages of a structure."""
    return {one.solve: None for one in course.questions}


def _seconds(work: Operations, speeds: Speeds) -> float:
    return speeds.product * work.products + speeds.number * work.numbers


def abstract_stages(method: Any, settings: Any, context: Any) -> dict[str, Stage]:
    """The stages; those with arrays that are too large to make, of pairs of sites, have shapes instead."""
    arrays = {name: value for name, value in field_values(context).items() if _is_large(value)}
    if not arrays:
        return method.stages(settings, context)
    return jax.eval_shape(lambda given: method.stages(settings, replace(context, **given)), arrays)


def _is_large(value: object) -> bool:
    return isinstance(value, np.ndarray) and value.size > 100_000


@dataclass(frozen=True)
class _Question:
    """What one kind of question takes: bytes for every question and θ, and the work for a θ."""

    asked_in: float
    asked_out: float
    theta_in: float
    theta_out: float
    site: Operations


@dataclass(frozen=True)
class _Costs:
    """Bytes and work of the questions of a study."""

    stages: Mapping[str, Stage]
    rows: Rows
    diagnostic_rows: Rows
    single: bool
    known: dict[object, _Question] = field(default_factory=dict)
    traced: dict[object, tuple[Operations, Any]] = field(default_factory=dict)

    def of(self, one: Expected) -> _Question:
        key = (one.stage, one.gradient, str(jax.tree.map(np.shape, one.parameters)))
        if key not in self.known:
            self.known[key] = self._measured(one)
        return self.known[key]

    def _measured(self, one: Expected) -> _Question:
        parameters = jax.tree.map(shape_of, one.parameters)
        work, reply = self._traced(one.stage, statistics_of, parameters)
        leaves: Any = parameters
        if one.gradient:
            leaves = (parameters, reply)
            work, reply = self._traced(one.stage, gradient_of, leaves)
        asked, answered = [], []
        for batch in (1, 2):
            many, found = jax.tree.map(lambda leaf, batch=batch: _zeros(batch, leaf), (leaves, reply))
            asked.append(_size(Vjp(one.stage, *many) if one.gradient else Ask(one.stage, many)))
            answered.append(_size(in_single_precision(found) if self.single else found))
        return _Question(
            2 * asked[0] - asked[1], 2 * answered[0] - answered[1],
            asked[1] - asked[0], answered[1] - answered[0], work,
        )  # fmt: skip

    def _traced(self, name: str, function: Any, leaves: Any) -> tuple[Operations, Any]:
        """The work of a stage for one θ, and the shapes of its reply."""
        key = (name, function, str(leaves))
        if key not in self.traced:
            diagnostic = name.startswith(diagnostic_rounds.PREFIX)
            rows = self.diagnostic_rows if diagnostic else self.rows
            self.traced[key] = with_shapes(function, leaves, self.stages[name], rows)
        return self.traced[key]


def shape_of(leaf: Any) -> jax.ShapeDtypeStruct:
    """The shape and type of an array, or of what stands for one."""
    return jax.ShapeDtypeStruct(
        np.shape(leaf), leaf.dtype if hasattr(leaf, "dtype") else np.asarray(leaf).dtype
    )


def _zeros(batch: int, leaf: Any) -> np.ndarray:
    """An array of zeros that takes no memory, and passes for a batch of these."""
    return np.broadcast_to(np.zeros((), leaf.dtype), (batch, *leaf.shape))


def _size(message: Message) -> float:
    """The bytes of a message, as the codec has them up to the lengths of a few numbers; nothing is copied."""
    total = 0

    def emptied(leaf: Any) -> Any:
        nonlocal total
        if not isinstance(leaf, np.ndarray):
            return leaf
        total += leaf.nbytes
        return np.zeros((0,) * max(leaf.ndim, 1), leaf.dtype)

    return len(encode(_mapped(message, emptied))) + total


def _mapped(value: Any, function: Callable[[Any], Any]) -> Any:
    """A message with a function applied to everything inside that is no container."""
    if isinstance(value, Mapping):
        return {name: _mapped(part, function) for name, part in value.items()}
    if isinstance(value, tuple):
        return tuple(_mapped(part, function) for part in value)
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{name: _mapped(part, function) for name, part in field_values(value).items()})
    return function(value)
