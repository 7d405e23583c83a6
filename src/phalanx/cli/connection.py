"""Options and errors that every command which talks to a cluster shares."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import click
from click.shell_completion import CompletionItem

from phalanx.cli.arguments import combined

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

kubeconfig_option = click.option(
    "--kubeconfig",
    metavar="FILE",
    help="The kubeconfig to use. By default $KUBECONFIG, ~/.kube/config, or the pod's service account.",
)
# Key of the ClientOptions that have been parsed so far, in the context of the command.
_META = "phalanx.connection"
_NO_LIMIT = 86_400.0


@dataclass(frozen=True, kw_only=True)
class ClientOptions:
    """Which cluster is asked, as whom, and how long for one request (seconds; None: the client's default)."""

    kubeconfig: str | None = None
    context: str | None = None
    cluster: str = ""
    login: str = ""
    act_as: str = ""
    act_as_groups: tuple[str, ...] = ()
    request_timeout: float | None = None


def parsed_client_options(kubeconfig: str | None) -> ClientOptions:
    """Return the options of the command that runs, or that is completed, with its `kubeconfig`."""
    context = click.get_current_context(silent=True)
    parsed = context.meta.get(_META, ClientOptions()) if context is not None else ClientOptions()
    return replace(parsed, kubeconfig=kubeconfig)


def _remember_timeout(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
    """A Go duration or plain seconds, as kubectl takes it; 0 is no limit. Raises click.BadParameter."""
    from phalanx.model.text.duration import parse_nanoseconds

    if value is None:
        return
    try:
        plain = value.isascii() and value.isdecimal()
        seconds = float(value[:12]) if plain else parse_nanoseconds(value) / 1e9
    except ValueError as error:
        raise click.BadParameter(str(error), ctx, param) from error
    if seconds < 0:
        raise click.BadParameter(f"{value} is below 0", ctx, param)
    _remember(ctx, param, min(seconds, _NO_LIMIT) or _NO_LIMIT)


def _remember(ctx: click.Context, param: click.Parameter, value: Any) -> None:
    if value:
        assert param.name is not None
        ctx.meta[_META] = replace(ctx.meta.get(_META, ClientOptions()), **{param.name: value})


def _connection_option(*names: str, **more: Any) -> Callable[[F], F]:
    """An option that no command has to pass on: `parsed_client_options` finds it."""
    return click.option(*names, **{"expose_value": False, "callback": _remember, **more})


def connection_options(command: F) -> F:
    """kubectl's options of the cluster and of who asks. The command gets `kubeconfig` alone."""
    return combined(
        kubeconfig_option,
        _connection_option("--context", metavar="NAME", help="The context of the kubeconfig to use."),
        _connection_option("--cluster", metavar="NAME", help="The cluster of the kubeconfig to use."),
        _connection_option("--user", "login", metavar="NAME", help="The user of the kubeconfig to use."),
        _connection_option("--as", "act_as", metavar="USER", help="Whom to impersonate."),
        _connection_option(
            "--as-group", "act_as_groups", metavar="GROUP", multiple=True, help="A group of his; may be repeated."
        ),
        _connection_option(
            "--request-timeout",
            callback=_remember_timeout,
            metavar="TIME",
            help="For one request, such as 10s; 0 for no limit.  [default: 30s]",
        ),
    )(command)


namespace_option = click.option(
    "-n",
    "--namespace",
    help="By default that of the kubeconfig's context.",
    shell_complete=lambda ctx, param, incomplete: complete_namespaces(ctx, param, incomplete),
)
lease_namespace_option = click.option(
    "--lease-namespace",
    default="kube-system",
    show_default=True,
    metavar="NAMESPACE",
    help="Where the scheduler keeps its lease, its policy, and what accounts used in the past.",
)
policy_file_option = click.option(
    "--config", default="", metavar="POLICY", help="The scheduler's policy file; by default what is built in."
)
policy_option = click.option(
    "--config",
    default="",
    metavar="POLICY",
    help="The file of the policy to go by; by default what the scheduler says that it uses.",
)
output_option = click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "json", "yaml"]),
    default="table",
    show_default=True,
    help="How to print the answer.",
)


def complete_namespaces(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from phalanx.cli.completion import names_from, namespaces

    return names_from(namespaces)(ctx, param, incomplete)


def scheduler_names_option(pods: str) -> Callable[[F], F]:
    """`--scheduler-name`; `pods` goes on from "The scheduler whose pods". By default none is given: `policy_reader`
    tells which those of the scheduler are."""
    return click.option(
        "--scheduler-name",
        "scheduler_names",
        multiple=True,
        help=f"The scheduler whose pods {pods}; may be repeated. By default all names that the scheduler says it "
        "serves, or else phalanx.",
    )


def scheduler_options(pods: str) -> Callable[[F], F]:
    """Add the options of a command that plans as the scheduler does: its names, policy and lease namespace."""
    return combined(scheduler_names_option(pods), policy_option, lease_namespace_option)


def fixed_scheduler_names_option(pods: str) -> Callable[[F], F]:
    """Likewise, for what runs for long and is told by whoever starts it."""
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
    """Run `work(client)` for the command that runs; see `run_on_client`."""
    return run_on_client(work, parsed_client_options(kubeconfig))


def run_on_client(work: Callable[[Any], Coroutine[Any, Any, T]], options: ClientOptions) -> T:
    """Run `work(client)` on a connection; failures become one plain line and exit code 1."""
    from phalanx.kube.auth.config import Overrides, load_config
    from phalanx.kube.client import KubeClient
    from phalanx.kube.errors import ApiError, ConfigError, ConnectionLost

    overrides = Overrides(options.cluster, options.login, options.act_as, options.act_as_groups)

    async def connected() -> T:
        async with KubeClient(load_config(options.kubeconfig, options.context, overrides)) as client:
            client.request_timeout = options.request_timeout or client.request_timeout
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
