"""Reading a site's table from a database: SQLite, and a real PostgreSQL server."""

from __future__ import annotations

import sqlite3
import sys
from pathlib import Path

import pandas as pd
import pytest
from sqlalchemy import URL, create_engine

from unpooled.data import Batches, batches, check, database, frames, read, read_or_batches
from unpooled.errors import DataError
from unpooled.study import ColumnRoles, Source

COLUMNS = ColumnRoles(treatment="w", outcome="y", covariates=("age", "sex"))
QUERY = "select age, sex, y, w, name from visits"
SECRET = "hunter2"
ROWS = [
    (50.5, "f", 1.25, 0, "ann"),
    (61.0, "m", 0.5, 1, "bob"),
    (44.0, "f", 2.0, 1, "eve"),
    (39.0, "m", 1.0, 0, "dan"),
]


@pytest.fixture
def sqlite(tmp_path: Path) -> str:
    with sqlite3.connect(tmp_path / "site.db") as connection:
        connection.execute("create table visits (age real, sex text, y real, w integer, name text)")
        connection.executemany("insert into visits values (?, ?, ?, ?, ?)", ROWS)
    return f"sqlite:///{tmp_path / 'site.db'}"


@pytest.fixture(scope="module")
def visits(postgresql: URL) -> str:
    engine = create_engine(postgresql.set(drivername="postgresql+psycopg"))
    with engine.begin() as connection:
        connection.exec_driver_sql(
            "create table visits (age numeric, sex text, y float8, w boolean, name text)"
        )
        connection.exec_driver_sql("create sequence numbers")
        for age, sex, y, w, name in ROWS:
            connection.exec_driver_sql(
                "insert into visits values (%s, %s, %s, %s, %s)", (age, sex, y, bool(w), name)
            )
    engine.dispose()
    return postgresql.render_as_string(hide_password=False)


def refusal(url: str, query: str = QUERY) -> str:
    with pytest.raises(DataError) as caught:
        read((url, query), COLUMNS, site="east")
    assert "site 'east'" in caught.value.expected
    return str(caught.value)


def test_sqlite_gives_the_studys_columns_in_the_studys_order(sqlite: str) -> None:
    frame = read(Source(url=sqlite, query=QUERY), COLUMNS, site="east")
    assert list(frame.columns) == ["w", "y", "age", "sex"]
    assert frame["y"].tolist() == [1.25, 0.5, 2.0, 1.0]


def test_a_query_may_hold_colons_and_percent_signs(sqlite: str) -> None:
    query = QUERY + " where name not like ' :x%' and name like '%n%'"
    assert len(read((sqlite, query), COLUMNS, site="east")) == 2


def test_sqlite_is_read_only(sqlite: str) -> None:
    refusal(sqlite, "drop table visits")
    assert len(read((sqlite, QUERY), COLUMNS, site="east")) == 4


def test_a_missing_sqlite_file_is_an_error_and_is_not_created(tmp_path: Path) -> None:
    assert "no such file" in refusal(f"sqlite:///{tmp_path / 'none.db'}")
    assert not (tmp_path / "none.db").exists()


@pytest.mark.parametrize(
    "name", ["file:{}?uri=true", "file:{}?uri=true&mode=rwc", "file:{}%3Fmode=rwc?uri=true", "file:{}"]
)
def test_a_missing_sqlite_file_is_not_created_through_a_file_name_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    refusal("sqlite:///" + name.format("none.db"))
    assert list(tmp_path.iterdir()) == []


def test_a_file_name_still_reads_its_database(sqlite: str) -> None:
    url = sqlite.replace("sqlite:///", "sqlite:///file:")
    assert len(read((url + "?uri=true", QUERY), COLUMNS, site="east")) == 4
    assert len(read((url + "?mode=ro&uri=true", QUERY), COLUMNS, site="east")) == 4


def test_a_file_that_is_no_database_is_called_so(tmp_path: Path) -> None:
    (tmp_path / "site.db").write_text("age,sex,y,w\n" * 200)
    message = refusal(f"sqlite:///{tmp_path / 'site.db'}")
    assert "not an SQLite database" in message and "query" not in message


def test_a_query_with_a_wrong_table_is_an_error(sqlite: str) -> None:
    assert "could not execute" in refusal(sqlite, "select * from visitz")


def test_a_query_that_returns_nothing_is_an_error(sqlite: str) -> None:
    assert "no rows" in refusal(sqlite, QUERY + " where age > 200")


def test_a_column_the_query_leaves_out_is_named(sqlite: str) -> None:
    message = refusal(sqlite, "select age, sex as sexx, y, w from visits")
    assert "'sex'" in message and "did you mean 'sexx'?" in message


def test_a_column_the_query_returns_twice_is_refused(sqlite: str) -> None:
    assert "2 columns" in refusal(sqlite, "select age, age, sex, y, w from visits")


@pytest.mark.parametrize(
    "source", ["postgresql://a:hunter2@h/d", Source(path="postgresql://a:hunter2@h/d"), ("sqlite://", " ")]
)
def test_a_database_without_a_query_is_an_error(source: object) -> None:
    with pytest.raises(DataError, match="query") as caught:
        read(source, COLUMNS, site="east")  # pyright: ignore[reportArgumentType]
    assert SECRET not in str(caught.value)


