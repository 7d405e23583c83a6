"""Parsing of tutorials: rules of equal output."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tutorials.document import Command, File, first_difference, steps

TEXT = """\
# A tutorial

```yaml title="a.yaml"
kind: Pod
```

```console title="First terminal"
$ phalanx up
phalanx up: …
```

```console
$ kubectl apply -f a.yaml
pod/a created
$ kubectl get pods
NAME   READY
a      1/1
```

```
not a command
```
"""


def test_files_and_commands_come_in_order(tmp_path: Path) -> None:
    (tmp_path / "t.md").write_text(TEXT, "utf-8")
    assert steps(tmp_path / "t.md") == [
        File("a.yaml", "kind: Pod\n"),
        Command("phalanx up", ("phalanx up: …",), 8, stays=True),
        Command("kubectl apply -f a.yaml", ("pod/a created",), 13),
        Command("kubectl get pods", ("NAME   READY", "a      1/1"), 15),
    ]


def test_document_with_an_unknown_fence_is_refused(tmp_path: Path) -> None:
    (tmp_path / "t.md").write_text("```console {.wide}\n$ ls\n```\n", "utf-8")
    with pytest.raises(ValueError, match=r"t\.md:1"):
        steps(tmp_path / "t.md")
    (tmp_path / "t.md").write_text("```console\nls\n```\n", "utf-8")
    with pytest.raises(ValueError, match="begins with a command"):
        steps(tmp_path / "t.md")


def test_only_commands_that_read_may_be_repeated() -> None:
    assert Command("phalanx jobs --start", (), 1).only_reads
    assert Command("kubectl get pods", (), 1).only_reads
    assert not Command("kubectl delete pod a", (), 1).only_reads
    assert not Command("phalanx submit --name a", (), 1).only_reads


@pytest.mark.parametrize(
    ("expected", "printed"),
    [
        (["a 1"], ["a     1  "]),
        (["train-…   1/1"], ["train-x2z 1/1"]),
        (["a", "…", "z"], ["a", "b", "c", "z"]),
        (["a", "…"], ["a"]),
        (["…", "z"], ["z", "z"]),
        ([], []),
    ],
)
def test_output_with_ellipses_and_blanks_is_equal(expected: list[str], printed: list[str]) -> None:
    assert first_difference(tuple(expected), printed) is None


@pytest.mark.parametrize(
    ("expected", "printed", "told"),
    [
        (["a 1"], ["a1"], "a 1"),
        (["a"], [], "a"),
        (["a"], ["a", "b"], "nothing is expected before: b"),
        (["a.c"], ["abc"], "a.c"),
        (["a", "…", "z"], ["a", "b"], "z"),
        (["a … 1"], ["a", "1"], "a … 1"),
    ],
)
def test_different_output_is_not_equal(expected: list[str], printed: list[str], told: str) -> None:
    assert first_difference(tuple(expected), printed) == told


def test_running_command_prints_more_later() -> None:
    assert first_difference(("a",), ["a", "b"], whole=False) is None
