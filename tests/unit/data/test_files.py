"""Reading a site's table from a frame or a file."""

from __future__ import annotations

import gzip
from decimal import Decimal
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unpooled.data import read
from unpooled.errors import DataError
from unpooled.study import ColumnRoles, Source

COLUMNS = ColumnRoles(treatment="w", outcome="y", covariates=("age", "sex"))
FRAME = pd.DataFrame(
    {"age": [50.5, 61.0, 44.0], "sex": ["f", "m", "f"], "y": [1.5, 0.25, 2.0], "w": [0, 1, 1], "extra": 7}
)
CSV = "age,sex,y,w,extra\n50.5,f,1.5,0,7\n61,m,0.25,1,7\n44,f,2,1,7\n"


def refusal(source: object) -> str:
    with pytest.raises(DataError) as caught:
        read(source, COLUMNS, site="north")  # pyright: ignore[reportArgumentType]
    assert all("site 'north'" in one.expected for one in caught.value.problems)
    return str(caught.value)


def written(tmp_path: Path, content: str | bytes, name: str = "site.csv") -> Path:
    (tmp_path / name).write_bytes(content.encode() if isinstance(content, str) else content)
    return tmp_path / name


def test_a_frame_keeps_the_studys_columns_in_the_studys_order() -> None:
    assert list(read(FRAME, COLUMNS, site="north").columns) == ["w", "y", "age", "sex"]


def test_the_input_frame_is_never_changed() -> None:
    before = FRAME.copy()
    table = read(FRAME, COLUMNS, site="north")
    table.loc[:, "y"] = 0.0
    table["new"] = 1
    pd.testing.assert_frame_equal(FRAME, before)


def test_every_way_to_store_a_table_gives_the_same_table(tmp_path: Path) -> None:
    FRAME.to_parquet(tmp_path / "site.parquet")
    sources = [
        tmp_path / "site.parquet",
        written(tmp_path, CSV),
        str(written(tmp_path, CSV.replace(",", "\t"), "site.tsv")),
        Source(path=str(written(tmp_path, CSV.replace(",", ";"), "semi.txt")), delimiter=";"),
        written(tmp_path, gzip.compress(CSV.encode()), "site.csv.gz"),
        written(tmp_path, "\ufeff" + CSV.replace("\n", "\r\n"), "windows.CSV"),
    ]
    for source in sources:
        pd.testing.assert_frame_equal(read(source, COLUMNS, site="north"), read(FRAME, COLUMNS, site="north"))


def test_the_type_of_a_column_is_decided_on_all_its_rows(tmp_path: Path) -> None:
    rows = "1,f,1,0\n" * 200_000 + "1.5,f,1,0\n"
    frame = read(written(tmp_path, "age,sex,y,w\n" + rows), COLUMNS, site="north")
    assert frame["age"].dtype == "float64" and frame["age"].iloc[-1] == 1.5


def test_empty_fields_and_na_are_missing_in_numbers_and_in_text(tmp_path: Path) -> None:
    frame = read(written(tmp_path, "age,sex,y,w\n1,f,2,0\n,,3,1\nNA,NA,1,1\n"), COLUMNS, site="north")
    assert frame.isna().sum().to_dict() == {"w": 0, "y": 0, "age": 2, "sex": 2}


def test_exact_decimals_in_parquet_become_floats(tmp_path: Path) -> None:
    FRAME.assign(age=[Decimal("1.50"), Decimal("2.25"), None]).to_parquet(tmp_path / "site.parquet")
    assert read(tmp_path / "site.parquet", COLUMNS, site="north")["age"].dtype == "float64"


@pytest.mark.parametrize(("mark", "spelt"), [(";", '";"'), ("\t", '"\\t"'), ("|", '"|"')])
def test_a_wrong_delimiter_is_recognised(tmp_path: Path, mark: str, spelt: str) -> None:
    assert f"delimiter = {spelt}" in refusal(written(tmp_path, CSV.replace(",", mark)))


def test_a_comma_file_read_with_another_delimiter_is_recognised(tmp_path: Path) -> None:
    assert 'delimiter = ","' in refusal(Source(path=str(written(tmp_path, CSV)), delimiter=";"))


def test_a_delimiter_of_two_characters_is_an_error(tmp_path: Path) -> None:
    assert "one character" in refusal(Source(path=str(written(tmp_path, CSV)), delimiter=";;"))


def test_a_missing_file_a_folder_and_a_strange_ending_are_errors(tmp_path: Path) -> None:
    assert "no such file" in refusal(tmp_path / "none.csv")
    (tmp_path / "folder.csv").mkdir()
    assert "a folder" in refusal(tmp_path / "folder.csv")
    assert ".parquet" in refusal(written(tmp_path, "x", "site.xlsx"))


def test_something_that_is_not_parquet_or_not_gzip_is_an_error(tmp_path: Path) -> None:
    assert "Parquet" in refusal(written(tmp_path, CSV, "site.parquet"))
    assert "decompress" in refusal(written(tmp_path, CSV, "site.csv.gz"))


