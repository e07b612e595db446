"""`unpooled audit`: an honest study passes, and whatever was done to it is named."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import jax
import msgpack
import numpy as np
import pytest
from typer.testing import CliRunner

from attacks.honest import STUDY, Honest, honest, rewrite, run, site_folders, stored
from contract.cases import CASES, SLOWEST
from engines.stage import approve_together, study, tables
from unpooled.cli.app import app
from unpooled.cli.audit import opened
from unpooled.coordinator.audit import read_study
from unpooled.coordinator.audit_ledger import audit_sums
from unpooled.coordinator.compare import difference
from unpooled.coordinator.replay import Replay, replay
from unpooled.coordinator.run import Fitted, run_study
from unpooled.disclosure.limits import NONE
from unpooled.engines.in_process import InProcess, open_sites
from unpooled.engines.pipes import PipeTransport, SiteProcesses
from unpooled.engines.remote import RemoteEngine
from unpooled.errors import ResultsError
from unpooled.protocol.codec import decode, encode
from unpooled.protocol.key_messages import KEY_EXCHANGE
from unpooled.protocol.messages import Ask, Gradient, Message, Statistics
from unpooled.protocol.records import Parameters
from unpooled.protocol.table_messages import Describe
from unpooled.report.results import CHECKPOINT, JOURNAL
from unpooled.site.ledger import Ledger, entries

pytestmark = pytest.mark.slow
runner = CliRunner()


def audit(found: Honest, *sites: str, options: tuple[str, ...] = ()):
    words = ["audit", str(found.results), *(str(found.sites[name]) for name in sites), *options]
    return runner.invoke(app, words, env={"COLUMNS": "200"})


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Honest:
    return honest(tmp_path_factory.mktemp("honest"))


@pytest.fixture
def found(kept: Honest, tmp_path: Path) -> Honest:
    """A copy to tamper with."""
    return kept.copy(tmp_path)


def is_theta(leaf: object) -> bool:
    return isinstance(leaf, np.ndarray) and leaf.dtype.kind == "f" and bool(np.any(leaf))


def moved(message: Message, by: float) -> Message:
    """The message with its parameters, or its statistics, moved by a share of the largest of each array."""
    tree: Any = message.parameters if isinstance(message, Ask) else message
    assert any(is_theta(leaf) for leaf in jax.tree.leaves(tree))
    shifted = jax.tree.map(lambda leaf: leaf + by * np.abs(leaf).max() if is_theta(leaf) else leaf, tree)
    return dataclasses.replace(message, parameters=shifted) if isinstance(message, Ask) else shifted


def with_theta(found: Honest) -> int:
    """Index of the first stored round that asks for statistics at some θ."""
    questions = [decode(one.question) for one in stored(found)]
    return next(
        index
        for index, one in enumerate(questions)
        if isinstance(one, Ask) and any(is_theta(leaf) for leaf in jax.tree.leaves(one.parameters))
    )


# --- honest


def test_an_honest_study_passes(kept: Honest) -> None:
    told = audit(kept, "north", "south", "east")
    assert told.exit_code == 0, told.output
    assert STUDY.hash in told.stdout
    for name in kept.sites:
        assert f"{name}: the ledger is intact" in told.stdout
    assert "The stored sums are those of the replies that the sites keep." in told.stdout
    content = json.loads(audit(kept, "north", "south", "east", options=("--json",)).stdout)
    rounds = len(stored(kept))
    assert (content["rounds"], content["starts"], content["sums"]) == (rounds, 1, True)
    assert [one["heads"] for one in content["ledgers"]] == [rounds] * 3


def test_without_all_ledgers_it_says_what_was_not_checked(kept: Honest) -> None:
    told = audit(kept, "south")
    assert told.exit_code == 0, told.output
    assert "Not checked: what reached north, east" in told.stdout


def test_a_study_in_one_process_is_replayed(tmp_path: Path) -> None:
    results = run(study("here", diagnostics=True), tables(), tmp_path / "results")
    told = audit(Honest(results, {}))
    assert told.exit_code == 0, told.output


def test_a_study_that_was_run_by_a_coarser_plan_passes(tmp_path: Path) -> None:
    """The ledgers have the study that was approved; the results, the one that the sites' limits allowed."""
    asked = study("coarser", method={"name": "aipw", "draws": 20, "folds": 9})
    folders = site_folders(tmp_path, asked)
    results = run(asked, SiteProcesses(folders), tmp_path / "results")
    assert read_study(results).hash != asked.hash
    told = audit(Honest(results, folders), *folders)
    assert told.exit_code == 0, told.output
    assert asked.hash in told.stdout


