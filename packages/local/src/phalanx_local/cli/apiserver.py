"""`phalanx apiserver`: the embedded Kubernetes API server alone."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from phalanx.cli.arguments import pass_arguments
from phalanx.model.text.decoding import quoted

if TYPE_CHECKING:
    import asyncio

    from phalanx_local.server import ApiServer


class TenantParam(click.ParamType):  # type: ignore[type-arg]
    """Option value NAMESPACE or NAMESPACE=FILE: a tenant's namespace and its kubeconfig file (None by default)."""

    name = "tenant"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, Path | None]:
        from phalanx_local.validation.names import dns_label

        namespace, separator, file = str(value).partition("=")
        wrong = dns_label(namespace)
        if wrong or (separator and not file):
            self.fail(f"{quoted(value)}: write NAMESPACE or NAMESPACE=FILE{''.join(f'; {text}' for text in wrong)}")
        return namespace, Path(file) if file else None


tenant_option = click.option(
    "--tenant",
    "tenants",
    type=TenantParam(),
    multiple=True,
    metavar="NAMESPACE[=FILE]",
    help="Create the namespace and write a kubeconfig with edit rights in it and no other rights (to FILE, or "
    "NAMESPACE.kubeconfig beside the administrator's). Repeatable.",
)


@dataclass(frozen=True, kw_only=True)
class ApiserverArguments:
    """Arguments of `phalanx apiserver`."""

    port: int
    host: str
    kubeconfig_out: Path
    data: Path | None
    insecure: bool
    token: str | None
    native_groups: str
    audit_log: Path | None
    tenants: tuple[tuple[str, Path | None], ...]
    tenant_certificates: bool
    token_auth_file: Path | None


@click.command("apiserver")
@click.option("--port", type=click.IntRange(0, 65_535), default=0, show_default=True, help="Port (0: a free port).")
@click.option(
    "--bind", "host", default="127.0.0.1", show_default=True, metavar="ADDRESS", help="Address to listen on."
)
@click.option(
    "--kubeconfig-out",
    type=click.Path(dir_okay=False, path_type=Path),
    required=True,
    help="File for the administrator's kubeconfig (mode 0600).",
)
@click.option(
    "--data",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Store the objects in this file (default: only in memory).",
)
@click.option("--insecure", is_flag=True, help="Serve plain HTTP without authentication.")
@click.option("--token", help="Bearer token of the administrator (default: random).", envvar="PHALANX_TOKEN")
@click.option(
    "--native-groups",
    type=click.Choice(["v1alpha1", "v1alpha2", "v1beta1", "v1alpha3", "v1", "none"]),
    default="v1alpha2",
    show_default=True,
    help="Version of the native gang API (scheduling.k8s.io) to serve: Kubernetes 1.35, 1.36, 1.37, 1.37 with "
    "all feature gates enabled (v1alpha3 beside v1beta1, with CompositePodGroup), or as planned for 1.38 (v1).",
)
@click.option(
    "--audit-log",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Append one JSON line per request to this file.",
)
@tenant_option
@click.option(
    "--tenant-certificates",
    is_flag=True,
    help="Write for each --tenant also a kubeconfig with a client certificate, NS.certificate.kubeconfig.",
)
@click.option(
    "--token-auth-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help='Users with fixed tokens, one a line in the format of kube-apiserver: token,user,uid[,"group1,group2"].',
)
@pass_arguments(ApiserverArguments)
def apiserver(arguments: ApiserverArguments) -> None:
    """Run the embedded Kubernetes API server until it is interrupted.

    Roles and bindings (RBAC) decide the rights of users; the administrator has all rights. The server prints one
    line on standard output when it is ready.

    \b
    phalanx apiserver --kubeconfig-out kubeconfig
    phalanx apiserver --port 6443 --kubeconfig-out kubeconfig --data objects.db
    """
    import asyncio
    import logging

    if arguments.insecure and arguments.tenants:
        raise click.UsageError("--tenant needs TLS, because clients send no token over plain HTTP; omit --insecure")
    from phalanx_local.authentication.tokens import read_users
    from phalanx_local.errors import StatusError
    from phalanx_local.options import ServerOptions
    from phalanx_local.server import ApiServer
    from phalanx_local.storage.journal import DataFileError

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    try:
        users = read_users(arguments.token_auth_file) if arguments.token_auth_file is not None else {}
        options = ServerOptions(
            host=arguments.host,
            port=arguments.port,
            insecure=arguments.insecure,
            token=arguments.token,
            users=users,
            data=arguments.data,
            audit_log=arguments.audit_log,
            native_groups=arguments.native_groups,  # type: ignore[arg-type]
        )
        asyncio.run(_serve(ApiServer(options), arguments))
    except (StatusError, DataFileError, OSError, ValueError) as problem:
        raise click.ClickException(str(problem)) from None


async def _serve(server: ApiServer, arguments: ApiserverArguments) -> None:
    """Run the API server until SIGTERM or Ctrl-C."""
    from phalanx.kube.process import StoppableWork, run_until_signal

    async def work(stopping: asyncio.Event) -> None:
        await server.start()
        try:
            kubeconfig = arguments.kubeconfig_out
            server.write_kubeconfig(kubeconfig)
            for namespace, given in arguments.tenants:
                file = given or tenant_file(kubeconfig, namespace)
                server.write_tenant_kubeconfig(namespace, file)
                if arguments.tenant_certificates:
                    server.write_certified_kubeconfig(namespace, certificate_file(file, namespace))
            click.echo(f"phalanx apiserver ready at {server.url} kubeconfig {kubeconfig}")
            await stopping.wait()
        finally:
            await server.stop()

    await run_until_signal(StoppableWork(work))


def tenant_file(kubeconfig: Path, namespace: str) -> Path:
    """Return the default file for a tenant's kubeconfig: in the directory of the administrator's kubeconfig."""
    return kubeconfig.with_name(f"{namespace}.kubeconfig")


def certificate_file(kubeconfig: Path, namespace: str) -> Path:
    """Return the file for a tenant's kubeconfig with a client certificate: in the directory of the one with a
    token."""
    return kubeconfig.with_name(f"{namespace}.certificate.kubeconfig")
