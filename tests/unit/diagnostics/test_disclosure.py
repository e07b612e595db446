"""What left each site, from journal lines."""

from unpooled.disclosure.reveals import cost, left, reveals
from unpooled.protocol.messages import Gradient
from unpooled.protocol.table_messages import Described


class Stage:
    reveals = "a Gram matrix"


STAGES = {"ridge": Stage()}


def line(number, question, up=0, replayed=False):
    traffic = {"north": {"down": 10 * up, "up": up}} if up else {}
    return {"round": number, "question": question, "seconds": 1.0, "replayed": replayed, "bytes": traffic}


def test_a_message_reveals_what_its_class_or_its_stage_says():
    assert reveals("describe", STAGES) == Described.reveals
    assert reveals("ridge: statistics", STAGES) == "a Gram matrix"
    assert reveals("ridge: gradient", STAGES) == Gradient.reveals


def test_several_questions_in_one_exchange_reveal_what_each_does():
    assert reveals("ridge: statistics + ridge: gradient", STAGES) == f"a Gram matrix; {Gradient.reveals}"


def test_bytes_and_counts_add_up_by_kind():
    lines = [line(1, "describe", 5), line(2, "ridge: statistics", 7), line(3, "ridge: statistics", 8)]
    found = left(lines, STAGES)["north"]
    assert [(one["kind"], one["count"], one["bytes"]) for one in found] == [
        ("describe", 1, 5),
        ("ridge: statistics", 2, 15),
    ]


def test_a_resumed_study_costs_what_both_parts_cost():
    first = [line(1, "describe", 5), line(2, "ridge: statistics", 7)]
    again = [line(1, "describe", replayed=True), line(2, "ridge: statistics", replayed=True)]
    found = cost([*first, *again, line(3, "ridge: statistics", 8)], ["north"])
    assert found.rounds == 3
    assert found.rounds_without_bytes == 0
    assert found.bytes_up == {"north": 20}
    assert found.bytes_down == {"north": 200}


def test_a_round_whose_bytes_were_never_recorded_is_counted_as_such():
    found = cost([line(1, "describe", 5), line(2, "ridge: statistics", replayed=True)], ["north"])
    assert found.rounds_without_bytes == 1
