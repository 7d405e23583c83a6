"""Every tutorial is followed to the letter: real kubectl, the real command, a cluster of `phalanx up`."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tutorials.document import Command, steps
from tests.tutorials.reader import Reader

TUTORIALS = sorted((Path(__file__).parents[2] / "docs/tutorials").glob("*.md"))


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    made = Reader(tmp_path)
    yield made
    made.close()


def test_there_are_tutorials() -> None:
    assert len(TUTORIALS) >= 5


@pytest.mark.parametrize("path", TUTORIALS, ids=lambda path: path.stem)
def test_output_of_tutorial_commands_equals_the_document(path: Path) -> None:
    commands = [step for step in steps(path) if isinstance(step, Command)]
    assert sum(bool(command.expected) for command in commands) >= 5
    for command in commands:
        # A line of any text checks nothing; a command with only such lines would be unchecked.
        assert not command.expected or any(line.strip() != "…" for line in command.expected), command.text


@pytest.mark.slow
@pytest.mark.e2e
@pytest.mark.timeout(900)
@pytest.mark.skipif(shutil.which("kubectl") is None, reason="there is no kubectl")
@pytest.mark.parametrize("path", TUTORIALS, ids=lambda path: path.stem)
def test_everything_is_as_the_tutorial_says(path: Path, reader: Reader) -> None:
    for step in steps(path):
        reader.follow(step)
