"""Options and errors that every command which talks to a cluster shares."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import click

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

kubeconfig_option = click.option(
    "--kubeconfig",
    metavar="FILE",
    help="The kubeconfig to use. By default $KUBECONFIG, ~/.kube/config, or the pod's service account.",
)
namespace_option = click.option("-n", "--namespace", help="By default that of the kubeconfig's context.")
lease_namespace_option = click.option(
    "--lease-namespace",
    default="kube-system",
    show_default=True,
    metavar="NAMESPACE",
    help="Where the scheduler keeps its lease, and what accounts used in the past.",
)
policy_option = click.option(
    "--config", default="", metavar="POLICY", help="The policy file that the scheduler uses."
)
output_option = click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "json", "yaml"]),
    default="table",
    show_default=True,
    help="How to print the answer.",
)


def scheduler_names_option(pods: str) -> Callable[[F], F]:
    """`--scheduler-name`; `pods` goes on from "The scheduler whose pods"."""
    return click.option(
        "--scheduler-name",
        "scheduler_names",
        multiple=True,
        default=("phalanx",),
        show_default=True,
        help=f"The scheduler whose pods {pods}; may be repeated.",
    )


def time_limit(seconds: float = 30.0) -> Callable[[], bool]:
    """Whether so much time is up since."""
    deadline = time.monotonic() + seconds
    return lambda: time.monotonic() >= deadline


def run_connected(work: Callable[[Any], Coroutine[Any, Any, T]], kubeconfig: str | None) -> T:
    """Runs `work(client)` on a connection; failures become one plain line and exit code 1."""
    from phalanx.kube.auth.config import load_config
    from phalanx.kube.client import KubeClient
    from phalanx.kube.errors import ApiError, ConfigError, ConnectionLost

    async def connected() -> T:
        async with KubeClient(load_config(kubeconfig)) as client:
            return await work(client)

    try:
        return asyncio.run(connected())
    except ConfigError as error:
        raise click.ClickException(str(error)) from error
    except ApiError as error:
        raise click.ClickException(f"the API server refused: {error}") from error
    except ConnectionLost as error:
        raise click.ClickException(f"no connection to the API server: {error}") from error


def print_structured(document: object, output: str) -> None:
    """JSON or YAML on stdout."""
    if output == "yaml":
        import yaml

        click.echo(yaml.safe_dump(document, sort_keys=False, allow_unicode=True), nl=False)
    else:
        import json

        click.echo(json.dumps(document, indent=2, ensure_ascii=False))
