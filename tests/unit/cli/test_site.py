"""`unpooled site review` and `ledger`, as a custodian uses them."""

import json
import shutil
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from unpooled.cli.site import app
from unpooled.disclosure.limits import NONE, Limits
from unpooled.errors import ApprovalError
from unpooled.protocol.codec import encode
from unpooled.protocol.messages import Ask, Refusal, Statistics
from unpooled.protocol.records import Parameters
from unpooled.protocol.table_messages import Describe, Described
from unpooled.site.answer import answer
from unpooled.site.approval import Approvals
from unpooled.site.fingerprint import fingerprint
from unpooled.site.folder import SiteFolder
from unpooled.site.identity import public_identity
from unpooled.site.known_sites import SitesFile
from unpooled.site.ledger import Ledger
from unpooled.site.site import open_site
from unpooled.study import Description, Source, read_study

runner = CliRunner()


def run(*words, typed=None):
    return runner.invoke(app, [str(word) for word in words], input=typed, env={"COLUMNS": "160"})


@pytest.fixture
def asked(study, tmp_path):
    """The study file as a custodian gets it: no table beside it."""
    return shutil.copy(study, tmp_path / "study.toml")


@pytest.fixture
def folder(study, tmp_path):
    """The folder of one of the study's sites."""
    source = Source(path=str(study.parent / "site1.csv"))
    own = SiteFolder.create(tmp_path / "site1", "site1", source, limits=NONE)
    listed(tmp_path / "sites.json", site1=public_identity(own.identity), site2=OTHER)
    return tmp_path / "site1"


OTHER = bytes(32)


def listed(path, **identities):
    """The coordinator's list of all sites."""
    sites = {name: identity.hex() for name, identity in identities.items()}
    path.write_text(SitesFile(consortium="lungs", sites=sites).model_dump_json())
    return path


def approvals(folder):
    return Approvals(SiteFolder.read(folder).approvals)


def test_a_review_says_what_is_asked_and_what_would_leave(folder, asked):
    told = run("review", asked, "--folder", folder, typed="y\n")
    assert told.exit_code == 0, told.output
    for words in (
        "estimates the effect of 'w' on 'y'",
        "fedci (inference = collapsed, structure = isotropic",
        "at most",
        "30 at site 'site1'",
        "not reviewed yet",
        Described.reveals,
        "ridge: statistics",
        "any stage: gradient",
        "no refusals",
        fingerprint(OTHER),
        "site1 (this site)",
        "Telephone the custodian of every other site",
        "Approve?",
        "approved: ",
    ):
        assert words in told.stdout, words
    pinned = approvals(folder).require(read_study(asked)).identities
    assert pinned is not None and pinned["site2"] == OTHER
    assert "approved on" in run("review", asked, "--folder", folder, typed="y\n").stdout


@pytest.mark.parametrize("how", [{"typed": "n\n"}, {"words": ["--refuse"]}])
def test_a_refused_study_is_not_answered(how, folder, asked):
    told = run("review", asked, "--folder", folder, *how.get("words", []), typed=how.get("typed"))
    assert told.exit_code == 0 and "refused: " in told.stdout
    with pytest.raises(ApprovalError, match="refused"):
        approvals(folder).require(read_study(asked))


def test_without_an_answer_nothing_is_decided(folder, asked):
    assert run("review", asked, "--folder", folder, typed="").exit_code != 0
    assert run("review", asked, "--folder", folder, typed="\n").exit_code != 0
    assert not (folder / "approvals.json").exists()


def test_a_changed_study_is_shown_with_its_changes(folder, asked):
    assert run("review", asked, "--folder", folder, "--approve").exit_code == 0
    asked.write_text(asked.read_text().replace("draws = 20", "draws = 25"))
    told = run("review", asked, "--folder", folder, "--refuse")
    assert "changed: method.draws" in told.stdout
    assert "differs from the version approved on" in told.stdout


def test_the_sites_own_limits_are_tried(study, asked, tmp_path):
    source = Source(path=str(study.parent / "site1.csv"))
    SiteFolder.create(tmp_path / "strict", "site1", source, limits=Limits(rows=31))
    told = run("review", asked, "--folder", tmp_path / "strict", "--refuse")
    assert "would refuse: a site must have at least 31 rows" in told.stdout
    SiteFolder.create(tmp_path / "sharing", "site1", source, limits=Limits(rows=1, cell=1, share=0.2))
    told = run("review", asked, "--folder", tmp_path / "sharing", "--refuse")
    assert "features for groups of 13 people" in told.stdout


