"""The demonstration's data, and its error where the data is not installed."""

import sys

import pandas as pd
import pytest
from typer.testing import CliRunner

from unpooled.cli.app import app
from unpooled.cli.demo import write_sites
from unpooled.data import check, nhefs
from unpooled.data.sources import read


@pytest.fixture(scope="module")
def data():
    pytest.importorskip("causaldata")
    return nhefs.nhefs()


def test_everyone_is_in_one_region_or_counted_as_left_out(data):
    people = sum(len(frame) for frame in data.sites.values())
    assert (people, data.without_outcome, data.without_region) == (1476, 63, 90)
    assert list(data.sites) == ["midwest", "northeast", "south", "west"]


def test_every_state_and_the_capital_have_one_region():
    assert len(nhefs.REGION_OF) == 51
    assert not set(nhefs.REGION_OF) & {3, 7, 14, 43, 52}  # codes that FIPS never assigned
    assert {nhefs.REGION_OF[code] for code in (36, 42, 25)} == {"northeast"}
    assert nhefs.REGION_OF[48] == nhefs.REGION_OF[11] == "south"
    assert nhefs.REGION_OF[6] == "west" and nhefs.REGION_OF[17] == "midwest"


def test_the_site_files_pass_the_checks_a_site_makes(data, tmp_path):
    study = write_sites(data, tmp_path, thorough=False)
    assert study.method.settings == {"structure": "projection"}
    assert write_sites(data, tmp_path, thorough=True).method.settings == {}
    for site, source in study.sites.items():
        frame = read(source, study.columns, site=site)
        check(frame, study.columns, site=site)
        pd.testing.assert_frame_equal(frame, data.sites[site].reset_index(drop=True)[list(frame.columns)])


def test_without_the_data_the_pip_command_is_given(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "causaldata", None)
    result = CliRunner().invoke(app, ["demo", "--output", str(tmp_path / "d")])
    assert result.exit_code == 3
    assert "pip install 'unpooled[demo]'" in result.stderr
    assert not (tmp_path / "d").exists()
