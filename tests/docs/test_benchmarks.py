"""The tables of the page on benchmarks are those that its committed summary of cells gives."""

from __future__ import annotations

from tests.docs.markdown import ROOT

from unpooled.benchmark.page import MARKER, parsed, rewritten
from unpooled.benchmark.summary import read

PAGE = ROOT / "docs" / "benchmarks.md"


def test_tables_are_what_the_command_makes_of_the_summary() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert len(MARKER.findall(text)) >= 20
    assert rewritten(text, read(PAGE.with_suffix(".json"))) == text, "run: unpooled benchmark page " + str(
        PAGE
    )


def test_tables_of_one_number_of_sites_compare_the_same_replicates() -> None:
    for marker, table in MARKER.findall(PAGE.read_text(encoding="utf-8")):
        if parsed(marker).layout == "cells":
            heads, _, *rows = (line.split("|")[1:-1] for line in table.splitlines())
            place = [head.strip() for head in heads].index("n")
            assert len({row[place] for row in rows}) == 1
