"""The parts of a Markdown page that can be true or false: code blocks, links, tables."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = tuple(sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]))


@dataclass(frozen=True)
class Block:
    """One fenced block."""

    language: str
    text: str
    line: int


def blocks(page: Path) -> list[Block]:
    """Every fenced block of a page."""
    text = page.read_text(encoding="utf-8")
    return [
        Block(match[1], match[2], text[: match.start()].count("\n") + 2)
        for match in re.finditer(r"^```(\w*)\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)
    ]


def rows(page: Path) -> list[list[str]]:
    """The cells of every table row, headings and rules left out."""
    lines = page.read_text(encoding="utf-8").splitlines()
    tables = [line for line in lines if line.startswith("|")]
    heads = {index for index, line in enumerate(lines) if re.fullmatch(r"[|\-: ]+", line) and "|" in line}
    titles = {lines[index - 1] for index in heads}
    kept = [line for line in tables if line not in titles and not re.fullmatch(r"[|\-: ]+", line)]
    cells = [re.split(r"(?<!\\)\|", line)[1:-1] for line in kept]
    return [[cell.strip().replace("\\|", "|") for cell in row] for row in cells]


def links(page: Path) -> list[str]:
    """Targets of links and images that are files of this repository."""
    found = re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8"))
    return [target.split("#")[0] for target in found if "://" not in target and not target.startswith("#")]


def quoted(text: str) -> list[str]:
    """What stands in backticks."""
    return re.findall(r"`([^`\n]+)`", text)