def test_as_json_a_review_is_one_object_and_asks_nothing(folder, asked):
    found = json.loads(run("review", asked, "--folder", folder, "--json").stdout)
    assert found["decision"] is None
    assert found["rows"] == 30 and found["refusals"] == []
    assert {"kind", "reveals"} == set(found["leaving"][0])
    decided = json.loads(run("review", asked, "--folder", folder, "--json", "--approve").stdout)
    assert decided["decision"] == "approved"
    assert decided["hash"] == found["hash"]


def test_a_study_with_masks_is_not_approved_without_the_list_of_sites(folder, asked, tmp_path):
    (tmp_path / "sites.json").rename(tmp_path / "elsewhere.json")
    told = run("review", asked, "--folder", folder, typed="y\n")
    assert told.exit_code == ApprovalError.exit_code and "no list of sites" in told.output
    assert "ask the coordinator for sites.json" in told.output
    assert not (folder / "approvals.json").exists()
    assert run("review", asked, "--folder", folder, "--refuse").exit_code == 0
    words = ("review", asked, "--folder", folder, "--approve")
    assert run(*words, "--sites", tmp_path / "elsewhere.json").exit_code == 0
    asked.write_text(asked.read_text() + '[privacy]\naggregation = "plain"\n')
    assert run(*words).exit_code == 0


WRONG_LISTS = {
    "another identity of 'site1'": {"site1": bytes(31) + b"1", "site2": OTHER},
    "no 'site1'": {"site2": OTHER},
}


@pytest.mark.parametrize("found", WRONG_LISTS)
def test_a_list_without_the_sites_own_identity_is_refused(found, folder, asked, tmp_path):
    listed(tmp_path / "sites.json", **WRONG_LISTS[found])
    told = run("review", asked, "--folder", folder, "--approve")
    assert told.exit_code == ApprovalError.exit_code and found in told.output
    assert not (folder / "approvals.json").exists()


@pytest.mark.parametrize("text", ["{", '{"consortium": "x", "sites": {"a": "00"}}', "twice"])
def test_a_damaged_list_is_refused(text, folder, asked, tmp_path):
    if text == "twice":
        text = json.dumps({"consortium": "x", "sites": {"a": "00" * 32, "b": "00" * 32}})
    (tmp_path / "sites.json").write_text(text)
    told = run("review", asked, "--folder", folder, "--approve")
    assert told.exit_code == 7 and "damaged" in told.output


@pytest.fixture
def several_kinds(tmp_path):
    """Write a study with columns of all kinds, and return the words that review it at its site."""
    rng, rows = np.random.default_rng(0), 400
    table = pd.DataFrame(
        {
            "w": np.arange(rows) % 2,
            "y": rng.normal(size=rows),
            "age": rng.normal(size=rows),
            "sex": rng.integers(0, 2, rows),
            "city": rng.choice(["Oslo", "Rome"], rows),
            "smoking": np.where(rng.random(rows) < 0.3, np.nan, rng.normal(size=rows)),
            "never": np.full(rows, np.nan),
            "same": np.zeros(rows),  # here, and not elsewhere
        }
    )
    table.to_csv(tmp_path / "north.csv", index=False)
    own = SiteFolder.create(tmp_path / "north", "north", Source(path=str(tmp_path / "north.csv")))
    listed(tmp_path / "sites.json", north=public_identity(own.identity))

    def write(method):
        incomplete = 'incomplete = ["smoking", "never"]\n' if method == "causal_fi" else ""
        (tmp_path / "study.toml").write_text(
            '[columns]\ntreatment = "w"\noutcome = "y"\ncovariates = ["age", "sex", "city", "same"]\n'
            f'{incomplete}[method]\nname = "{method}"\n'
        )
        return "review", tmp_path / "study.toml", "--folder", tmp_path / "north"

    return write


@pytest.mark.parametrize("method", ["causal_rff", "causal_fi"])
def test_every_method_can_be_reviewed(method, several_kinds):
    told = run(*several_kinds(method), "--approve")
    assert told.exit_code == 0, told.output
    assert "no refusals" in told.stdout
    assert ("missing patterns" in told.stdout) == (method == "causal_fi")