def test_a_study_without_effects_by_site_passes(tmp_path: Path) -> None:
    results = run(study("over all", by_site=False), tables(), tmp_path / "results")
    told = audit(Honest(results, {}))
    assert told.exit_code == 0, told.output


@pytest.mark.parametrize(
    "case", [pytest.param(name, marks=pytest.mark.thorough if name in SLOWEST else ()) for name in CASES]
)
def test_every_method_asks_the_same_again_and_of_every_site_the_same_bytes(case: str, tmp_path: Path) -> None:
    method, settings = CASES[case]
    asked = study("replayed", method={"name": method, **settings})
    sent: list[list[bytes]] = []

    class Noting(InProcess):
        def exchange(self, question):
            sent.append([encode(question.to_site(index)) for index in range(len(self.sites))])
            return super().exchange(question)

    path = tmp_path / "rounds.msgpack"
    result = run_study(asked, Noting(open_sites(asked, tables(), NONE)), checkpoint=path)
    found = replay(asked, path)
    assert isinstance(found.end, Fitted)
    effects = found.end.fit.outcomes.scaled(result.scaling.outcome_mean, result.outcome_sd)
    np.testing.assert_array_equal(effects.population, result.average_outcomes.population)
    np.testing.assert_array_equal(effects.sample, result.average_outcomes.sample)
    again = [[encode(one.to_site(index)) for index in range(len(found.sites))] for one in found.questions]
    assert again == sent


def test_a_ledger_without_its_site_file_needs_a_name(found: Honest) -> None:
    (found.sites["north"] / "site.toml").unlink()
    assert audit(found, "north").exit_code == 7
    assert audit(found, "north", options=("--site", "north")).exit_code == 0
    told = audit(found, "north", options=("--site", "west"))
    assert told.exit_code == 7 and "site 'west'" in told.stderr
    assert audit(found, "north", options=("--site", "north", "--site", "south")).exit_code == 2


def test_a_study_that_was_stopped_and_resumed_passes(tmp_path: Path) -> None:
    folders = site_folders(tmp_path, STUDY)

    def stop(happened) -> None:
        if happened.number == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(STUDY, SiteProcesses(folders), tmp_path / "results", watch=stop)
    results = run(STUDY, SiteProcesses(folders), tmp_path / "results", resume=True)
    told = audit(Honest(results, folders), *folders)
    assert told.exit_code == 0, told.output
    assert "asked again" in told.stdout


def test_a_study_that_lost_a_site_passes_with_all_its_starts(tmp_path: Path) -> None:
    plain = {"aggregation": "plain"}  # two cannot mask
    asked = study("fewer", min_sites=2, method=STUDY.method.model_dump(), privacy=plain)
    folders = site_folders(tmp_path, asked)

    class Losing(PipeTransport):
        """Its site 'south' answers four questions, and then no more."""

        sent = 0

        def send(self, envelopes):
            self.sent += "south" in envelopes
            if self.sent > 4:
                self._folders["south"] = tmp_path
                self._running.pop("south").end() if "south" in self._running else None
                self.connect(("south",))
            return super().send(envelopes)

    class Sites:
        def engine(self, study):
            return RemoteEngine(Losing(folders), study)

    results = run(asked, Sites(), tmp_path / "results")
    told = audit(Honest(results, folders), *folders)
    assert told.exit_code == 0, told.output
    assert "The study started 2 times" in told.stdout
    assert "south: the ledger is intact" in told.stdout


# --- tampered with


