"""Steps of a tutorial's reader: files to save, commands to type, and their output.

    ```yaml title="train.yaml"          a file, saved in the reader's directory
    ```console title="First terminal"   a command that stays running; its first output is shown
    ```console                          commands after `$ `, in order, each followed by its output

In output `…` matches any text within a line, and a line of `…` alone matches any lines, or none. Any number of
blanks is equal: names of pods and ages make columns wider. Empty lines do not count.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

FIRST_TERMINAL = "First terminal"
_FENCE = re.compile(r"^```(?P<language>\w*)(?: title=\"(?P<title>[^\"]+)\")?$")


@dataclass(frozen=True)
class File:
    """Something to save as `name`."""

    name: str
    text: str


@dataclass(frozen=True)
class Command:
    """Something to type, and the lines that it prints. `line` is where in the document it stands, from 1."""

    text: str
    expected: tuple[str, ...]
    line: int
    stays: bool = field(default=False)

    @property
    def only_reads(self) -> bool:
        """Return whether a reader can repeat the command until the cluster has reached the state."""
        return bool(re.match(r"kubectl get|phalanx (jobs|nodes|why|queue|what-if|history|report)\b", self.text))


def steps(path: Path) -> list[File | Command]:
    """Return the steps of a reader, in order. Raises ValueError, with the line, for an unknown fence."""
    found: list[File | Command] = []
    lines = path.read_text("utf-8").splitlines()
    number = 0
    while number < len(lines):
        if not lines[number].startswith("```"):
            number += 1
            continue
        fence = _FENCE.match(lines[number])
        if fence is None:
            raise ValueError(f"{path.name}:{number + 1}: {lines[number]}")
        end = lines.index("```", number + 1)
        body = lines[number + 1 : end]
        if fence["language"] == "console":
            found += _commands(body, number + 2, fence["title"] == FIRST_TERMINAL)
        elif fence["title"]:
            found.append(File(fence["title"], "\n".join(body) + "\n"))
        number = end + 1
    return found


def _commands(body: list[str], line: int, stays: bool) -> list[Command]:
    starts = [place for place, text in enumerate(body) if text.startswith("$ ")]
    if not starts or starts[0]:
        raise ValueError(f"line {line}: a console begins with a command")
    return [
        Command(body[start][2:], tuple(body[start + 1 : end]), line + start, stays)
        for start, end in zip(starts, [*starts[1:], len(body)], strict=True)
    ]


def first_difference(expected: tuple[str, ...], printed: list[str], *, whole: bool = True) -> str | None:
    """The first line that is expected and is not printed; None if all is as it should be.

    With `whole` nothing else may be printed. Lines of `…` take as few lines as they can.
    """
    if not expected:
        return None if not printed or not whole else f"nothing is expected before: {printed[0]}"
    pattern, *rest = expected
    if pattern.strip() == "…":
        told = None
        for skipped in range(len(printed) + 1):
            told = first_difference(tuple(rest), printed[skipped:], whole=whole)
            if told is None:
                return None
        return told
    if not printed or not _alike(pattern, printed[0]):
        return pattern
    return first_difference(tuple(rest), printed[1:], whole=whole)


def _alike(pattern: str, line: str) -> bool:
    parts = [r"\s+".join(map(re.escape, re.split(r"\s+", part))) for part in pattern.strip().split("…")]
    return re.fullmatch(".*?".join(parts), line.strip()) is not None
