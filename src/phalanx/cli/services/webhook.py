"""`phalanx webhook`: the admission webhook."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from phalanx.cli.connection import kubeconfig_option
from phalanx.cli.invocation import Invocation, pass_invocation
from phalanx.cli.services.logs import LogArguments, log_options
from phalanx.cli.services.options import served_names_option

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
    remove: bool


@click.command()
@kubeconfig_option
@click.option(
    "--listen", default="0.0.0.0:8443", show_default=True, metavar="HOST:PORT", help="Where to serve HTTPS."
)
@click.option(
    "--url", default="", metavar="https://HOST:PORT", help="Where the API server calls, outside a cluster."
)
@click.option(
    "--service",
    default="",
    metavar="NS/NAME[:PORT]",
    help="The Service by which the API server calls, in a cluster.",
)
@click.option(
    "--namespace",
    default="phalanx-system",
    show_default=True,
    help="Where the Secret with the certificates is kept; never asked about, like kube-system.",
)
@served_names_option("Look at pods with this spec.schedulerName; the first is filled into jobs. May be repeated.")
@click.option(
    "--resource-groups",
    "--admission-conf",
    default="",
    metavar="FILE",
    help="What pods of some namespaces or annotations get: the configuration of Volcano's webhook.",
)
@click.option(
    "--queue-rights",
    is_flag=True,
    help="Queues other than `default` may only be used by whoever has the verb `use` on them, and in namespaces "
    "whose annotation phalanx.dev/queues names them.",
)
@click.option("--protect-busy-queues", is_flag=True, help="Queues with unfinished PodGroups cannot be deleted.")
@click.option(
    "--max-queue-depth", type=click.IntRange(min=1), default=5, show_default=True, help="Levels of queues."
)
@click.option(
    "--failure-policy",
    type=click.Choice(["Fail", "Ignore"]),
    default="Fail",
    show_default=True,
    help="What becomes of writes of jobs, queues and groups while no webhook runs. Pods pass in any case, but "
    "those that name a queue with --queue-rights.",
)
@click.option("--metrics-address", default="", metavar="HOST:PORT", help="Serve /metrics and /healthz there too.")
@click.option(
    "--guard-metrics",
    is_flag=True,
    help="Serve /metrics only over TLS, with the webhook's certificate, and only to whom the API server lets get "
    "that path.",
)
@click.option(
    "--remove",
    is_flag=True,
    help="Take the registration away and end: nobody calls any more. With --service only one that calls there.",
)
@pass_invocation(WebhookArguments, log_options)
def webhook(invocation: Invocation, arguments: WebhookArguments) -> None:
    """Fill in and check jobs, queues, pod groups and pods before the cluster stores them.

    Makes and renews its certificates itself, and registers itself at the API server under the name
    phalanx-webhook. Prints one line when the API server calls it. Several replicas may run; they share the Secret.
    Before it is taken out of service for good, run it with --remove.
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
    )

    async def work(client: KubeClient) -> None:
        service = WebhookService(client, options)
        try:
            await run_announced(service, lambda: f"phalanx webhook ready: called at port {service.port}")
        except WebhookError as error:
            raise click.UsageError(str(error)) from error

    invocation.run(work)


def _unregister(invocation: Invocation, service: str) -> None:
    """Remove the registration, with `service` only one that calls there. Raises click.UsageError."""
    from phalanx.admission.webhook.registration import unregister
    from phalanx.admission.webhook.service import WebhookError, service_address

    try:
        address = service_address(service) if service else None
    except WebhookError as error:
        raise click.UsageError(str(error)) from error
    kept = invocation.run(lambda client: unregister(client, address))
    click.echo(f"left as it is: it calls {kept}" if kept else "phalanx webhook unregistered")


def _resource_groups(path: str) -> tuple[ResourceGroup, ...]:
    """Read the configuration of --resource-groups. Raises click.ClickException."""
    from phalanx.admission.pods import ResourceGroupError, read_resource_groups

    try:
        with open(path, "rb") as file:
            return read_resource_groups(file.read())
    except (OSError, ResourceGroupError) as error:
        raise click.ClickException(f"--resource-groups {path}: {error}") from error
