"""The engine for remote sites with masked sums: honest, with faults, and with a curious coordinator."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pandas as pd
import pytest

from engines.stage import approve_together, study, tables, written
from unit.engines.test_remote import Fake, Fault, dies
from unpooled.coordinator.journal import line
from unpooled.coordinator.rounds import Round
from unpooled.disclosure.limits import Limits
from unpooled.disclosure.reveals import MASKED, left
from unpooled.engines.remote import ATTEMPTS, RemoteEngine
from unpooled.engines.secure_sums import meet
from unpooled.errors import ResultsError, StudyError
from unpooled.estimators import of_study
from unpooled.estimators.base import Estimator
from unpooled.protocol.codec import decode, encode
from unpooled.protocol.envelope import Asked, open_question, open_reply
from unpooled.protocol.fixed_point import offered
from unpooled.protocol.key_messages import Introduce, Masked, Meet
from unpooled.protocol.messages import Ask, Question, Refusal, Reply, Statistics, Together
from unpooled.protocol.table_messages import Describe, Summarise
from unpooled.site.folder import SiteFolder
from unpooled.study import Study

pytestmark = pytest.mark.slow


def four() -> dict[str, pd.DataFrame]:
    """The tables of the other tests, and one more."""
    made = tables()
    west = made["north"].copy()
    west[["a", "b", "y"]] += np.random.default_rng(5).normal(size=(len(west), 3))
    return {**made, "west": west}


def gateways(root: Path, made: dict[str, pd.DataFrame], *studies: Study, rehearsal: bool = True) -> Fake:
    folders = {
        name: SiteFolder.create(root / name, name, source, rehearsal=rehearsal).folder
        for name, source in written(root, made).items()
    }
    for one in studies:
        approve_together(folders.values(), one)
    return Fake(folders)


class Sites:
    """What `fit` is given in place of tables."""

    def __init__(self, transport: Fake) -> None:
        self.transport = transport

    def engine(self, study: Study) -> RemoteEngine:
        return RemoteEngine(self.transport, study)


def fit(asked: Study, sites: object, watch: Callable[[Round], None] | None = None) -> Estimator:
    return of_study(asked).fit(asked, sites, watch=watch)  # type: ignore[arg-type]


def here(asked: Study, made: dict[str, pd.DataFrame]) -> np.ndarray:
    """Draws of the same study in one process, with masks."""
    masked = asked.with_changes(privacy={"aggregation": "secure"})
    return of_study(masked).fit(masked, made, limits=Limits()).result_.site_effects


def fails(transport: Fake, round_number: int, fault: Fault, times: int) -> Callable[[Round], None]:
    """Let the site 'south' fail after a round."""

    def watch(happened: Round) -> None:
        if happened.number == round_number:
            transport.faults = [("south", fault)] * times

    return watch


def test_the_numbers_are_those_of_one_process_and_every_sum_was_masked(tmp_path: Path) -> None:
    asked, kinds, plain = study(), set[type](), []
    transport = gateways(tmp_path, tables(), asked)
    send = transport.send

    def listening(envelopes):
        replies = send(envelopes)
        for name, one in replies.items():
            reply = decode(open_reply(one, envelopes[name], name).reply)
            question = decode(open_question(envelopes[name]).question)
            if isinstance(question, Summarise | Ask | Together):
                kinds.add(type(reply))
                plain.extend(getattr(reply, part) for part in reply.totals)
        return replies

    transport.send = listening  # type: ignore[method-assign]
    model = fit(asked, Sites(transport))
    np.testing.assert_array_equal(model.result_.site_effects, here(asked, tables()))
    told = {one["kind"]: one["reveals"] for one in left(map(line, model.result_.rounds), {})["north"]}
    assert {kind for kind, text in told.items() if text.startswith(MASKED)} == {
        "summarise",
        "regression: statistics",
        "held_out: statistics",
    } & set(told)
    assert kinds == {Masked, Statistics}  # the latter are effects by site
    assert not jax.tree.leaves(plain)


@pytest.mark.parametrize("round_number", [3, 5])
def test_a_site_that_restarts_exchanges_new_keys(tmp_path: Path, round_number: int) -> None:
    asked = study()
    transport = gateways(tmp_path, tables(), asked)
    model = fit(asked, Sites(transport), fails(transport, round_number, dies, 1))
    np.testing.assert_array_equal(model.result_.site_effects, here(asked, tables()))
    exchanges = [
        question
        for sent in transport.sent
        if isinstance(question := decode(open_question(next(iter(sent.values()))).question), Introduce)
    ]
    assert len(exchanges) == 2


@pytest.mark.parametrize("last", [False, True])
def test_a_study_that_loses_a_site_gives_the_answer_without_it(tmp_path: Path, last: bool) -> None:
    method = {"name": "aipw", "draws": 40}
    asked = study("fewer", method=method, min_sites=3)
    transport = gateways(tmp_path, four(), asked)
    rounds: list[Round] = []
    fit(asked, Sites(transport), rounds.append)
    after = len(rounds) - 1 if last else len(rounds) // 2
    approve_together(transport.folders.values(), asked)
    model = fit(asked, Sites(transport), fails(transport, after, dies, ATTEMPTS))
    assert model.result_.sites == ("north", "east", "west")
    assert list(model.result_.lost_sites) == ["south"]
    others = {name: table for name, table in four().items() if name != "south"}
    np.testing.assert_array_equal(model.result_.site_effects, here(asked, others))


def test_without_a_third_site_a_secure_study_stops(tmp_path: Path) -> None:
    asked = study("fewer", min_sites=2, privacy={"aggregation": "secure"})
    transport = gateways(tmp_path, tables(), asked)
    with pytest.raises(StudyError, match="at least 3 sites"):
        fit(asked, Sites(transport), fails(transport, 4, dies, ATTEMPTS))


def test_a_site_that_restarts_with_another_table_is_noticed(tmp_path: Path) -> None:
    asked = study()
    transport = gateways(tmp_path, tables(), asked)
    engine = RemoteEngine(transport, asked)
    engine.exchange(Describe(asked.columns))
    del transport.open["south"]
    table = tables()["south"]
    table["y"] += 1.0
    table.to_parquet(tmp_path / "south.parquet")
    approve_together(transport.folders.values(), asked)
    with pytest.raises(ResultsError, match="another table at: south"):
        engine.exchange(Describe(asked.columns))


def test_the_same_table_at_two_sites_is_refused(tmp_path: Path) -> None:
    made = tables()
    made["south"] = made["north"].sample(frac=1.0, random_state=1)
    asked = study()
    transport = gateways(tmp_path, made, asked)
    with pytest.raises(Exception, match="'north' and 'south' have the same table"):
        RemoteEngine(transport, asked).exchange(Describe(asked.columns))


@pytest.mark.parametrize(
    "method",
    [
        {"name": "fedci", "inter_dependency": False, "draws": 20, "evaluations": 5},
        {"name": "aipw", "site_terms": "none"},
        {"name": "aipw", "site_terms": "none", "estimator": "ipw"},
        {"name": "causal_rff", "confounding": "observed", "site_terms": "none", "draws": 20},
    ],
    ids=lambda method: "-".join(str(one) for one in method.values()),
)
@pytest.mark.parametrize("outcome", ["y", "late"])
def test_sites_that_do_not_differ_are_sent_the_same_parameters(method: dict[str, Any], outcome: str) -> None:
    """Otherwise their masks would not cancel."""
    made = {name: one.assign(late=(one["y"] > 0).astype(int)) for name, one in tables().items()}
    plain, masked = (
        study("alike", method=method, privacy={"aggregation": how}).with_changes(
            columns={"treatment": "w", "outcome": outcome, "covariates": ["a", "b", "c"]}
        )
        for how in ("plain", "secure")
    )
    np.testing.assert_allclose(
        of_study(masked).fit(masked, made).result_.site_effects,
        of_study(plain).fit(plain, made).result_.site_effects,
        rtol=1e-6,
        atol=1e-6,
    )


# ------------------------------------------------- a coordinator that would rather see single sites


class Door:
    """Sites whose custodians have approved a study with masks, and a coordinator that asks as it likes."""

    def __init__(self, root: Path, asked: Study) -> None:
        self.asked, self.number = asked, 0
        self.transport = gateways(root, four(), asked, rehearsal=False)
        self.transport.connect(self.transport.sites)

    def ask(self, site: str, question: Question, scale: bytes = b"") -> Reply:
        self.number += 1
        envelope = Asked(
            self.asked.model_dump_json(exclude={"sites"}), b"run", self.number, encode(question), scale
        )
        sealed = envelope.seal()
        found = decode(open_reply(self.transport.open[site].answer(sealed), sealed, site).reply)
        assert isinstance(found, Reply)
        return found

    def meet(self, sites: tuple[str, ...]) -> None:
        meet(lambda question: {name: self.ask(name, question) for name in sites}, sites)


@pytest.fixture
def door(tmp_path: Path) -> Door:
    return Door(tmp_path, study())


def refused(reply: Reply) -> str:
    assert isinstance(reply, Refusal)
    return reply.kind


def test_statistics_without_masks_are_refused(door: Door) -> None:
    describe = Describe(door.asked.columns)
    assert refused(door.ask("north", describe)) == "ApprovalError"
    door.meet(door.transport.sites)
    assert refused(door.ask("north", describe)) == "ApprovalError"
    assert not isinstance(door.ask("north", describe, offered(4)[0].packed()), Refusal)


def test_scales_that_would_tell_how_large_a_number_is_are_refused(door: Door) -> None:
    door.meet(door.transport.sites)
    describe, honest = Describe(door.asked.columns), offered(4)[0]
    for scale in (
        replace(honest, exponent=honest.exponent - 40),
        replace(honest, terms=5),
        offered(4, 500)[0],
    ):
        assert refused(door.ask("north", describe, scale.packed())) == "ApprovalError"
    assert refused(door.ask("north", describe, b"no scale")) == "MessageError"


@pytest.mark.parametrize("sites", [("north", "south"), ("north",)])
def test_with_fewer_than_three_sites_nothing_is_answered(door: Door, sites: tuple[str, ...]) -> None:
    door.meet(sites)
    for scale in (b"", offered(len(sites))[0].packed(), offered(3)[0].packed()):
        assert refused(door.ask("north", Describe(door.asked.columns), scale)) == "ApprovalError"


def test_sums_over_other_sets_of_sites_are_refused(door: Door) -> None:
    """The sum over all sites less that over three of them is a single site's."""
    door.meet(door.transport.sites)
    three = ("north", "south", "east")
    reply = door.ask("north", Introduce(three))
    assert refused(reply) == "LimitRefusal"


def test_with_min_sites_one_lost_site_is_the_most(tmp_path: Path) -> None:
    door = Door(tmp_path, study(min_sites=3))
    door.meet(door.transport.sites)
    door.meet(("north", "south", "east"))
    assert refused(door.ask("north", Introduce(("north", "south", "west")))) == "LimitRefusal"


def test_strangers_and_forged_keys_are_refused(door: Door) -> None:
    assert refused(door.ask("north", Introduce(("north", "south", "nobody")))) == "ApprovalError"
    sites = door.transport.sites
    told = {name: door.ask(name, Introduce(sites)) for name in sites}
    swapped = {**told, "south": replace(told["south"], key=told["east"].key)}  # type: ignore[attr-defined]
    assert refused(door.ask("north", Meet(swapped))) == "ApprovalError"  # type: ignore[arg-type]
