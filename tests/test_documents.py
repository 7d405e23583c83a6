"""Paths of files in documents and docstrings exist."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from phalanx.cli.main import cli

ROOT = Path(__file__).parent.parent
# From where a file is named: as the documents and the modules of that room do.
ROOTS = (
    "",
    "src",
    "src/phalanx",
    "src/phalanx/scheduling",
    "src/phalanx/scheduling/preemption",
    "packages/local/src",
    "packages/local/src/phalanx_local",
)
# Files of Volcano's and of kube-scheduler's are named as well, and end otherwise.
NAMED = re.compile(r"`((?:[a-z_]+/)+[a-z_]+\.py)`")


# A command as it is typed, in running text.
TYPED = re.compile(r"`(?:kubectl )?phalanx ([a-z][a-z0-9-]*(?: [^`]*)?)`")


def named_files() -> Iterator[tuple[str, str]]:
    for path in sorted(
        [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("src/**/*.py"), *ROOT.glob("packages/**/*.py")]
    ):
        if path.name == "CHANGELOG.md":
            continue
        for name in sorted(set(NAMED.findall(path.read_text("utf-8")))):
            yield str(path.relative_to(ROOT)), name


@pytest.mark.parametrize(("where", "name"), sorted(named_files()))
def test_a_file_that_is_named_is_there(where: str, name: str) -> None:
    assert any((ROOT / root / name).is_file() for root in ROOTS), f"{where} names {name}"


def test_the_glossary_is_in_order() -> None:
    rows = [line.split("|") for line in (ROOT / "docs/glossary.md").read_text("utf-8").splitlines()]
    words = [row[1].strip() for row in rows if len(row) > 4 and not set(row[1]) <= set(" -")][1:]
    assert len(words) > 20
    assert words == sorted(words)
    assert len(set(words)) == len(words)


def test_a_command_that_is_named_is_there() -> None:
    unknown = []
    for path in sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]):
        for typed in TYPED.findall(path.read_text("utf-8")) if path.name != "CHANGELOG.md" else ():
            command: click.Command | None = cli
            for word in typed.split():
                if not isinstance(command, click.Group):
                    break
                command = command.get_command(click.Context(command), word)
            if command is None:
                unknown.append(f"{path.relative_to(ROOT)}: phalanx {typed}")
    assert unknown == []


WALKS = (
    "### One cycle",
    "### One pod event",
    "### One view",
    "### One gang",
    "### One feature of the cycle",
    "### One part of the process",
    "One reclaim, in order:",
)


@pytest.mark.parametrize("heading", WALKS)
def test_walk_through_the_code_names_at_most_seven_files_that_exist(heading: str) -> None:
    """A newcomer reads one walk in a sitting."""
    page = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    walk = re.search(rf"^{heading}.*?^(1\. .*?)^(?:\n|$)", page, re.MULTILINE | re.DOTALL)
    assert walk is not None
    assert walk[1].count("\n") >= 3
    files = {name for name in re.findall(r"`((?:\w+/)*\w+\.py)`", walk[1]) if not name.startswith("tests/")}
    assert 1 <= len(files) <= 7, files
    roots = (ROOT / "src/phalanx", ROOT / "src/phalanx/scheduling")
    assert [name for name in files if not any((root / name).is_file() for root in roots)] == []
