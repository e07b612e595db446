"""`unpooled run`, as a real process."""

import json
import signal
import subprocess
import time

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def wait_for_rounds(process, journal, count):
    """Until the journal has so many lines; the process must still be running then."""
    while process.poll() is None:
        if journal.exists() and journal.read_text().count("\n") >= count:
            return
        time.sleep(0.02)
    pytest.fail(f"ended before round {count}: {process.communicate()}")


def interrupted(process):
    """Ctrl-C until the process ends: Python drops one that arrives inside a callback of its own."""
    for _ in range(10):
        process.send_signal(signal.SIGINT)
        try:
            return process.communicate(timeout=3)[1]
        except subprocess.TimeoutExpired:
            continue
    return process.communicate(timeout=120)[1]


def test_the_answer_is_one_sentence_with_its_interval(finished, answer):
    folder, out = finished
    lower, upper = answer["ate_interval"]
    failed = [check["name"] for check in answer["checks"] if not check["passed"]]
    above, sentence = out.splitlines()[:2] if failed else ("", out.splitlines()[0])
    assert all(name in above for name in failed)
    assert f"{answer['ate']:+.3g}" in sentence
    assert f"{lower:.3g} to {upper:.3g}" in sentence
    assert "90 people at 3 sites" in sentence
    assert str(folder) in out
    assert all(site in out for site in ("site1", "site2", "site3", "all sites"))


def test_the_folder_is_complete(finished):
    folder, _ = finished
    names = {"result.json", "summary.csv", "draws.csv", "journal.jsonl", "study.toml", "figures", "model"}
    assert names <= {path.name for path in folder.iterdir()}


def test_what_left_each_site_adds_up_to_its_bytes(answer):
    cost = answer["cost"]
    for site, kinds in cost["left"].items():
        assert sum(kind["bytes"] for kind in kinds) == cost["bytes_up"][site] > 0
        assert sum(kind["count"] for kind in kinds) == cost["rounds"]
        assert all(kind["reveals"] for kind in kinds)


def test_stopped_then_killed_then_resumed_gives_the_same_numbers(start, unpooled, study, answer, tmp_path):
    folder = tmp_path / "results"
    words = ("run", study, "--output", folder)
    first = start(*words)
    wait_for_rounds(first, folder / "journal.jsonl", 6)
    err = interrupted(first)
    assert first.returncode == 130
    assert "--resume" in err
    # A Ctrl-C inside JAX's callback of the garbage collector is dropped by Python, which says so.
    _, _, after = err.rpartition("KeyboardInterrupt:")
    assert "Traceback" not in (after if "_xla_gc_callback" in err else err)
    assert unpooled(*words)[0] == 7, "without --resume the folder is in the way"

    before = (folder / "journal.jsonl").read_text().count("\n")
    second = start(*words, "--resume")
    wait_for_rounds(second, folder / "journal.jsonl", 2 * before + 3)
    second.kill()
    second.communicate(timeout=120)

    code, out, err = unpooled(*words, "--resume", "--json")
    assert code == 0, err
    again = json.loads(out)
    assert again["ate"] == pytest.approx(answer["ate"], abs=1e-12)
    assert again["ate_interval"] == pytest.approx(answer["ate_interval"], abs=1e-12)
    assert again["cost"]["rounds"] == answer["cost"]["rounds"]
    lines = [json.loads(text) for text in (folder / "journal.jsonl").read_text().splitlines()]
    assert sum(line["replayed"] for line in lines) >= 2 * before + 3, "what was answered is not asked again"
    assert json.loads((folder / "result.json").read_text())["ate"] == again["ate"]