def test_one_altered_parameter_is_named_with_its_round(found: Honest) -> None:
    rounds, index = stored(found), with_theta(found)
    question = encode(moved(decode(rounds[index].question), 1e-3))
    rounds[index] = rounds[index]._replace(question=question)
    rewrite(found.results / CHECKPOINT, rounds)
    told = audit(found)
    assert told.exit_code == 7
    assert f"an altered question in round {index + 1} of {CHECKPOINT}" in told.stderr
    assert "differs by 0.001 of its largest number" in told.stderr


def test_the_rounding_of_another_machine_is_no_alteration(found: Honest) -> None:
    rounds, index = stored(found), with_theta(found)
    rounds[index] = rounds[index]._replace(question=encode(moved(decode(rounds[index].question), 1e-9)))
    rewrite(found.results / CHECKPOINT, rounds)
    assert audit(found).exit_code == 0


def test_one_extra_question_is_named_with_its_line(found: Honest) -> None:
    last = len(entries(found.sites["south"] / "ledger.jsonl"))
    question = decode(stored(found)[with_theta(found)].question)
    approve_together([found.sites["south"]], STUDY)  # a list without others, so that it answers without masks
    with RemoteEngine(PipeTransport({"south": found.sites["south"]}), STUDY) as engine:
        for one in (*(decode(one.question) for one in stored(found)[:4]), moved(question, 0.5)):
            engine.exchange(one)  # type: ignore[arg-type]
    told = audit(found, "south")
    assert told.exit_code == 7
    # The first four were asked before and are no extra questions.
    assert f"site 'south': an extra question in line {last + 5} of the ledger" in told.stderr
    assert audit(found, "north").exit_code == 0


def test_one_dropped_line_is_named(found: Honest) -> None:
    path = found.sites["east"] / "ledger.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:2], *lines[3:]]))
    told = audit(found, "east")
    assert told.exit_code == 7 and "line 3 was removed" in told.stderr


@pytest.mark.parametrize(
    ("aggregation", "told"),
    [
        ("plain", "in round 1 of the journal, the ledger had 1 lines and another last line than now"),
        ("secure", "than the one that left the site"),  # masks differ from run to run
    ],
)
def test_a_ledger_of_another_run_is_told_apart(tmp_path: Path, aggregation: str, told: str) -> None:
    """Whoever has the key can write a ledger that verifies; the coordinator knows the heads."""
    asked = STUDY.with_changes(privacy={"aggregation": aggregation})
    for name in ("once", "again"):
        (tmp_path / name).mkdir()
        folders = site_folders(tmp_path / name, asked)
        run(asked, SiteProcesses(folders), tmp_path / name / "results")
    found = audit(Honest(tmp_path / "once" / "results", folders), "north")
    assert found.exit_code == 7 and told in found.stderr


def test_a_round_that_did_not_reach_the_site_is_named(found: Honest, tmp_path: Path) -> None:
    shutil.rmtree(found.sites["north"] / "replies")
    for name in ("ledger.jsonl", "ledger.head", "ledger.key", "approvals.json"):
        (found.sites["north"] / name).unlink()
    Ledger(found.sites["north"] / "ledger.jsonl")
    told = audit(found, "north")
    assert told.exit_code == 7
    assert f"no line for round 1 of {CHECKPOINT} (describe)" in told.stderr


def test_an_altered_stored_reply_is_named(found: Honest) -> None:
    rounds = stored(found)
    index = next(i for i, one in enumerate(rounds) if isinstance(decode(one.reply), Statistics))
    rounds[index] = rounds[index]._replace(reply=encode(moved(decode(rounds[index].reply), 1e-2)))
    raw = [bytes(msgpack.packb(list(one)) or b"") for one in rounds]
    (found.results / CHECKPOINT).write_bytes(b"".join(raw))
    told = audit(found)
    assert told.exit_code == 7 and f"round {index + 1} of {CHECKPOINT} was altered" in told.stderr
    rewrite(found.results / CHECKPOINT, rounds)  # now with the right checksums
    told = audit(found)
    assert told.exit_code == 7, told.output  # what follows from it is no longer what was stored


