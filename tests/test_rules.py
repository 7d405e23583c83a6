"""References of the code to docs/rules exist there."""

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


# References to files outside of the repository. (The page of a rule is cited with its folder.)
ELSEWHERE = re.compile(
    r"(?<![\w./])research/[a-z_]+\.md|(?<!rules/)\bcoscheduling\.md|\btime\.md|\b[Ss]eeds?(?:'s)? 0\d\d\b"
    r"|\bshared/(?:seeds|design)\b|\b(?:STRUCTURE|STYLE|NAMES|CONTRACT|SOURCES)\.md"
)
# (A lookup of a few words is a hundred times as fast as a search by the expression.)
SUSPICIOUS = (
    "research/",
    "coscheduling.md",
    "time.md",
    "eed 0",
    "eeds 0",
    "eed's 0",
    "shared/",
    "E.md",
    "S.md",
    "T.md",
)
# A page of the documents, by its path from the root.
PAGE = re.compile(r"(?<![\w./-])docs/[\w/-]+\.md")


def texts(*folders: str) -> Iterator[tuple[Path, str]]:
    """Return the files of code and documents that are written by hand, with their texts."""
    for folder in folders:
        for path in (ROOT / folder).rglob("*.*"):
            if path.suffix in (".py", ".md") and path != Path(__file__):
                yield path, path.read_text("utf-8")
    for path in ROOT.glob("*.md"):
        yield path, path.read_text("utf-8")


def test_no_file_cites_a_path_outside_of_the_repository() -> None:
    found = [
        f"{path.relative_to(ROOT)}: {match.group()}"
        for path, text in texts("src", "packages", "tests", "docs", "examples", "benchmarks")
        if any(word in text for word in SUSPICIOUS)
        for match in ELSEWHERE.finditer(text)
    ]
    assert found == []


def test_pages_that_code_cites_exist() -> None:
    found = {
        (path.relative_to(ROOT).as_posix(), page)
        for path, text in texts("src", "packages", "tests", "examples", "benchmarks")
        for page in PAGE.findall(text)
    }
    assert len(found) > 100
    assert sorted((path, page) for path, page in found if not (ROOT / page).exists()) == []


def test_paths_in_the_page_for_contributors_exist() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    bases = (ROOT, ROOT / "src" / "phalanx")
    found = set(re.findall(r"`((?:[\w-]+/)+[\w.-]*)`", text))
    assert len(found) > 20
    assert sorted(path for path in found if not any((base / path).exists() for base in bases)) == []
