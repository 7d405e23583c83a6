"""Options that name the server of the page."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from phalanx.cli.arguments import combined
from phalanx.cli.connection import connection_option

F = TypeVar("F", bound=Callable[..., Any])


def server_options(command: F) -> F:
    """Add the options --server and --server-ca, which `parsed_client_options` reads, to a command."""
    return combined(
        connection_option(
            "--server",
            metavar="URL",
            envvar="PHALANX_SERVER",
            help="URL of `phalanx dashboard --login token`, which answers as your rights permit. Default: the URL "
            "in the kubeconfig, or a dry run with your own rights; where they do not suffice, the URL in ConfigMap "
            "kube-public/phalanx.",
        ),
        connection_option(
            "--server-ca",
            "server_authority",
            metavar="FILE",
            envvar="PHALANX_SERVER_CA",
            type=click.Path(exists=True, dir_okay=False),
            help="CA certificates for --server.",
        ),
    )(command)
