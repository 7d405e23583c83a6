"""Command `phalanx scheduler`: the scheduler process."""

from __future__ import annotations

import asyncio
import importlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from phalanx.cli.connection import connection_options
from phalanx.cli.invocation import Invocation, pass_invocation
from phalanx.cli.services.logs import LogArguments, log_options
from phalanx.cli.services.options import (
    leader_elect_option,
    own_lease_namespace_option,
    served_names_option,
    write_concurrency_option,
)
from phalanx.model.text.decoding import quoted

if TYPE_CHECKING:
    from phalanx.daemon.endpoint import EndpointOptions
    from phalanx.daemon.service import SchedulerOptions
    from phalanx.daemon.tracing import Tracing
    from phalanx.kube.client import KubeClient


@dataclass(frozen=True, kw_only=True)
class SchedulerArguments(LogArguments):
    """Arguments of `phalanx scheduler`."""

    leader_elect: bool
    lease_name: str
    metrics_address: str
    metrics_certificate: str
    metrics_key: str
    guard_metrics: bool
    account_metrics: int
    concurrency: int
    self_check: bool
    with_controllers: bool
    otlp_endpoint: str

    def refuse_mistakes(self) -> None:
        """Raise click.UsageError for invalid or contradicting options of the scheduler."""
        from phalanx.admission.names import subdomain_faults

        address, lease = self.metrics_address, self.lease_name
        if address and not address.rpartition(":")[2].isdecimal():
            raise click.UsageError(
                f"invalid --metrics-address {quoted(address)}; write HOST:PORT, such as 127.0.0.1:9090"
            )
        if bool(self.metrics_certificate) != bool(self.metrics_key):
            raise click.UsageError("--metrics-certificate and --metrics-key are required together")
        if lease and not self.leader_elect:
            raise click.UsageError("--lease-name requires --leader-elect")
        if faults := subdomain_faults(lease) if lease else []:
            raise click.UsageError(f"invalid --lease-name {quoted(lease)}: {'; '.join(faults)}")

    def endpoint_options(self) -> EndpointOptions:
        from phalanx.daemon.endpoint import EndpointOptions

        return EndpointOptions(
            self.metrics_address,
            self.metrics_certificate,
            self.metrics_key,
            self.guard_metrics,
            self.account_metrics,
        )

    def scheduler_options(self, invocation: Invocation) -> SchedulerOptions:
        from phalanx.daemon.service import SchedulerOptions

        return SchedulerOptions(
            scheduler_names=invocation.scheduler_names,
            config=invocation.config,
            concurrency=self.concurrency,
            leader_elect=self.leader_elect,
            lease_namespace=invocation.lease_namespace,
            lease_name=self.lease_name,
            self_check=self.self_check,
        )


@click.command()
@connection_options
@served_names_option("Schedule pods with this spec.schedulerName; repeatable.")
@click.option(
    "--config",
    default="",
    metavar="POLICY",
    help="Policy file in Volcano's format; changes are loaded while the scheduler runs.",
)
@leader_elect_option
@own_lease_namespace_option
@click.option(
    "--lease-name",
    default="",
    metavar="NAME",
    help="Name of the lease shared by the replicas. Default: NAME-scheduler with the first --scheduler-name, "
    "such as phalanx-scheduler.",
)
@click.option(
    "--metrics-address",
    default="",
    metavar="HOST:PORT",
    help="Serve /metrics, /healthz, /livez and /readyz on this address.",
)
@click.option(
    "--metrics-certificate", default="", metavar="FILE", help="TLS certificate of the metrics server (PEM)."
)
@click.option("--metrics-key", default="", metavar="FILE", help="Private key of the certificate (PEM).")
@click.option(
    "--guard-metrics",
    is_flag=True,
    help="Authorize requests for /metrics with the API server, as for /configz and /debug.",
)
@click.option(
    "--account-metrics",
    type=click.IntRange(min=0),
    default=500,
    show_default=True,
    metavar="N",
    help="Number of queues and quotas with their own metrics (largest shares first); all others are summed.",
)
@write_concurrency_option
@click.option(
    "--self-check",
    is_flag=True,
    help="Recount every queue and quota from the pods once a second; exit with code 1 if the sums differ.",
)
@click.option(
    "--with-controllers",
    is_flag=True,
    help="Also run the controllers of jobs and PodGroups in this process (for small clusters).",
)
@click.option(
    "--otlp-endpoint",
    default="",
    metavar="URL",
    help="Send traces of cycles and writes to this OpenTelemetry collector (OTLP over HTTP, such as "
    "http://localhost:4318). Default: $OTEL_EXPORTER_OTLP_ENDPOINT, or none. Needs the extra otel.",
)
@pass_invocation(SchedulerArguments, log_options)
def scheduler(invocation: Invocation, arguments: SchedulerArguments) -> None:
    """Run the scheduler against a cluster until SIGTERM or Ctrl-C.

    One line on stdout reports when the scheduler is ready. An invalid policy file stops the start, with all errors
    listed. While the scheduler runs, an invalid change is reported and the previous policy stays active.

    \b
    phalanx scheduler --kubeconfig kubeconfig
    phalanx scheduler --leader-elect --metrics-address 0.0.0.0:9090 --config policy.yaml
    """
    from phalanx.cli.services.service_run import run_leading
    from phalanx.daemon.garbage_collection import collections_postponed

    invocation.refuse_empty_names()
    arguments.refuse_mistakes()
    arguments.set_up_logging()
    tracing = _tracing(arguments.otlp_endpoint)

    async def work(client: KubeClient) -> str:
        if not arguments.leader_elect:
            _list_ahead(client)
        # In a thread, so that the lists arrive meanwhile.
        process = await asyncio.to_thread(importlib.import_module, "phalanx.cli.services.scheduler_process")
        cause: str = await process.run_scheduler(client, invocation, arguments, tracing)
        return cause

    with collections_postponed():
        run_leading(invocation, work)


def _list_ahead(client: KubeClient) -> None:
    """Request nodes and pods before the code of the scheduler is loaded, which takes as long as a list of thousands
    of pods. With a lease they are listed after it is acquired: an earlier list could lack the last bindings of the
    previous leader."""
    from phalanx.kube.core_resources import NODES, PODS
    from phalanx.kube.pages import LIST_TIMEOUT, first_page

    for resource in (NODES, PODS):
        client.read_ahead(resource.path(), first_page(), timeout=LIST_TIMEOUT)


def _tracing(endpoint: str) -> Tracing | None:
    """Connect to the trace collector; without a collector return None.

    A failure for a collector from the environment is only logged: that variable is shared by many programs.
    """
    import logging
    import os

    collector = endpoint or os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT", "")
    if not collector:
        return None
    try:
        from phalanx.daemon.tracing import connect

        return connect(collector)
    except ImportError as error:
        text = f"cannot send traces to {collector}: {error}; install phalanx-scheduler[otel]"
        if endpoint:
            raise click.ClickException(text) from error
        logging.getLogger(__name__).warning("%s", text)
        return None
