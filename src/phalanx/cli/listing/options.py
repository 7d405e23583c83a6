"""The options that every list has, kubectl's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import click

from phalanx.cli.completion import names_from, queues
from phalanx.cli.connection import connection_options, namespace_option
from phalanx.cli.listing.formats import CHOICES, OutputFormat, parse_output

if TYPE_CHECKING:
    from phalanx.model.selectors import Requirement

F = TypeVar("F", bound=Callable[..., Any])

_SHORTEST = 0.5

queues_option = click.option(
    "-q",
    "--queue",
    "queues",
    multiple=True,
    metavar="QUEUE",
    help="Only those in it; may be repeated.",
    shell_complete=names_from(queues),
)


@dataclass(frozen=True)
class ListOptions:
    """What to list and how to print it; `namespace` is None for all, "" for that of the context."""

    namespace: str | None
    selector: tuple[Requirement, ...]
    output: OutputFormat
    watch: bool
    interval: float
    sort_by: str
    no_headers: bool
    kubeconfig: str | None


def list_options(*, namespaced: bool = True, selector: bool = True) -> Callable[[F], F]:
    """Adds the options; the command takes them as `**chosen`, for `chosen_options`."""
    options: list[Callable[[F], F]] = []
    if namespaced:
        options += [
            namespace_option,
            click.option("-A", "--all-namespaces", is_flag=True, help="Those of all namespaces."),
        ]
    if selector:
        options.append(
            click.option(
                "-l",
                "--selector",
                default="",
                metavar="LABELS",
                help="Only those with labels, such as team=a,tier!=b,zone in (x,y).",
            )
        )
    options += [
        click.option(
            "-o",
            "--output",
            callback=parse_output,
            default="table",
            metavar="FORMAT",
            help=f"By default a table; else {CHOICES}.",
        ),
        click.option(
            "--sort-by",
            default="",
            metavar="FIELD",
            help="A column, or the JSONPath of a field; - before it turns the order round.",
        ),
        click.option("--no-headers", is_flag=True, help="Only the rows."),
        watch_options("Then go on with a row for each that changes; ctrl-c ends."),
        connection_options,
    ]
    return _dressed(options)


def watch_options(what: str) -> Callable[[F], F]:
    """Adds --watch, of which `what` says what it does, and --interval."""
    return _dressed(
        [
            click.option("-w", "--watch", is_flag=True, help=what),
            click.option(
                "--interval",
                type=click.FloatRange(min=_SHORTEST),
                default=2.0,
                show_default=True,
                metavar="SECONDS",
                help="How often --watch looks at most.",
            ),
        ]
    )


def _dressed(options: Sequence[Callable[[F], F]]) -> Callable[[F], F]:
    """All of these options, in this order."""

    def dress(command: F) -> F:
        for option in reversed(options):
            command = option(command)
        return command

    return dress


def chosen_options(chosen: dict[str, Any]) -> ListOptions:
    """Raises click.UsageError."""
    from phalanx.model.label_selectors import parse_label_selector

    everywhere = chosen.get("all_namespaces", False)
    try:
        selector = parse_label_selector(chosen.get("selector", ""))
    except ValueError as error:
        raise click.UsageError(f"--selector: {error}") from error
    return ListOptions(
        None if everywhere else chosen.get("namespace") or "",
        selector,
        chosen["output"],
        chosen["watch"],
        chosen["interval"],
        chosen["sort_by"],
        chosen["no_headers"],
        chosen["kubeconfig"],
    )
