"""`phalanx webhook`: the admission webhook."""

from __future__ import annotations

import click

from phalanx.cli.connection import kubeconfig_option
from phalanx.cli.services.logs import log_format_option, log_level_option


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
@click.option(
    "--scheduler-name",
    "scheduler_names",
    multiple=True,
    default=("phalanx",),
    show_default=True,
    metavar="NAME",
    help="Look at pods with this spec.schedulerName; the first is filled into jobs. May be repeated.",
)
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
@log_level_option
@log_format_option
def webhook(
    kubeconfig: str | None,
    listen: str,
    url: str,
    service: str,
    namespace: str,
    scheduler_names: tuple[str, ...],
    resource_groups: str,
    queue_rights: bool,
    protect_busy_queues: bool,
    max_queue_depth: int,
    failure_policy: str,
    metrics_address: str,
    guard_metrics: bool,
    remove: bool,
    log_level: str,
    log_format: str,
) -> None:
    """Fill in and check jobs, queues, pod groups and pods before the cluster stores them.

    Makes and renews its certificates itself, and registers itself at the API server under the name
    phalanx-webhook. Prints one line when the API server calls it. Several replicas may run; they share the Secret.
    Before it is taken out of service for good, run it with --remove.
    """
    from phalanx.admission.context import ResourceGroup
    from phalanx.admission.pods import ResourceGroupError, read_resource_groups
    from phalanx.admission.webhook.registration import unregister
    from phalanx.admission.webhook.service import WebhookError, WebhookOptions, WebhookService, service_address
    from phalanx.cli.connection import run_connected
    from phalanx.cli.services.logs import set_up_logging
    from phalanx.cli.services.service_run import run_until_signal
    from phalanx.kube.client import KubeClient

    if remove:
        try:
            address = service_address(service) if service else None
        except WebhookError as error:
            raise click.UsageError(str(error)) from error
        kept = run_connected(lambda client: unregister(client, address), kubeconfig)
        click.echo(f"left as it is: it calls {kept}" if kept else "phalanx webhook unregistered")
        return
    if not all(scheduler_names):
        raise click.UsageError("--scheduler-name must not be empty")
    groups: tuple[ResourceGroup, ...] = ()
    if resource_groups:
        try:
            with open(resource_groups, "rb") as file:
                groups = read_resource_groups(file.read())
        except (OSError, ResourceGroupError) as error:
            raise click.ClickException(f"--resource-groups {resource_groups}: {error}") from error
    set_up_logging(log_level, log_format)
    options = WebhookOptions(
        listen=listen,
        url=url,
        service=service,
        namespace=namespace,
        scheduler_names=scheduler_names,
        resource_groups=groups,
        queue_rights=queue_rights,
        protect_busy_queues=protect_busy_queues,
        max_queue_depth=max_queue_depth,
        failure_policy=failure_policy,
        metrics_address=metrics_address,
        guard_metrics=guard_metrics,
    )

    async def work(client: KubeClient) -> None:
        service = WebhookService(client, options)
        try:
            await run_until_signal(service, lambda: f"phalanx webhook ready: called at port {service.port}")
        except WebhookError as error:
            raise click.UsageError(str(error)) from error

    run_connected(work, kubeconfig)
