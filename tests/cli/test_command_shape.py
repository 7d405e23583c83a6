"""Rules that every command follows: typed parameters, few statements, help."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from typing import Any, get_type_hints

import click
import pytest

from phalanx.cli.connection import ClientOptions
from phalanx.cli.invocation import Invocation
from phalanx.cli.main import SHORT_COMMANDS, SLURM_COMMANDS, _load, cli

MOST_STATEMENTS = 40


def commands() -> Iterator[tuple[str, click.Command]]:
    """Yield every command with its full name, groups and commands under short names included."""
    yield from _below("phalanx", cli)
    for name, (where, _) in {**SHORT_COMMANDS, **SLURM_COMMANDS}.items():
        yield name, _load(where)


def _below(name: str, command: click.Command) -> Iterator[tuple[str, click.Command]]:
    yield name, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for child in command.list_commands(context):
            found = command.get_command(context, child)
            assert found is not None
            yield from _below(f"{name} {child}", found)


COMMANDS = dict(commands())


def callback_of(command: click.Command) -> Callable[..., Any]:
    """Return the function as it is written, without the decorator that builds its arguments."""
    assert command.callback is not None
    function: Callable[..., Any] = inspect.unwrap(command.callback)
    return function


def definition_of(function: Callable[..., Any]) -> ast.FunctionDef:
    found = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]
    assert isinstance(found, ast.FunctionDef)
    return found


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help(name: str) -> None:
    assert (COMMANDS[name].help or "").strip()


@pytest.mark.parametrize("name", COMMANDS)
def test_command_has_at_most_40_statements(name: str) -> None:
    body = definition_of(callback_of(COMMANDS[name])).body
    assert sum(isinstance(node, ast.stmt) for part in body for node in ast.walk(part)) <= MOST_STATEMENTS


@pytest.mark.parametrize("name", COMMANDS)
def test_no_parameter_of_a_command_is_any(name: str) -> None:
    assert Any not in get_type_hints(callback_of(COMMANDS[name])).values()


@pytest.mark.parametrize("name", COMMANDS)
def test_command_takes_an_invocation_and_a_struct_of_its_options(name: str) -> None:
    callback = callback_of(COMMANDS[name])
    hints = get_type_hints(callback)
    assert hints.pop("return") is type(None)
    own = [hint for hint in hints.values() if hint is not Invocation]
    assert len(own) <= 1, f"{own} could be fields of one struct"
    assert all(map(is_dataclass, own))
    known = {field.name for struct in hints.values() for field in fields(struct)}
    if Invocation in hints.values():
        known |= {field.name for field in fields(ClientOptions)}
    exposed = {each.name for each in COMMANDS[name].params if each.expose_value}
    assert exposed <= known, f"no field for {exposed - known}"
    for struct in own:
        assert {field.name for field in fields(struct)} <= exposed, "a field without an option"
        assert Any not in get_type_hints(struct).values()