def test_an_altered_digest_of_a_reply_is_named(found: Honest) -> None:
    rounds = stored(found)
    rounds[2] = rounds[2]._replace(digests={**rounds[2].digests, "south": "0" * 64})
    rewrite(found.results / CHECKPOINT, rounds)
    assert audit(found, "north").exit_code == 0
    told = audit(found, "south")
    assert told.exit_code == 7
    assert f"another reply in round 3 of {CHECKPOINT}" in told.stderr


def test_an_altered_sum_shows_though_no_question_follows_from_it(found: Honest) -> None:
    """The last reply determines only the results; those were altered to match."""
    rounds = stored(found)
    last = len(rounds) - 1
    rounds[last] = rounds[last]._replace(reply=encode(moved(decode(rounds[last].reply), 1e-2)))
    questions = tuple(decode(one.question) for one in rounds)
    ledgers = {name: opened(folder, None) for name, folder in found.sites.items()}
    replay = Replay(CHECKPOINT, tuple(rounds), questions, tuple(found.sites), questions[0])  # type: ignore[arg-type]
    with pytest.raises(ResultsError, match=f"the stored reply of round {last + 1} of {CHECKPOINT}"):
        audit_sums(replay, ledgers, STUDY.hash)


@pytest.mark.parametrize("file", ["result.json", "model"])
def test_edited_results_are_named(found: Honest, file: str) -> None:
    if file == "model":
        path = found.results / "model" / "model.msgpack"
        content = decode(path.read_bytes())
        content.parts["average_outcomes"] = content.parts["average_outcomes"].scaled(0.0, 2.0)  # type: ignore[attr-defined]
        path.write_bytes(encode(content))
    else:
        path = found.results / "result.json"
        content = json.loads(path.read_text())
        path.write_text(json.dumps({**content, "ate": content["ate"] * 2.0}))
    told = audit(found)
    assert told.exit_code == 7 and "than the stored rounds give" in told.stderr


def test_a_round_too_many_or_too_few_is_named(found: Honest) -> None:
    rounds = stored(found)
    rewrite(found.results / CHECKPOINT, [*rounds, rounds[-1]])
    assert f"round {len(rounds) + 1} of {CHECKPOINT} is left over" in audit(found).stderr
    rewrite(found.results / CHECKPOINT, rounds[:-1])
    assert f"ends after round {len(rounds) - 1}, but then the study asks" in audit(found).stderr


def test_a_folder_without_a_finished_study_is_refused(tmp_path: Path) -> None:
    told = audit(Honest(tmp_path, {}))
    assert told.exit_code == 7 and "study.json" in told.stderr


def test_the_journal_witnesses_every_ledger(kept: Honest) -> None:
    lines = [json.loads(one) for one in (kept.results / JOURNAL).read_text().splitlines()]
    for name, folder in kept.sites.items():
        heads = [
            f"{one.number} {one.hash}"
            for one in entries(folder / "ledger.jsonl")
            if one.question not in KEY_EXCHANGE
        ]
        assert [one["ledgers"][name] for one in lines] == heads


# --- comparison


def test_messages_differ_where_they_do() -> None:
    one = Ask("a", Parameters({"x": np.array([1.0, np.nan])}, {"key": np.array([3])}))
    assert difference(one, one) is None
    other = {
        "stage is another": dataclasses.replace(one, stage="b"),
        "the message is Describe instead of Ask": Describe(STUDY.columns),
        "parameters.free has other names": dataclasses.replace(one, parameters=Parameters({"y": np.ones(2)})),
        "parameters.fixed.key has other numbers": dataclasses.replace(
            one, parameters=Parameters(one.parameters.free, {"key": np.array([4])})
        ),
        "parameters.free.x is not finite in other places": dataclasses.replace(
            one, parameters=Parameters({"x": np.array([1.0, np.inf])}, one.parameters.fixed)
        ),
        "has the shape (3,) instead of (2,)": dataclasses.replace(
            one, parameters=Parameters({"x": np.ones(3)}, one.parameters.fixed)
        ),
    }
    for words, message in other.items():
        assert words in (difference(one, message) or "")
    assert difference(Gradient({}, 1.0), Gradient({}, 1.0 + 1e-9)) is None
    assert "value differs" in (difference(Gradient({}, 1.0), Gradient({}, 1.1)) or "")
