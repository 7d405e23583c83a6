"""Command `phalanx hub`: dispatch gangs to member clusters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from phalanx.cli.connection import connection_options, fixed_scheduler_names_option, policy_file_option
from phalanx.cli.invocation import Invocation, pass_invocation
from phalanx.cli.services.logs import LogArguments, log_options
from phalanx.cli.services.options import health_address_option, leader_elect_option

if TYPE_CHECKING:
    from phalanx.hub.karmada.service import KarmadaService
    from phalanx.hub.multikueue.service import MultiKueueService
    from phalanx.hub.service import HubService
    from phalanx.kube.client import KubeClient
    from phalanx.scheduling.framework.policy import Policy


@dataclass(frozen=True, kw_only=True)
class HubArguments(LogArguments):
    """Arguments of `phalanx hub`."""

    namespace: str
    leader_elect: bool
    patience: int
    multikueue_dispatcher: bool
    kueue_namespace: str
    karmada: bool
    metrics_address: str


@click.command()
@connection_options
@click.option(
    "--namespace",
    default="phalanx-system",
    show_default=True,
    help="Namespace of the member clusters' kubeconfig Secrets and of the hub's lease.",
)
@fixed_scheduler_names_option("are forecast in member clusters")
@policy_file_option
@leader_elect_option
@click.option(
    "--patience",
    type=click.IntRange(1, 3600),
    default=30,
    show_default=True,
    help="Seconds without contact after which a cluster loses gangs that have not started.",
)
@click.option(
    "--multikueue-dispatcher",
    is_flag=True,
    help="Run as MultiKueue dispatcher: nominate clusters for Kueue's Workloads, dispatch nothing.",
)
@click.option(
    "--kueue-namespace",
    default="kueue-system",
    show_default=True,
    help="Namespace of MultiKueue's kubeconfig Secrets.",
)
@click.option(
    "--karmada",
    is_flag=True,
    help="Run as Karmada scheduler: schedule bindings with schedulerName phalanx, dispatch nothing.",
)
@health_address_option
@pass_invocation(HubArguments, log_options)
def hub(invocation: Invocation, arguments: HubArguments) -> None:
    """Dispatch gangs to member clusters until SIGTERM or Ctrl-C.

    A PodGroup whose pods have the scheduling gate phalanx.dev/dispatch is sent as a whole to the member cluster
    where it starts first. It runs only there. The same holds for jobs with managedBy set to the hub
    (docs/many-clusters.md). One line on stdout reports when the hub is ready.

    With --multikueue-dispatcher it is the external dispatcher of Kueue's MultiKueue: it nominates the cluster that
    starts a Workload first, and Kueue dispatches the Workload (docs/multikueue.md).

    With --karmada it is a scheduler at Karmada's API server: it selects the cluster that starts a job first, and
    Karmada dispatches the job (docs/karmada.md).

    \b
    phalanx hub --kubeconfig hub.kubeconfig
    phalanx hub --leader-elect --patience 60
    """
    from phalanx.cli.services.service_run import run_announced, run_leading
    from phalanx.daemon.policy_file import read_policy
    from phalanx.scheduling.framework.errors import PolicyError

    if arguments.karmada and arguments.multikueue_dispatcher:
        raise click.UsageError("--karmada and --multikueue-dispatcher exclude each other; run one process for each")
    arguments.set_up_logging()
    try:
        policy = read_policy(invocation.config)
    except PolicyError as error:
        raise click.ClickException(str(error)) from error

    async def work(client: KubeClient) -> str:
        service = _service(client, policy, invocation.scheduler_names, arguments)
        await run_announced(
            service,
            lambda: "phalanx hub ready",
            address=arguments.metrics_address,
            part="hub",
            leads=service.leadership.holds,
        )
        return service.leadership.lost_because

    run_leading(invocation, work)


def _service(
    client: KubeClient, policy: Policy, scheduler_names: tuple[str, ...], arguments: HubArguments
) -> HubService | MultiKueueService | KarmadaService:
    from phalanx.hub.karmada.service import KarmadaOptions, KarmadaService
    from phalanx.hub.multikueue.service import MultiKueueOptions, MultiKueueService
    from phalanx.hub.service import HubOptions, HubService

    namespace, leader_elect = arguments.namespace, arguments.leader_elect
    if arguments.karmada:
        karmada = KarmadaOptions(namespace=namespace, scheduler_names=scheduler_names, leader_elect=leader_elect)
        return KarmadaService(client, karmada, policy)
    if arguments.multikueue_dispatcher:
        multikueue = MultiKueueOptions(
            kueue_namespace=arguments.kueue_namespace,
            namespace=namespace,
            scheduler_names=scheduler_names,
            leader_elect=leader_elect,
        )
        return MultiKueueService(client, multikueue, policy)
    hub = HubOptions(
        namespace=namespace,
        scheduler_names=scheduler_names,
        leader_elect=leader_elect,
        patience=arguments.patience,
    )
    return HubService(client, hub, policy)
