"""Options that several long-running commands have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])

leader_elect_option = click.option(
    "--leader-elect", is_flag=True, help="Work only while holding a lease, for several replicas."
)
own_lease_namespace_option = click.option(
    "--lease-namespace", default="kube-system", show_default=True, help="Where the lease is kept."
)
write_concurrency_option = click.option(
    "--concurrency",
    type=click.IntRange(min=1),
    default=64,
    show_default=True,
    help="Writes to the API at the same time.",
)


def served_names_option(help_text: str, *, default: tuple[str, ...] = ("phalanx",)) -> Callable[[F], F]:
    """Return `--scheduler-name`, of which `help_text` says what it is for."""
    return click.option(
        "--scheduler-name",
        "scheduler_names",
        multiple=True,
        default=default,
        show_default=True,
        metavar="NAME",
        help=help_text,
    )
