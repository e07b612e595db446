"""A site's own folder."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from unpooled.disclosure.limits import Limits
from unpooled.errors import ResultsError, StudyError
from unpooled.site.folder import REPLY_BYTES, SiteFolder
from unpooled.study import Source


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def _write(folder: Path, text: str) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "site.toml").write_text(text)
    return folder


def test_what_is_written_is_what_is_read(tmp_path: Path) -> None:
    source = Source(path=str(tmp_path / "north.csv"), delimiter=";")
    limits = Limits(rows=20, cell=7, share=0.25)
    made = SiteFolder.create(tmp_path / "north", "north", source, limits=limits, reply_bytes=1000)
    assert made == SiteFolder.read(tmp_path / "north")
    assert (made.name, made.source, made.limits, made.reply_bytes) == ("north", source, limits, 1000)
    assert made.ledger == tmp_path / "north" / "ledger.jsonl"
    assert made.approvals == tmp_path / "north" / "approvals.json"


def test_nobody_else_may_look_inside_and_the_password_shows_nowhere(tmp_path: Path) -> None:
    (tmp_path / "north").mkdir(mode=0o755)
    source = Source(url="postgresql://reader:geheim@db/registry", query="select 1")
    made = SiteFolder.create(tmp_path / "north", "north", source)
    assert _mode(tmp_path / "north") == 0o700
    assert _mode(tmp_path / "north" / "site.toml") == 0o600
    assert made.source.url == source.url
    assert "geheim" not in repr(made)


def test_limits_bind_unless_the_custodian_says_otherwise(tmp_path: Path) -> None:
    found = SiteFolder.read(_write(tmp_path, 'name = "north"\n[data]\npath = "north.csv"\n'))
    assert found.limits == Limits()
    assert found.reply_bytes == REPLY_BYTES == 64 * 1024 * 1024


def test_relative_paths_lead_from_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = SiteFolder.read(_write(tmp_path / "a", 'name = "n"\n[data]\npath = "../north.csv"\n'))
    assert Path(found.source.path or "").resolve() == tmp_path / "north.csv"
    database = '[data]\nurl = "sqlite:///n.db"\nquery = "select 1"\n'
    found = SiteFolder.read(_write(tmp_path / "b", f'name = "n"\n{database}'))
    assert found.source.url == f"sqlite:///{tmp_path / 'b' / 'n.db'}"
    monkeypatch.chdir(tmp_path)
    made = SiteFolder.create("c", "n", Source(path="north.csv"))
    assert made.source.path == str(tmp_path / "north.csv")


def test_a_table_inside_the_folder_moves_with_it(tmp_path: Path) -> None:
    folder = tmp_path / "old"
    SiteFolder.create(folder, "n", Source(path=str(folder / "north.csv")))
    folder.rename(tmp_path / "new")
    assert SiteFolder.read(tmp_path / "new").source.path == str(tmp_path / "new" / "north.csv")


def test_a_folder_is_not_taken_twice(tmp_path: Path) -> None:
    SiteFolder.create(tmp_path, "north", Source(path="a.csv"))
    before = (tmp_path / "site.toml").read_text()
    with pytest.raises(ResultsError, match="already"):
        SiteFolder.create(tmp_path, "south", Source(path="b.csv"))
    assert (tmp_path / "site.toml").read_text() == before


WRONG = {
    'nmae = "n"\n[data]\npath = "a.csv"': "did you mean 'name'",
    'name = "n"\n[data]\npth = "a.csv"': "did you mean 'path'",
    'name = "n"\n[data]\npath = "a.csv"\n[limits]\nrow = 3': "did you mean 'rows'",
    'name = "n"\n[dta]\npath = "a.csv"': "did you mean 'data'",
    'name = "n"': "no 'data'",
    'name = "n"\n[data]\nurl = "postgresql://a:geheim@b/c"': "needs a `query`",
    'name = " "\n[data]\npath = "a.csv"': "without a name",
    'name = "All Sites"\n[data]\npath = "a.csv"': "reserved for results over all sites",
    'name = "n"\n[data]\npath = "a.csv"\n[limits]\nrows = -1': "limits.rows",
    'name = "n"\n[data]\npath = "a.csv"\n[limits]\nshare = nan': "limits.share",
    'name = "n"\n[data]\nurl = "postgresql://a:geheim@b/c\n': "line 3",
}


@pytest.mark.parametrize("text", WRONG)
def test_what_is_wrong_is_named_and_a_password_is_not(text: str, tmp_path: Path) -> None:
    with pytest.raises(StudyError) as raised:
        SiteFolder.read(_write(tmp_path, text))
    assert WRONG[text] in str(raised.value)
    assert "geheim" not in str(raised.value)


def test_no_folder_is_told_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(ResultsError, match="--folder"):
        SiteFolder.read(tmp_path / "nowhere")


def test_nothing_is_made_for_a_site_that_cannot_be(tmp_path: Path) -> None:
    with pytest.raises(StudyError):
        SiteFolder.create(tmp_path / "north", "all sites", Source(path="a.csv"))
    assert not (tmp_path / "north").exists()
