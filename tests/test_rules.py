"""What code cites of docs/rules can be looked up there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
RULES = ROOT / "docs" / "rules"
CITED = re.compile(r"docs/rules/(\w+\.md)((?:(?:, section |, | and | to )[A-Z]?\d+(?:\.\d+)?)+)")


def citations() -> Iterator[tuple[str, str]]:
    for folder in ("src", "packages", "tests"):
        for path in (ROOT / folder).rglob("*.py"):
            for name, numbers in CITED.findall(path.read_text("utf-8")):
                yield from ((name, number) for number in re.findall(r"[A-Z]?\d+(?:\.\d+)?", numbers))


def headings(name: str) -> set[str]:
    text = (RULES / name).read_text("utf-8")
    return set(re.findall(r"^(?:#+ |- \*\*)([A-Z]?\d+(?:\.\d+)?)\b", text, re.MULTILINE))


def test_every_rule_that_is_cited_is_there() -> None:
    found = set(citations())
    assert ("coscheduling.md", "1.5") in found
    assert {(name, number) for name, number in found if number not in headings(name)} == set()


def test_nothing_cites_what_is_not_in_the_repository() -> None:
    files = {
        path
        for folder in ("src", "packages", "tests", "docs")
        for path in (ROOT / folder).rglob("*.*")
        if path.suffix in (".py", ".md") and path != Path(__file__)
    }
    elsewhere = re.compile(r"(?<![\w./])research/[a-z_]+\.md|(?<!rules/)\bcoscheduling\.md")
    # (A lookup of two words is a hundred times as fast as a search by the expression.)
    texts = {path: path.read_text("utf-8") for path in files}
    suspects = [path for path, text in texts.items() if "research/" in text or "coscheduling.md" in text]
    assert [path for path in suspects if elsewhere.search(texts[path])] == []