def test_an_empty_file_and_a_file_with_only_a_header_are_errors(tmp_path: Path) -> None:
    assert "empty file" in refusal(written(tmp_path, ""))
    assert "no rows" in refusal(written(tmp_path, "age,sex,y,w\n"))


def test_a_frame_without_rows_is_an_error() -> None:
    assert "no rows" in refusal(FRAME.iloc[:0])


def test_text_in_another_encoding_is_an_error(tmp_path: Path) -> None:
    assert "UTF-8" in refusal(written(tmp_path, CSV.replace("m", "männlich").encode("latin-1")))
    assert "UTF-8" in refusal(written(tmp_path, CSV.encode("utf-16")))
    late = CSV + "44,f,2,1,7\n" * 5000 + "44,männlich,2,1,7\n"
    assert "UTF-8" in refusal(written(tmp_path, late.encode("latin-1")))


def test_a_ragged_row_is_told_by_its_number_and_not_by_its_values(tmp_path: Path) -> None:
    message = refusal(written(tmp_path, CSV + "987654,f,2,1\n"))
    assert "row 4 has 4 fields where the header has 5" in message and "987654" not in message


def test_row_names_without_a_header_are_refused_rather_than_shifted(tmp_path: Path) -> None:
    assert "row names" in refusal(written(tmp_path, "age,sex,y,w\nr1,50,f,1,0\nr2,51,m,2,1\n"))


def test_a_missing_column_is_named_with_the_closest_one() -> None:
    assert "did you mean 'agee'?" in refusal(FRAME.rename(columns={"age": "agee"}))
    assert "did you mean 'AGE'?" in refusal(FRAME.rename(columns={"age": "AGE"}))
    assert "did you mean ' age'?" in refusal(FRAME.rename(columns={"age": " age"}))


def test_a_wide_table_is_not_listed_in_full() -> None:
    wide = pd.DataFrame({f"zz{number}": [1] for number in range(500)})
    assert len(refusal(wide)) < 300 * len(COLUMNS.names)  # each of the study's columns is missing


def test_a_column_that_occurs_twice_is_refused(tmp_path: Path) -> None:
    assert "2 columns" in refusal(pd.concat([FRAME, FRAME[["age"]]], axis=1))
    assert "2 columns" in refusal(written(tmp_path, "age,age,sex,y,w\n1,2,f,3,0\n"))


def test_a_source_of_another_type_is_an_error() -> None:
    assert "a dict" in refusal({"age": [1]})


numbers = st.floats(-1e9, 1e9, allow_nan=False)


@given(
    st.lists(
        st.tuples(numbers, st.sampled_from(["f", "m"]), numbers, st.integers(0, 1)), min_size=1, max_size=20
    )
)
def test_csv_keeps_every_digit(tmp_path_factory: pytest.TempPathFactory, rows: list[tuple]) -> None:
    frame = pd.DataFrame(rows, columns=["age", "sex", "y", "w"])
    path = tmp_path_factory.mktemp("csv") / "site.csv"
    frame.to_csv(path, index=False)
    again = read(path, COLUMNS, site="north")
    np.testing.assert_array_equal(
        again[["age", "y", "w"]].to_numpy(float), frame[["age", "y", "w"]].to_numpy(float)
    )
    assert again["sex"].tolist() == frame["sex"].tolist()


def test_a_file_without_a_header_is_recognised_and_none_of_its_values_shown(tmp_path: Path) -> None:
    for content in (CSV.partition("\n")[2], "61.25,Jane Doe,0.75,1\n44,Joan,2,0\n"):
        message = refusal(written(tmp_path, content))
        assert "header appears to be missing" in message
        assert not any(value in message for value in ("61", "50.5", "Jane", "0.75"))
    assert "header appears to be missing" in refusal(pd.DataFrame([[61.25, "Jane"]]))


def test_names_that_may_be_values_are_never_listed(tmp_path: Path) -> None:
    odd = ["61.25", "1e3", "2020-01-31", "x" * 61, "Jane\tDoe", "plain"]
    message = refusal(pd.DataFrame([[1] * 7], columns=["w", *odd]))
    assert "known: 'plain', 'w'" in message
    assert "known" not in refusal(
        pd.DataFrame([[1] * 6], columns=["w2", *odd[:5]]).rename(columns={"w2": "1"})
    )


def test_parquet_damaged_in_the_middle_is_an_error(tmp_path: Path) -> None:
    frame = pd.DataFrame({name: np.arange(5000.0) for name in ("w", "y", "age", "sex")})
    frame.to_parquet(tmp_path / "site.parquet")
    content = bytearray((tmp_path / "site.parquet").read_bytes())
    content[4:4000] = b"\xff" * 3996
    assert "damaged" in refusal(written(tmp_path, bytes(content), "site.parquet"))


def test_paths_that_no_file_can_have_are_errors() -> None:
    message = refusal("a\0b.csv")
    assert "an invalid path" in message and "\0" not in message
    assert "~nosuchuser" in refusal("~nosuchuser/site.csv")
