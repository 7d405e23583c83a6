"""Options that several long-running commands share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])

leader_elect_option = click.option(
    "--leader-elect", is_flag=True, help="Run several replicas: only the holder of the lease works."
)
own_lease_namespace_option = click.option(
    "--lease-namespace", default="kube-system", show_default=True, help="Namespace of the lease."
)
ssh_option = click.option(
    "--ssh/--no-ssh",
    default=True,
    show_default=True,
    help="Offer the job plugin ssh, for which the controllers need the right to read and create Secrets.",
)
health_address_option = click.option(
    "--metrics-address",
    default="",
    metavar="HOST:PORT",
    help="Serve /healthz, /livez, /readyz and /metrics on this address.",
)
write_concurrency_option = click.option(
    "--concurrency",
    type=click.IntRange(min=1),
    default=64,
    show_default=True,
    help="Maximum number of parallel API writes.",
)


def served_names_option(help_text: str, *, default: tuple[str, ...] = ("phalanx",)) -> Callable[[F], F]:
    """Return the option `--scheduler-name` with `help_text`."""
    return click.option(
        "--scheduler-name",
        "scheduler_names",
        multiple=True,
        default=default,
        show_default=True,
        metavar="NAME",
        help=help_text,
    )