@pytest.mark.parametrize(("method", "words"), [("aipw", "do not follow"), ("fedci", "trusted with them")])
def test_a_review_says_whether_rows_could_follow_from_all_that_leaves(method, words, several_kinds):
    asked = several_kinds(method)
    if method == "aipw":  # with three draws of the folds there may be more numbers than values
        asked[1].write_text(asked[1].read_text().replace("[method]", "[method]\nrepeats = 1"))
    assert words in run(*asked, "--refuse").stdout
    found = json.loads(run(*asked, "--json").stdout)
    assert found["values"] == 400 * 6
    assert (found["numbers"] > found["values"]) == (method == "fedci")


def test_a_study_for_other_tables_is_told_as_an_error(folder, asked):
    asked.write_text(asked.read_text().replace('outcome = "y"', 'outcome = "z"'))
    told = run("review", asked, "--folder", folder, "--approve")
    assert told.exit_code == 3
    assert not (folder / "approvals.json").exists()


def test_a_name_cannot_steer_the_terminal(folder, asked):
    text = asked.read_text()
    line = next(line for line in text.splitlines() if line.startswith("name = "))
    asked.write_text(text.replace(line, 'name = "harmless\\u001b[2J"', 1))
    told = run("review", asked, "--folder", folder, "--refuse")
    assert told.exit_code == 0 and "harmless?[2J" in told.stdout
    assert "\x1b[2J" not in told.stdout


def record(folder, count=2):
    own = SiteFolder.read(folder)
    ledger = Ledger(own.ledger)
    for number in range(count):
        ledger.record("a" * 64, number + 1, Ask("ridge", Parameters()), b"", Statistics(), b"x" * 1500)


def test_the_ledger_tells_what_left_newest_last(folder):
    assert "Nothing has left" in run("ledger", "--folder", folder).stdout
    record(folder)
    told = run("ledger", "--folder", folder)
    assert told.exit_code == 0, told.output
    assert told.stdout.splitlines()[-1] == "2 replies to 1 study, 3.0 kB in all, left site 'site1'."
    assert told.stdout.index("  1  ") < told.stdout.index("  2  ")
    found = json.loads(run("ledger", "--folder", folder, "--json").stdout)
    assert (found["replies"], found["bytes"], len(found["lines"])) == (2, 3000, 2)


def narrow(*words):
    return runner.invoke(app, [str(word) for word in words], env={"COLUMNS": "80"})


def kept(folder, reply, question=None):
    question = Ask("ridge", Parameters({"x": np.full((4, 2), -2.5)})) if question is None else question
    asked, left = encode(question), encode(reply)
    Ledger(folder / "ledger.jsonl").record("a" * 64, 7, question, asked, reply, left, people=31)


def test_the_ledger_can_be_read_at_80_columns(folder):
    kept(folder, Statistics({"gram": np.ones((4, 2))}))
    kept(folder, Refusal("LimitRefusal", "a", "b", "c"))
    told = narrow("ledger", "--folder", folder)
    assert told.exit_code == 0, told.output
    assert max(map(len, told.stdout.splitlines())) <= 80
    (line,) = [line for line in told.stdout.splitlines() if line.lstrip().startswith("1 ")]
    cells = line.split()
    assert [cells[0], *cells[3:7], cells[-2], cells[-1]] == [
        "1",
        "7",
        "4",
        "2.5",
        "31",
        "ridge:",
        "statistics",
    ]
    assert "(refused)" in told.stdout and Statistics.reveals in " ".join(told.stdout.split())


def test_a_reply_is_opened_as_tables(folder):
    large = np.arange(4000.0).reshape(2, 50, 40)
    kept(folder, Statistics({"gram": np.array([[1.5, 2.0]]), "all": large}, {"n": np.array([3])}))
    told = narrow("ledger", "--folder", folder, "--show", "1")
    assert told.exit_code == 0, told.output
    assert max(map(len, told.stdout.splitlines())) <= 80
    for words in (
        "Line 1: Statistics",
        "summed.gram: 1 x 2",
        "1.5",
        "summed.all: 2 x 50 x 40",
        "per_site.n: 1",
    ):
        assert words in told.stdout
    assert "from 0 to 3999; the first numbers are" in told.stdout
    found = json.loads(narrow("ledger", "--folder", folder, "--show", "1", "--json").stdout)
    assert found["reply"]["summed.gram"] == [[1.5, 2.0]] and found["line"]["people"] == 31
    assert narrow("ledger", "--folder", folder, "--show", "2").exit_code == 7