def test_an_unknown_dialect_is_an_error() -> None:
    assert "no dialect called 'nodb'" in refusal(f"nodb://u:{SECRET}@host/db")


@pytest.mark.parametrize(
    "url", ["postgresql://u:hunter2@host:port/db", "no url at all, hunter2", "://hunter2"]
)
def test_an_unreadable_url_is_not_shown(url: str) -> None:
    assert SECRET not in refusal(url)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://u:hunter2@127.0.0.1:1/db",
        "postgresql://127.0.0.1:1/db?user=u&password=hunter2",
        "postgresql://u:p@hunter2@127.0.0.1:1/db",
    ],
)
def test_a_refused_connection_never_shows_the_password(url: str) -> None:
    pytest.importorskip("psycopg")
    message = refusal(url)
    assert SECRET not in message and "postgresql+psycopg://" in message


def test_without_the_driver_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in [name for name in sys.modules if name.split(".")[0] == "psycopg"]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "psycopg", None)
    assert "pip install 'unpooled[postgresql]'" in refusal("postgresql://u@host/db")


def test_postgresql_gives_the_same_table_as_sqlite(visits: str, sqlite: str) -> None:
    ours = read((visits, QUERY), COLUMNS, site="east")
    check(ours, COLUMNS, site="east")
    theirs = read((sqlite, QUERY), COLUMNS, site="east")
    pd.testing.assert_frame_equal(ours.astype({"w": int}), theirs, check_dtype=False)
    assert ours["age"].dtype == "float64"


def test_a_percent_sign_means_the_same_in_postgresql(visits: str) -> None:
    query = QUERY + " where name like '%n%' and 7 % 2 = 1 and age::float > 40"
    assert len(read((visits, query), COLUMNS, site="east")) == 1


def test_postgresql_is_read_only(visits: str) -> None:
    change = "update visits set y = 0 returning age, sex, y, w"
    for query in (change, f"with changed as ({change}) select * from changed", f"select 1; {change}"):
        refusal(visits, query)
    in_function = "select nextval('numbers') as y, age, sex, w from visits"
    assert "ReadOnlySqlTransaction" in refusal(visits, in_function)
    assert read((visits, f"{QUERY};"), COLUMNS, site="east")["y"].abs().max() > 0


def test_a_wrong_table_in_postgresql_is_named_by_its_kind(visits: str) -> None:
    assert "UndefinedTable" in refusal(visits, "select * from visitz")


def test_a_query_that_fails_on_a_value_does_not_show_the_value(visits: str) -> None:
    assert "ann" not in refusal(visits, "select name::int as age, sex, y, w from visits")


def test_a_wrong_password_is_refused_and_not_shown(postgresql: URL) -> None:
    message = refusal(postgresql.set(password=SECRET).render_as_string(hide_password=False))
    assert SECRET not in message and ":***@127.0.0.1" in message


@pytest.fixture
def few_rows_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "PART", 40)
    monkeypatch.setattr(batches, "LARGE", 100)
    monkeypatch.setattr(batches, "BATCH", 60)


@pytest.mark.usefixtures("few_rows_at_a_time")
@pytest.mark.parametrize("rows", [30, 90, 240])
def test_a_large_result_is_fetched_in_parts_and_read_in_batches(visits: str, rows: int) -> None:
    numbers = f"from generate_series(1, {rows}) as i"
    # The age of the first forty people is unknown, and the outcome is a whole number for them.
    query = f"""select i % 2 = 0 as w, case when i < 41 then 2 else i * 0.5 end as y,
        case when i > 40 then i end as age, case when i % 3 = 0 then 'f' else 'm' end as sex {numbers}"""
    table = read_or_batches((visits, query), COLUMNS, site="east")
    assert isinstance(table, Batches) == (rows > 100)
    expected = read((visits, query), COLUMNS, site="east")
    for _ in range(2):
        parts = list(frames(table))
        assert len(parts) == (4 if rows == 240 else 1)
        found = pd.concat(parts, ignore_index=True)
        pd.testing.assert_frame_equal(found, expected, check_dtype=False)


@pytest.mark.usefixtures("few_rows_at_a_time")
def test_values_of_several_types_are_refused_without_being_shown(sqlite: str) -> None:
    many = "with recursive n(i) as (select 1 union all select i + 1 from n where i < 120)"
    for mixed in (
        f"case when i = 100 then '{SECRET}' else i end",
        f"case when i > 60 then '{SECRET}' else i end",
    ):
        query = f"{many} select i % 2 as w, i as y, {mixed} as age, 'f' as sex from n"
        with pytest.raises(DataError, match="must have one type") as caught:
            read_or_batches((sqlite, query), COLUMNS, site="east")
        assert SECRET not in str(caught.value)
        assert caught.value.__cause__ is None and caught.value.__suppress_context__


@pytest.mark.usefixtures("few_rows_at_a_time")
def test_a_query_without_rows_is_refused_before_anything_is_written(sqlite: str) -> None:
    with pytest.raises(DataError, match="must have rows"):
        read_or_batches((sqlite, f"{QUERY} where age > 200"), COLUMNS, site="east")
