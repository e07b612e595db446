"""Progress: what is shown, and where."""

from unpooled.cli.progress import RECENT, ProgressDisplay
from unpooled.coordinator.rounds import Round
from unpooled.protocol.engine import Traffic


def happened(number, question, objective=None):
    return Round(number, question, 0.1, {"north": Traffic(1000, 500)}, False, objective)


def test_elsewhere_than_on_a_terminal_each_stage_is_one_line_on_stderr(capsys):
    with ProgressDisplay() as watching:
        for number, question in enumerate(["describe", "ridge: statistics", "ridge: gradient"], start=1):
            watching(happened(number, question))
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.splitlines() == ["round 1: describe", "round 2: ridge"]


def test_quiet_says_nothing(capsys):
    with ProgressDisplay(show=False) as watching:
        watching(happened(1, "describe"))
    assert capsys.readouterr() == ("", "")


def test_fitting_begins_with_the_methods_first_question():
    watching = ProgressDisplay(show=False)
    watching(happened(1, "describe"))
    assert not watching.fitting
    watching(happened(2, "ridge: statistics"))
    assert watching.fitting


def test_bytes_and_objective_are_in_the_detail():
    watching = ProgressDisplay(show=False)
    watching(happened(1, "ridge: statistics"))
    watching(happened(2, "ridge: statistics", objective=12.345))
    assert watching._detail(happened(2, "ridge", objective=12.345)) == "round 2  objective 12.35  3.0 kB"


def test_time_left_is_told_once_there_is_a_pace():
    watching = ProgressDisplay(most_rounds=100, show=False)
    assert watching._remaining(1) == ""
    for number in range(1, RECENT + 1):
        watching(happened(number, "ridge: statistics"))
    assert watching._remaining(RECENT).startswith("at most 0:")
    assert watching._remaining(100) == ""
