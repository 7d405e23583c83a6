"""Command `phalanx webhook`: the admission webhook."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from phalanx.cli.connection import connection_options
from phalanx.cli.invocation import Invocation, pass_invocation
from phalanx.cli.services.logs import LogArguments, log_options
from phalanx.cli.services.options import served_names_option, ssh_option
from phalanx.kube.causes import cause_text

if TYPE_CHECKING:
    from phalanx.admission.context import ResourceGroup
    from phalanx.kube.client import KubeClient


@dataclass(frozen=True, kw_only=True)
class WebhookArguments(LogArguments):
    """Arguments of `phalanx webhook`."""

    listen: str
    url: str
    service: str
    namespace: str
    resource_groups: str
    queue_rights: bool
    protect_busy_queues: bool
    max_queue_depth: int
    failure_policy: str
    metrics_address: str
    guard_metrics: bool
    ssh: bool
    remove: bool


@click.command()
@connection_options
@click.option(
    "--listen", default="0.0.0.0:8443", show_default=True, metavar="HOST:PORT", help="Listen address for HTTPS."
)
@click.option(
    "--url",
    default="",
    metavar="https://HOST:PORT",
    help="URL of the webhook for the API server (outside a cluster).",
)
@click.option(
    "--service",
    default="",
    metavar="NS/NAME[:PORT]",
    help="Service of the webhook for the API server (in a cluster).",
)
@click.option(
    "--namespace",
    default="phalanx-system",
    show_default=True,
    help="Namespace of the certificate Secret; like kube-system, it is never checked by the webhook.",
)
@served_names_option("Check pods with this spec.schedulerName; the first is the default of jobs. Repeatable.")
@click.option(
    "--resource-groups",
    "--admission-conf",
    default="",
    metavar="FILE",
    help="Resource groups (defaults for pods of some namespaces or annotations), as of Volcano's webhook.",
)
@click.option(
    "--queue-rights",
    is_flag=True,
    help="Restrict queues other than `default` to users with the verb `use` on them, and to namespaces whose "
    "annotation phalanx.dev/queues lists them.",
)
@click.option(
    "--protect-busy-queues", is_flag=True, help="Reject the deletion of queues with unfinished PodGroups."
)
@click.option(
    "--max-queue-depth",
    type=click.IntRange(min=1),
    default=5,
    show_default=True,
    help="Maximum depth of the queue tree.",
)
@click.option(
    "--failure-policy",
    type=click.Choice(["Fail", "Ignore"]),
    default="Fail",
    show_default=True,
    help="Handling of writes of jobs, queues and PodGroups while no webhook runs. Pods always pass, except pods "
    "that name a queue with --queue-rights.",
)
@click.option(
    "--metrics-address", default="", metavar="HOST:PORT", help="Also serve /metrics and /healthz on this address."
)
@click.option(
    "--guard-metrics",
    is_flag=True,
    help="Serve /metrics only over TLS with the webhook's certificate, and authorize requests with the API server.",
)
@ssh_option
@click.option(
    "--remove",
    is_flag=True,
    help="Remove the registration and exit. With --service, only a registration of that Service.",
)
@pass_invocation(WebhookArguments, log_options)
def webhook(invocation: Invocation, arguments: WebhookArguments) -> None:
    """Run the admission webhook: set defaults and validate jobs, queues, PodGroups and pods.

    The webhook creates and renews its certificates, and registers itself under the name phalanx-webhook. It
    prints one line when it is registered. Several replicas can run; they share the Secret. Before you uninstall
    it, run it with --remove.

    \b
    phalanx webhook --service phalanx-system/phalanx-webhook
    phalanx webhook --listen 127.0.0.1:8443 --url https://127.0.0.1:8443
    phalanx webhook --remove
    """
    from phalanx.admission.webhook.service import WebhookError, WebhookOptions, WebhookService
    from phalanx.cli.services.service_run import run_announced

    if arguments.remove:
        _unregister(invocation, arguments.service)
        return
    invocation.refuse_empty_names()
    groups = _resource_groups(arguments.resource_groups) if arguments.resource_groups else ()
    arguments.set_up_logging()
    options = WebhookOptions(
        listen=arguments.listen,
        url=arguments.url,
        service=arguments.service,
        namespace=arguments.namespace,
        scheduler_names=invocation.scheduler_names,
        resource_groups=groups,
        queue_rights=arguments.queue_rights,
        protect_busy_queues=arguments.protect_busy_queues,
        max_queue_depth=arguments.max_queue_depth,
        failure_policy=arguments.failure_policy,
        metrics_address=arguments.metrics_address,
        guard_metrics=arguments.guard_metrics,
        ssh=arguments.ssh,
    )

    async def work(client: KubeClient) -> None:
        service = WebhookService(client, options)
        try:
            await run_announced(service, lambda: f"phalanx webhook ready: port {service.port}")
        except WebhookError as error:
            raise click.UsageError(str(error)) from error

    invocation.run(work)


def _unregister(invocation: Invocation, service: str) -> None:
    """Remove the webhook's registration; with `service` only a registration of that Service. Raises
    click.UsageError."""
    from phalanx.admission.webhook.registration import unregister
    from phalanx.admission.webhook.service import WebhookError, service_address

    try:
        address = service_address(service) if service else None
    except WebhookError as error:
        raise click.UsageError(str(error)) from error
    other_address = invocation.run(lambda client: unregister(client, address))
    click.echo(
        f"not unregistered: the registration calls {other_address}"
        if other_address
        else "phalanx webhook unregistered"
    )


def _resource_groups(path: str) -> tuple[ResourceGroup, ...]:
    """Read the file of --resource-groups. Raises click.ClickException."""
    from phalanx.admission.pods import ResourceGroupError, read_resource_groups

    try:
        with open(path, "rb") as file:
            return read_resource_groups(file.read())
    except (OSError, ResourceGroupError) as error:
        raise click.ClickException(f"--resource-groups {path}: {cause_text(error)}") from error
