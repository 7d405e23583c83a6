"""`phalanx apiserver`: the embedded Kubernetes API server alone."""

from __future__ import annotations

from pathlib import Path

import click


@click.command("apiserver")
@click.option("--port", type=click.IntRange(0, 65_535), default=0, show_default=True, help="0 picks a free port.")
@click.option("--bind", "host", default="127.0.0.1", show_default=True, metavar="ADDRESS", help="Where to listen.")
@click.option(
    "--kubeconfig-out",
    type=click.Path(dir_okay=False, path_type=Path),
    required=True,
    help="Where to write the administrator's kubeconfig (mode 0600).",
)
@click.option(
    "--data",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Keep the objects in this file; without it they live in memory.",
)
@click.option("--insecure", is_flag=True, help="Plain HTTP, and no questions asked about who calls.")
@click.option("--token", help="The administrator's bearer token; a random one by default.", envvar="PHALANX_TOKEN")
@click.option(
    "--native-groups",
    type=click.Choice(["v1alpha1", "v1alpha2", "v1beta1", "v1alpha3", "none"]),
    default="v1alpha2",
    show_default=True,
    help="Version of the native gang API (scheduling.k8s.io) to serve: as Kubernetes 1.35, 1.36, 1.37, or 1.37 "
    "with every gate on (v1alpha3 beside v1beta1, with CompositePodGroup).",
)
@click.option(
    "--audit-log",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Append one JSON line per request to this file.",
)
def apiserver(
    port: int,
    host: str,
    kubeconfig_out: Path,
    data: Path | None,
    insecure: bool,
    token: str | None,
    native_groups: str,
    audit_log: Path | None,
) -> None:
    """Run the embedded Kubernetes API server until it is interrupted.

    One line on standard output tells when it is ready.
    """
    import asyncio
    import logging

    from phalanx.local.journal import DataFileError
    from phalanx.local.options import ServerOptions
    from phalanx.local.server import ApiServer

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    options = ServerOptions(
        host=host,
        port=port,
        insecure=insecure,
        token=token,
        data=data,
        audit_log=audit_log,
        native_groups=native_groups,  # type: ignore[arg-type]
    )
    try:
        asyncio.run(_serve(ApiServer(options), kubeconfig_out))
    except (DataFileError, OSError) as problem:
        raise click.ClickException(str(problem)) from None


async def _serve(server: object, kubeconfig_out: Path) -> None:
    import asyncio
    import signal

    from phalanx.local.server import ApiServer

    assert isinstance(server, ApiServer)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    await server.start()
    try:
        server.write_kubeconfig(kubeconfig_out)
        click.echo(f"phalanx apiserver ready at {server.url} kubeconfig {kubeconfig_out}")
        await stop.wait()
    finally:
        await server.stop()
