"""Options and error handling that all commands with a cluster connection share."""

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
    help="Path to the kubeconfig. Default: $KUBECONFIG, ~/.kube/config, or the pod's service account.",
)
# Key of the ClientOptions parsed so far, in the meta dictionary of the click context.
_META = "phalanx.connection"
_NO_LIMIT = 86_400.0


@dataclass(frozen=True, kw_only=True)
class ClientOptions:
    """Kubeconfig, cluster, user and timeout of API requests (`request_timeout` in seconds; None: the client's
    default), and the server of the page with its CA file, if named."""

    kubeconfig: str | None = None
    context: str | None = None
    cluster: str = ""
    login: str = ""
    act_as: str = ""
    act_as_groups: tuple[str, ...] = ()
    request_timeout: float | None = None
    server: str = ""
    server_authority: str = ""


def parsed_client_options(kubeconfig: str | None) -> ClientOptions:
    """Return the connection options of the command that runs now (or whose words the shell completes), with
    `kubeconfig`."""
    context = click.get_current_context(silent=True)
    parsed = context.meta.get(_META, ClientOptions()) if context is not None else ClientOptions()
    return replace(parsed, kubeconfig=kubeconfig)


def _remember_timeout(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
    """Parse the value of --request-timeout, a Go duration or plain seconds like kubectl; 0 means no limit. Raises
    click.BadParameter."""
    from phalanx.model.text.duration import parse_nanoseconds

    if value is None:
        return
    try:
        plain = value.isascii() and value.isdecimal()
        seconds = float(value[:12]) if plain else parse_nanoseconds(value) / 1e9
    except ValueError as error:
        raise click.BadParameter(str(error), ctx, param) from error
    if seconds < 0:
        raise click.BadParameter(f"{value} is negative; write a duration of 0 or more", ctx, param)
    _remember(ctx, param, min(seconds, _NO_LIMIT) or _NO_LIMIT)


def _remember(ctx: click.Context, param: click.Parameter, value: Any) -> None:
    if value:
        assert param.name is not None
        ctx.meta[_META] = replace(ctx.meta.get(_META, ClientOptions()), **{param.name: value})


def connection_option(*names: str, **more: Any) -> Callable[[F], F]:
    """Return a connection option that is not passed to the command; `parsed_client_options` reads it."""
    return click.option(*names, **{"expose_value": False, "callback": _remember, **more})


def connection_options(command: F) -> F:
    """Add kubectl's options of the cluster and the user to a command. The command receives only `kubeconfig`."""
    return combined(
        kubeconfig_option,
        connection_option("--context", metavar="NAME", help="Context of the kubeconfig."),
        connection_option("--cluster", metavar="NAME", help="Cluster of the kubeconfig."),
        connection_option("--user", "login", metavar="NAME", help="User of the kubeconfig."),
        connection_option("--as", "act_as", metavar="USER", help="User to impersonate."),
        connection_option(
            "--as-group", "act_as_groups", metavar="GROUP", multiple=True, help="Group to impersonate; repeatable."
        ),
        connection_option(
            "--request-timeout",
            callback=_remember_timeout,
            metavar="TIME",
            help="Timeout of one API request, such as 10s; 0 for no limit.  [default: 30s]",
        ),
    )(command)


namespace_option = click.option(
    "-n",
    "--namespace",
    help="Namespace. Default: the one of the kubeconfig's context.",
    shell_complete=lambda ctx, param, incomplete: complete_namespaces(ctx, param, incomplete),
)
lease_namespace_option = click.option(
    "--lease-namespace",
    default="kube-system",
    show_default=True,
    metavar="NAMESPACE",
    help="Namespace of the scheduler's lease, policy and stored usage.",
)
policy_file_option = click.option(
    "--config", default="", metavar="POLICY", help="Policy file of the scheduler. Default: the built-in policy."
)
policy_option = click.option(
    "--config",
    default="",
    metavar="POLICY",
    help="Policy file to use. Default: the policy that the scheduler publishes.",
)
output_option = click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "json", "yaml"]),
    default="table",
    show_default=True,
    help="Output format.",
)


def complete_namespaces(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from phalanx.cli.completion import names_from, namespaces

    return names_from(namespaces)(ctx, param, incomplete)


def scheduler_names_option(pods: str) -> Callable[[F], F]:
    """Return the option `--scheduler-name`. `pods` completes its help "Scheduler whose pods ...".

    The default is no name: `policy_reader` then reads the names that the scheduler publishes.
    """
    return click.option(
        "--scheduler-name",
        "scheduler_names",
        multiple=True,
        help=f"Scheduler whose pods {pods}; repeatable. Default: all names that the scheduler publishes, "
        "or else phalanx.",
    )


def scheduler_options(pods: str) -> Callable[[F], F]:
    """Add the options of a command that plans like the scheduler: scheduler names, policy and lease namespace."""
    return combined(scheduler_names_option(pods), policy_option, lease_namespace_option)


def fixed_scheduler_names_option(pods: str) -> Callable[[F], F]:
    """Return the option `--scheduler-name` with the default phalanx, for long-running services."""
    return click.option(
        "--scheduler-name",
        "scheduler_names",
        multiple=True,
        default=("phalanx",),
        show_default=True,
        help=f"Scheduler whose pods {pods}; repeatable.",
    )


def time_limit(seconds: float = 30.0) -> Callable[[], bool]:
    """Return a function that reports whether `seconds` have passed since this call."""
    deadline = time.monotonic() + seconds
    return lambda: time.monotonic() >= deadline


def run_connected(work: Callable[[Any], Coroutine[Any, Any, T]], kubeconfig: str | None) -> T:
    """Call `work` with a client for the command that runs; see `run_on_client`."""
    return run_on_client(work, parsed_client_options(kubeconfig))


def run_on_client(
    work: Callable[[Any], Coroutine[Any, Any, T]],
    options: ClientOptions,
    loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None,
) -> T:
    """Call `work` with a client for the connection options, on a loop of `loop_factory` (asyncio's by default). A
    failure becomes one error line and exit code 1."""
    from phalanx.kube.auth.config import Overrides, load_config
    from phalanx.kube.client import KubeClient
    from phalanx.kube.errors import ApiError, ConfigError, ConnectionLost

    overrides = Overrides(options.cluster, options.login, options.act_as, options.act_as_groups)

    async def connected() -> T:
        async with KubeClient(load_config(options.kubeconfig, options.context, overrides)) as client:
            client.request_timeout = options.request_timeout or client.request_timeout
            return await work(client)

    try:
        with asyncio.Runner(loop_factory=loop_factory) as runner:
            return runner.run(connected())
    except ConfigError as error:
        raise click.ClickException(str(error)) from error
    except ApiError as error:
        raise click.ClickException(f"request rejected by the API server: {error}") from error
    except ConnectionLost as error:
        raise click.ClickException(f"cannot reach the API server: {error}") from error


def print_structured(document: object, output: str) -> None:
    """Print `document` on stdout as YAML or JSON."""
    if output == "yaml":
        import yaml

        click.echo(yaml.safe_dump(document, sort_keys=False, allow_unicode=True), nl=False)
    else:
        import json

        click.echo(json.dumps(document, indent=2, ensure_ascii=False))