def test_words_of_a_reply_are_shown_without_control_characters(folder):
    column = {"name": "city", "kind": "categorical", "levels": ["Oslo\x1b[2J", "Rome"]}
    description = Description(rows=30, arms={"0": 12, "1": 18}, columns=[column])
    kept(folder, Described(description))
    told = narrow("ledger", "--folder", folder, "--show", "1")
    assert told.exit_code == 0, told.output
    assert "description.rows" in told.stdout and "Oslo?[2J" in told.stdout
    assert "\x1b[2J" not in told.stdout


def test_a_reply_that_was_altered_is_not_shown(folder):
    kept(folder, Statistics({"gram": np.ones((1, 2))}))
    (folder / "replies" / "000001.msgpack").write_bytes(encode(Statistics({"gram": np.zeros((1, 2))})))
    told = narrow("ledger", "--folder", folder, "--show", "1")
    assert told.exit_code == 7 and "the reply of line 1 was altered" in told.stderr


def test_a_verified_ledger_says_how_many_lines_hold_and_a_touched_one_ends_in_an_error(folder):
    record(folder, 3)
    assert run("ledger", "--folder", folder, "--verify").stdout.startswith("3 lines verified, from 2")
    found = json.loads(run("ledger", "--folder", folder, "--verify", "--json").stdout)
    assert found["verified"]["lines"] == 3
    path = folder / "ledger.jsonl"
    path.write_text(path.read_text().replace('"round":2', '"round":5'))
    told = run("ledger", "--folder", folder, "--verify")
    assert told.exit_code == 7
    assert "line 2 was altered" in told.stderr


def test_no_value_of_a_row_is_told_or_kept(tmp_path):
    rng = np.random.default_rng(1)
    rows = 60
    table = pd.DataFrame(
        {
            "w": np.where(np.arange(rows) % 2, "canary-drug", "canary-none"),
            "y": rng.normal(size=rows),
            "age": rng.uniform(20.0, 90.0, size=rows),
            "city": rng.choice(["canary-oslo", "canary-rome"], rows),
            "patient": [f"canary-{number}" for number in range(rows)],
        }
    )
    table.to_csv(tmp_path / "north.csv", index=False)
    (tmp_path / "study.toml").write_text(
        '[columns]\ntreatment = "w"\ntreated = "canary-drug"\noutcome = "y"\ncovariates = ["age", "city"]\n'
        'id = "patient"\n[method]\nname = "fedci"\nstructure = "projection"\n'
    )
    own = SiteFolder.create(tmp_path / "north", "north", Source(path=str(tmp_path / "north.csv")))
    listed(tmp_path / "sites.json", north=public_identity(own.identity))
    words = ("review", tmp_path / "study.toml", "--folder", own.folder, "--approve")
    told = "".join(result.output for result in (run(*words), run(*words, "--json")))
    study = read_study(tmp_path / "study.toml")
    question = Describe(study.columns)
    reply = answer(open_site("north", own.source, study, own.limits), question)
    assert isinstance(reply, Described)
    Ledger(own.ledger).record(study.hash, 1, question, encode(question), reply, encode(reply))
    told += (
        run("ledger", "--folder", own.folder).output + run("ledger", "--folder", own.folder, "--json").output
    )
    files = [path for path in own.folder.iterdir() if path.is_file() and path.suffix != ".key"]
    kept = "".join(path.read_text() for path in files)  # the replies are kept as they left
    # The treated level is the study's own word for it, which the custodian is meant to read.
    seen = (told + kept).replace("canary-drug", "")
    assert "canary" not in seen
    for value in (*table["y"], *table["age"]):
        assert f"{value:.6f}"[:-1] not in seen


def test_help_imports_nothing_heavy(environment):
    heavy = "('jax', 'pandas', 'numpy', 'pydantic', 'scipy')"
    program = f"import sys, unpooled.cli.site; print(*[name for name in {heavy} if name in sys.modules])"
    told = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)
    assert (told.returncode, told.stdout.strip()) == (0, "")
