"""How a command receives what was typed: an `Invocation` and a struct of its own options.

`pass_invocation` and `pass_options` are the innermost decorators of a command. They hand the values that click has
parsed to the callback as typed objects, so that a callback has two parameters however many options there are.
"""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, TypeVar, overload

import click

from phalanx.cli.connection import print_structured, run_connected

if TYPE_CHECKING:
    from phalanx.kube.client import KubeClient
    from phalanx.scheduling.framework.policy import Policy

    ReadPolicy = Callable[[KubeClient], Awaitable[tuple[Policy, tuple[str, ...]]]]

S = TypeVar("S")
T = TypeVar("T")

Dress = Callable[[Callable[..., Any]], Callable[..., Any]]
"""A decorator that adds options to a command, such as `click.option(...)`."""


@dataclass(frozen=True, kw_only=True)
class Invocation:
    """Options that commands share: the cluster, the policy, the schedulers, and the format of the answer.

    A command that lacks one of these options sees its default. `scheduler_names` is empty where the names are to be
    read from the scheduler, `config` where the policy is.
    """

    kubeconfig: str | None = None
    config: str = ""
    scheduler_names: tuple[str, ...] = ()
    lease_namespace: str = "kube-system"
    output: str = "table"

    @property
    def prints_table(self) -> bool:
        return self.output == "table"

    def run(self, work: Callable[[KubeClient], Coroutine[Any, Any, T]]) -> T:
        """Run `work` on a client of the cluster. Raises click.ClickException with one line where that fails."""
        return run_connected(work, self.kubeconfig)

    def show(self, work: Callable[[KubeClient], Coroutine[Any, Any, None]], *, watch: bool) -> None:
        """Run `work`, which prints an answer; with `watch` ctrl-c is its regular end."""
        try:
            self.run(work)
        except KeyboardInterrupt:
            if not watch:
                raise

    def policy_reader(self, *, names_only: bool = False) -> ReadPolicy:
        """Return a function that reads the policy and the scheduler names; see `scheduler_policy.policy_reader`.

        Raises click.ClickException for a file that holds no policy.
        """
        from phalanx.cli.scheduler_policy import policy_reader

        return policy_reader(self.config, self.lease_namespace, self.scheduler_names, names_only=names_only)

    def print_document(self, document: object) -> None:
        """Print `document` on stdout, as YAML with `-o yaml`, else as JSON."""
        print_structured(document, self.output)

    def refuse_empty_names(self) -> None:
        """Raise click.UsageError if a scheduler name is empty."""
        refuse_empty_names(self.scheduler_names)


def refuse_empty_names(scheduler_names: tuple[str, ...]) -> None:
    """Raise click.UsageError if one of `scheduler_names` is empty."""
    if not all(scheduler_names):
        raise click.UsageError("--scheduler-name must not be empty")


@overload
def pass_invocation(
    options: type[S], *shared: Dress
) -> Callable[[Callable[[Invocation, S], None]], Callable[..., None]]: ...


@overload
def pass_invocation(
    options: None, *shared: Dress
) -> Callable[[Callable[[Invocation], None]], Callable[..., None]]: ...


def pass_invocation(
    options: type[Any] | None, *shared: Dress
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Call a command with an Invocation and an instance of `options` (a dataclass; None for no second argument).

    Each parsed value goes to the field of its name, first of `options`, then of Invocation. The options `shared`
    are added to the command in this order, after those of the decorators above.
    """

    def dress(command: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(command)
        def callback(**values: object) -> None:
            own = () if options is None else (_build(options, values),)
            command(Invocation(**values), *own)  # type: ignore[arg-type]

        return _with(shared, callback)

    return dress


def pass_options(options: type[S], *shared: Dress) -> Callable[[Callable[[S], None]], Callable[..., None]]:
    """Call a command that reaches no cluster with an instance of `options`; `shared` as for `pass_invocation`."""

    def dress(command: Callable[[S], None]) -> Callable[..., None]:
        @functools.wraps(command)
        def callback(**values: object) -> None:
            built = _build(options, values)
            # click passes the options that are declared: one that is left over has no field.
            if values:
                raise TypeError(f"{options.__name__} has no field {', '.join(values)}")
            command(built)

        return _with(shared, callback)

    return dress


def _build(options: type[S], values: dict[str, object]) -> S:
    """Return an instance of the dataclass `options`, whose values are removed from `values`."""
    return options(**{field.name: values.pop(field.name) for field in fields(options)})  # type: ignore[arg-type]


def _with(options: tuple[Dress, ...], command: Callable[..., None]) -> Callable[..., None]:
    for option in reversed(options):
        command = option(command)
    return command
