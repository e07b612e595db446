"""Study files: what they may say, and how a mistake is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from unpooled.errors import StudyError
from unpooled.study import Study, read_study, study_template

GOOD = """
[study]
name = "quit"
seed = 7
[columns]
treatment = "w"
outcome = "y"
covariates = ["age"]
[method]
name = "fedci"
draws = 500
[sites.north]
path = "data/north.csv"
delimiter = ";"
[sites.east]
url = "postgresql://reader:hunter2@host/db"
query = "select * from visits"
[sites.west]
url = "sqlite:///west.db"
query = "select * from visits"
"""


def written(tmp_path: Path, content: str | bytes) -> Path:
    path = tmp_path / "study.toml"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def refusal(path: Path) -> str:
    with pytest.raises(StudyError) as caught:
        read_study(path)
    return str(caught.value)


def test_a_study_file_gives_the_study(tmp_path: Path) -> None:
    study = read_study(written(tmp_path, GOOD))
    assert (study.name, study.seed, study.columns.covariates) == ("quit", 7, ("age",))
    assert (study.method.name, study.method.settings) == ("fedci", {"draws": 500})
    assert list(study.sites) == ["north", "east", "west"] and study.sites["north"].delimiter == ";"


def test_relative_paths_are_taken_from_the_files_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    written(tmp_path, GOOD)
    monkeypatch.chdir(tmp_path / "elsewhere")
    study = read_study("../study.toml")
    assert Path(study.sites["north"].path or "").resolve() == (tmp_path / "data" / "north.csv").resolve()
    assert (
        Path((study.sites["west"].url or "").removeprefix("sqlite:///")).resolve()
        == (tmp_path / "west.db").resolve()
    )
    assert study.sites["east"].url == "postgresql://reader:hunter2@host/db"


def test_absolute_paths_are_kept(tmp_path: Path) -> None:
    text = GOOD.replace("data/north.csv", "/srv/north.csv").replace(
        "sqlite:///west.db", "sqlite:////srv/west.db"
    )
    sites = read_study(written(tmp_path, text)).sites
    assert (sites["north"].path, sites["west"].url) == ("/srv/north.csv", "sqlite:////srv/west.db")


def test_a_site_may_be_a_bare_path(tmp_path: Path) -> None:
    text = GOOD.split("[sites.north]")[0] + '[sites]\nnorth = "north.csv"\n'
    assert read_study(written(tmp_path, text)).sites["north"].path == str(tmp_path / "north.csv")


def test_windows_line_ends_and_a_byte_order_mark_are_read(tmp_path: Path) -> None:
    assert read_study(written(tmp_path, "\ufeff" + GOOD.replace("\n", "\r\n"))).name == "quit"


@pytest.mark.parametrize(
    ("right", "wrong", "hint"),
    [
        ("[columns]", "[colums]", "did you mean 'columns'?"),
        ("[study]", "[stduy]", "did you mean 'study'?"),
        ("seed = 7", "sead = 7", "did you mean 'seed'?"),
        ("seed = 7", 'treatment = "w"', "unknown 'treatment' in [study]"),
        ("seed = 7", "columns = 3", "unknown 'columns' in [study]"),
        ("outcome =", "outcom =", "did you mean 'outcome'?"),
        ("delimiter =", "delimeter =", "did you mean 'delimiter'?"),
    ],
)
def test_an_unknown_word_suggests_the_nearest_known_one(
    tmp_path: Path, right: str, wrong: str, hint: str
) -> None:
    assert hint in refusal(written(tmp_path, GOOD.replace(right, wrong)))


def test_a_syntax_error_names_its_line_and_shows_nothing_of_it(tmp_path: Path) -> None:
    message = refusal(written(tmp_path, '[study]\nname = "a"\nseed = = hunter2\n'))
    assert "line 3" in message and "hunter2" not in message


def test_an_unclosed_string_at_the_end_is_a_syntax_error(tmp_path: Path) -> None:
    assert "valid TOML" in refusal(written(tmp_path, '[study]\nname = """a'))


def test_missing_files_folders_and_other_encodings_are_errors(tmp_path: Path) -> None:
    assert "no such file" in refusal(tmp_path / "none.toml")
    assert "a folder" in refusal(tmp_path)
    assert "UTF-8" in refusal(written(tmp_path, "# å\n".encode("latin-1")))


def test_paths_that_lead_nowhere_are_errors(tmp_path: Path) -> None:
    text = GOOD.replace("data/north.csv", "~nosuchuser/north.csv")
    assert "site 'north'" in refusal(written(tmp_path, text))
    message = refusal(tmp_path / "a\0b.toml")
    assert "an invalid path" in message and "\0" not in message


def test_missing_columns_and_values_of_the_wrong_kind_are_errors(tmp_path: Path) -> None:
    assert "'columns'" in refusal(written(tmp_path, "[study]\n"))
    assert "section" in refusal(written(tmp_path, "study = 3\n"))
    assert "seed" in refusal(written(tmp_path, GOOD.replace("seed = 7", 'seed = "many"')))
    assert "columns" in refusal(written(tmp_path, "columns = 3\n"))
    assert "sites" in refusal(written(tmp_path, GOOD.split("[sites.north]")[0] + "[sites]\nnorth = 3\n"))


def test_the_template_is_itself_a_study(tmp_path: Path) -> None:
    study = read_study(written(tmp_path, study_template()))
    assert study.method.name == "fedci" and set(study.sites) == {"north", "south"}


def test_every_line_the_template_offers_in_a_comment_is_valid(tmp_path: Path) -> None:
    offered = [
        line.removeprefix("# ") if line.startswith("# ") else line for line in study_template().splitlines()
    ]
    text = "\n".join(line for line in offered if "=" in line or line.startswith("[") or not line)
    study = read_study(written(tmp_path, text.replace("A study", "# A study")))
    assert study.columns.incomplete == ("smoking",) and study.columns.units == {"outcome": "kg"}
    assert study.sites["east"].query is not None and study.sites["north"].delimiter == ";"


def test_a_printed_study_does_not_show_a_password(tmp_path: Path) -> None:
    assert "hunter2" not in repr(read_study(written(tmp_path, GOOD)))


def test_where_the_tables_lie_does_not_change_the_hash(tmp_path: Path) -> None:
    study = read_study(written(tmp_path, GOOD))
    same = Study(
        name="quit",
        seed=7,
        diagnostics=True,
        treatment="w",
        outcome="y",
        covariates=["age"],
        method={"name": "fedci", "draws": 500},
    )
    assert study.hash == same.hash
