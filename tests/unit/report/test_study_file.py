"""The study beside its results."""

from unpooled.report.folder import study_file, without_password
from unpooled.study import Study, read_study


def test_a_password_never_reaches_the_results():
    assert without_password("postgresql://me:secret@host:5432/db") == "postgresql://me@host:5432/db"
    assert "secret" not in without_password("postgresql://me@host/db?password=secret&sslmode=require")
    assert "sslmode=require" in without_password("postgresql://me@host/db?password=secret&sslmode=require")
    assert without_password("no url: secret") == ""


def test_a_password_is_not_in_the_file(tmp_path):
    source = {"url": "postgresql://me:secret@host/db", "query": "select 1"}
    study = Study(treatment="w", outcome="y", covariates=["x"], sites={"north": source})
    assert "secret" not in study_file(study, tmp_path)


def test_the_written_file_reads_back_as_the_same_study(tmp_path):
    table = tmp_path / "tables" / "north.csv"
    study = Study(
        treatment="w",
        outcome="y",
        covariates=["x", "z"],
        treated="drug",
        units={"y": "kg"},
        seed=4,
        method={"name": "fedci", "draws": 50},
        sites={"north": {"path": str(table), "delimiter": ";"}},
    )
    folder = tmp_path / "results"
    folder.mkdir()
    (folder / "study.toml").write_text(study_file(study, folder), encoding="utf-8")
    again = read_study(folder / "study.toml")
    assert again.hash == study.hash
    assert 'path = "../tables/north.csv"' in (folder / "study.toml").read_text()
    assert again.sites["north"].delimiter == ";"
