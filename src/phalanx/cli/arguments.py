"""Typed arguments of a command: a dataclass built from the option values that click has parsed."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, TypeVar

S = TypeVar("S")
F = TypeVar("F", bound=Callable[..., Any])

Dress = Callable[[Callable[..., Any]], Callable[..., Any]]
"""Decorator that adds options to a command, such as `click.option(...)`."""


@dataclass(frozen=True, kw_only=True)
class TargetsArguments:
    """Names of jobs or gangs on the command line ([KIND/]NAME), in `namespace` (None: that of the kubeconfig's
    context)."""

    names: tuple[str, ...]
    namespace: str | None


def combined(*options: Callable[[F], F]) -> Callable[[F], F]:
    """Return one decorator that adds `options` in this order."""

    def dress(command: F) -> F:
        for option in reversed(options):
            command = option(command)
        return command

    return dress


def pass_arguments(arguments: type[S], *shared: Dress) -> Callable[[Callable[[S], None]], Callable[..., None]]:
    """Decorate a command without cluster connection so that it is called with an instance of the dataclass
    `arguments`.

    The options `shared` are added to the command in this order, after those of the decorators above.
    """

    def dress(command: Callable[[S], None]) -> Callable[..., None]:
        @functools.wraps(command)
        def callback(**values: object) -> None:
            built = build_arguments(arguments, values)
            # click passes every declared option: a remaining value has no field in the dataclass.
            if values:
                raise TypeError(f"{arguments.__name__} has no field {', '.join(values)}")
            command(built)

        return combined(*shared)(callback)

    return dress


def build_arguments(arguments: type[S], values: dict[str, object]) -> S:
    """Return an instance of the dataclass `arguments` built from click's values, and remove these values from
    `values`."""
    return arguments(**{field.name: values.pop(field.name) for field in fields(arguments)})  # type: ignore[arg-type]
