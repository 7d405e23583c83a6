"""Examples in the help of every command: each command has one, and each parses."""

from __future__ import annotations

import inspect
import shlex
from collections.abc import Iterator
from typing import Any

import click
import pytest

from phalanx.cli.main import SHORT_COMMANDS, _load, cli


def commands(name: str, command: click.Command) -> Iterator[tuple[str, click.Command]]:
    """Yield `command` and the commands below it with their full names."""
    yield name, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for child in command.list_commands(context):
            found = command.get_command(context, child)
            assert found is not None
            yield from commands(f"{name} {child}", found)


COMMANDS = dict(commands("phalanx", cli)) | {name: _load(where) for name, (where, _) in SHORT_COMMANDS.items()}


def examples(name: str) -> list[str]:
    """Return the lines of the unwrapped paragraphs of a help that begin with the name of the program."""
    program = name.split()[0]
    paragraphs = inspect.cleandoc(COMMANDS[name].help or "").split("\n\n")
    unwrapped = [line for text in paragraphs if text.startswith("\b") for line in text.split("\n")]
    return [line for line in unwrapped if line.startswith(f"{program} ") or line == program]


@pytest.mark.parametrize("name", COMMANDS)
def test_help_of_a_command_has_an_example_of_this_command(name: str) -> None:
    assert any(f"{example} ".startswith(f"{name} ") for example in examples(name))


ALL = [(name, example) for name in COMMANDS for example in examples(name)]


@pytest.mark.parametrize(("name", "example"), ALL, ids=[example for _, example in ALL])
def test_example_in_a_help_parses(name: str, example: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def convert(self: click.Path, value: Any, param: object, ctx: object) -> Any:
        return value

    monkeypatch.setattr(click.Path, "convert", convert)  # the files of an example do not exist here
    words = shlex.split(example.partition(" | ")[0])
    command, program = (cli, "phalanx") if words[0] == "phalanx" else (COMMANDS[words[0]], words[0])
    context = command.make_context(program, words[1:])
    while isinstance(command, click.Group):
        rest = [*context._protected_args, *context.args]
        child, found, rest = command.resolve_command(context, rest)
        assert found is not None
        assert child is not None
        context = found.make_context(child, rest, parent=context)
        command = found
