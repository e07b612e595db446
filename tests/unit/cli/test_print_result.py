"""The answer on the screen."""

import json

import pytest

from unpooled.cli.print_result import print_result, sentence

ROW = {"site": "north", "n": 30, "ate": 1.5, "sd": 0.25, "lower": 1.0, "upper": 2.0}


def content(**replaced):
    return {
        "treatment": "quit", "outcome": "weight", "outcome_unit": "kg", "people": 30, "sites": [ROW],
        "site_count": 1,
        "ate": 1.5, "sd": 0.25, "ate_interval": [1.0, 2.0], "interval_probability": 0.95,
        "cost": {"rounds": 3, "seconds": 0.5, "bytes_up": {"north": 10}, "bytes_down": {"north": 20}},
        **replaced,
    }  # fmt: skip


def told(capsys, folder, **replaced):
    (folder / "result.json").write_text(json.dumps(content(**replaced)))
    print_result(folder)
    return capsys.readouterr().out


def test_the_sentence_has_the_effect_its_unit_and_its_interval():
    assert sentence(content()) == (
        "'quit' changes 'weight' by +1.50 kg on average (95% interval 1.00 to 2.00), "
        "estimated from 30 people at 1 site."
    )


@pytest.mark.parametrize("missing", [{"ate": None}, {"ate_interval": [None, 2.0]}, {"sd": None}])
def test_a_number_that_json_lacks_is_told_as_such(missing, capsys, tmp_path):
    lost = {**ROW, "ate": None, "sd": None, "lower": None, "upper": None}
    out = told(capsys, tmp_path, **missing, sites=[lost])
    assert "?" in out and "None" not in out
    assert ("no finite number" in out) == ("sd" not in missing)


def test_names_with_brackets_are_shown_as_they_are(capsys, tmp_path):
    site = {**ROW, "site": "[red]x[/nope]"}
    out = told(capsys, tmp_path, treatment="a [b]", outcome_unit="[kg/m2]", sites=[site])
    assert "'a [b]'" in out and "[kg/m2]" in out and "[red]x[/nope]" in out
