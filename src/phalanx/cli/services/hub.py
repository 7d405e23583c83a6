"""`phalanx hub`: sends gangs to member clusters."""

from __future__ import annotations

import click

from phalanx.cli.connection import fixed_scheduler_names_option, kubeconfig_option, policy_file_option
from phalanx.cli.services.logs import log_format_option, log_level_option


@click.command()
@kubeconfig_option
@click.option(
    "--namespace",
    default="phalanx-system",
    show_default=True,
    help="Where the Secrets with the kubeconfigs of member clusters are, and the lease of replicas.",
)
@fixed_scheduler_names_option("a forecast in a member cluster is about")
@policy_file_option
@click.option("--leader-elect", is_flag=True, help="Work only while holding a lease, for several replicas.")
@click.option(
    "--patience",
    type=click.IntRange(1, 3600),
    default=30,
    show_default=True,
    help="Seconds that a cluster may be silent before it loses what it has not been granted.",
)
@click.option(
    "--multikueue-dispatcher",
    is_flag=True,
    help="Dispatch nothing: nominate clusters for the Workloads of Kueue's MultiKueue.",
)
@click.option(
    "--kueue-namespace",
    default="kueue-system",
    show_default=True,
    help="Where MultiKueue has the Secrets with kubeconfigs.",
)
@click.option(
    "--karmada",
    is_flag=True,
    help="Dispatch nothing: schedule the bindings of Karmada whose policies say schedulerName: phalanx.",
)
@log_level_option
@log_format_option
def hub(
    kubeconfig: str | None,
    namespace: str,
    scheduler_names: tuple[str, ...],
    config: str,
    leader_elect: bool,
    patience: int,
    multikueue_dispatcher: bool,
    kueue_namespace: str,
    karmada: bool,
    log_level: str,
    log_format: str,
) -> None:
    """Send gangs to member clusters until SIGTERM or Ctrl-C.

    A PodGroup whose pods carry the scheduling gate phalanx.dev/dispatch goes whole to the member cluster where it
    starts first, and runs in no other; so does a job that is left to the hub by managedBy (docs/many-clusters.md).
    Prints one line on stdout when it has seen all gangs and works.

    With --multikueue-dispatcher it is the external dispatcher of Kueue's MultiKueue instead: it writes which
    cluster starts a Workload first, and Kueue sends it there (docs/multikueue.md).

    With --karmada it is a scheduler of Karmada, at its API server: it writes which cluster starts a job first, and
    Karmada sends it there (docs/karmada.md).
    """
    from phalanx.cli.connection import run_connected
    from phalanx.cli.services.logs import set_up_logging
    from phalanx.cli.services.service_run import run_until_signal
    from phalanx.daemon.policy_file import read_policy
    from phalanx.hub.karmada.service import KarmadaOptions, KarmadaService
    from phalanx.hub.multikueue.service import MultiKueueOptions, MultiKueueService
    from phalanx.hub.service import HubOptions, HubService
    from phalanx.kube.client import KubeClient
    from phalanx.scheduling.framework.errors import PolicyError

    if karmada and multikueue_dispatcher:
        raise click.UsageError("--karmada and --multikueue-dispatcher are two processes; give one of them")
    set_up_logging(log_level, log_format)
    try:
        policy = read_policy(config)
    except PolicyError as error:
        raise click.ClickException(str(error)) from error
    options = HubOptions(
        namespace=namespace, scheduler_names=scheduler_names, leader_elect=leader_elect, patience=patience
    )

    beside = MultiKueueOptions(
        kueue_namespace=kueue_namespace,
        namespace=namespace,
        scheduler_names=scheduler_names,
        leader_elect=leader_elect,
    )

    there = KarmadaOptions(namespace=namespace, scheduler_names=scheduler_names, leader_elect=leader_elect)

    async def work(client: KubeClient) -> str:
        service: HubService | MultiKueueService | KarmadaService
        if karmada:
            service = KarmadaService(client, there, policy)
        elif multikueue_dispatcher:
            service = MultiKueueService(client, beside, policy)
        else:
            service = HubService(client, options, policy)
        await run_until_signal(service, lambda: "phalanx hub ready")
        return service.leadership.lost_because

    if lost := run_connected(work, kubeconfig):
        raise click.ClickException(lost)
