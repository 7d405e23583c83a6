"""`phalanx hub`: sends gangs to member clusters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from phalanx.cli.connection import fixed_scheduler_names_option, kubeconfig_option, policy_file_option
from phalanx.cli.invocation import Invocation, pass_invocation
from phalanx.cli.services.logs import LogArguments, log_options
from phalanx.cli.services.options import leader_elect_option

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
@leader_elect_option
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
@pass_invocation(HubArguments, log_options)
def hub(invocation: Invocation, arguments: HubArguments) -> None:
    """Send gangs to member clusters until SIGTERM or Ctrl-C.

    A PodGroup whose pods carry the scheduling gate phalanx.dev/dispatch goes whole to the member cluster where it
    starts first, and runs in no other; so does a job that is left to the hub by managedBy (docs/many-clusters.md).
    Prints one line on stdout when it has seen all gangs and works.

    With --multikueue-dispatcher it is the external dispatcher of Kueue's MultiKueue instead: it writes which
    cluster starts a Workload first, and Kueue sends it there (docs/multikueue.md).

    With --karmada it is a scheduler of Karmada, at its API server: it writes which cluster starts a job first, and
    Karmada sends it there (docs/karmada.md).
    """
    from phalanx.cli.services.service_run import run_announced, run_leading
    from phalanx.daemon.policy_file import read_policy
    from phalanx.scheduling.framework.errors import PolicyError

    if arguments.karmada and arguments.multikueue_dispatcher:
        raise click.UsageError("--karmada and --multikueue-dispatcher are two processes; give one of them")
    arguments.set_up_logging()
    try:
        policy = read_policy(invocation.config)
    except PolicyError as error:
        raise click.ClickException(str(error)) from error

    async def work(client: KubeClient) -> str:
        service = _service(client, policy, invocation.scheduler_names, arguments)
        await run_announced(service, lambda: "phalanx hub ready")
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
