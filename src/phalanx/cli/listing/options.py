"""Options that all lists on the command line share, named like kubectl's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import click

from phalanx.cli.arguments import combined
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
    help="Only entries of this queue; repeatable.",
    shell_complete=names_from(queues),
)


@dataclass(frozen=True, kw_only=True)
class ListArguments:
    """Arguments of every list: output format, order, and watching."""

    output: OutputFormat
    watch: bool
    interval: float
    sort_by: str
    no_headers: bool

    @property
    def scope(self) -> str | None:
        """Namespace of the listed objects; None for all, "" for that of the kubeconfig's context."""
        return ""

    @property
    def selected_queues(self) -> tuple[str, ...]:
        """Queues that the list is limited to; empty for all."""
        return ()


@dataclass(frozen=True, kw_only=True)
class NamespacedListArguments(ListArguments):
    """Arguments of a command that lists namespaced objects."""

    namespace: str | None
    all_namespaces: bool

    @property
    def scope(self) -> str | None:
        return None if self.all_namespaces else self.namespace or ""


def parse_requirements(selector: str) -> tuple[Requirement, ...]:
    """Return the requirements of --selector. Raises click.UsageError."""
    from phalanx.model.label_selectors import parse_label_selector

    try:
        return parse_label_selector(selector)
    except ValueError as error:
        raise click.UsageError(f"--selector: {error}") from error


def list_options(*, namespaced: bool = True, selector: bool = True) -> Callable[[F], F]:
    """Add the options of a list to a command; the dataclass of its arguments extends ListArguments."""
    options: list[Callable[[F], F]] = []
    if namespaced:
        options += [
            namespace_option,
            click.option("-A", "--all-namespaces", is_flag=True, help="List objects in all namespaces."),
        ]
    if selector:
        options.append(
            click.option(
                "-l",
                "--selector",
                default="",
                metavar="LABELS",
                help="Label selector, such as team=a,tier!=b,zone in (x,y).",
            )
        )
    options += [
        click.option(
            "-o",
            "--output",
            callback=parse_output,
            default="table",
            metavar="FORMAT",
            help=f"Output format: table (default), {CHOICES}.",
        ),
        click.option(
            "--sort-by",
            default="",
            metavar="FIELD",
            help="Sort by a column or the JSONPath of a field; a leading - reverses the order.",
        ),
        click.option("--no-headers", is_flag=True, help="Print no header."),
        watch_options("Then print a row for each change, until Ctrl-C."),
        connection_options,
    ]
    return combined(*options)


def watch_options(help_text: str) -> Callable[[F], F]:
    """Add the options --watch, with its `help_text`, and --interval to a command."""
    return combined(
        click.option("-w", "--watch", is_flag=True, help=help_text),
        click.option(
            "--interval",
            type=click.FloatRange(min=_SHORTEST),
            default=2.0,
            show_default=True,
            metavar="SECONDS",
            help="Minimum seconds between two refreshes of --watch.",
        ),
    )
