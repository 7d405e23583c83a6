"""Common base of the hub's three processes: the hub itself, Karmada's scheduler, MultiKueue's dispatcher."""

from __future__ import annotations

import dataclasses
import platform

import msgspec

from phalanx.hub.choice.estimates import Estimates
from phalanx.kube.auth.config import ClusterConfig
from phalanx.kube.client import KubeClient
from phalanx.kube.events import EventRecorder
from phalanx.kube.http.connections import Transports
from phalanx.kube.leadership import Leadership, LeaseOptions
from phalanx.kube.process import LeadingService
from phalanx.scheduling.framework.policy import Policy

# Limit in bytes of one answer of a member cluster, and of one line of a watch.
_ANSWER_BYTES = 64 * 2**20


class HubProcessOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of a hub process.

    `namespace` contains the lease of replicas. Forecasts in member clusters cover the pods of `scheduler_names`.
    """

    namespace: str = "phalanx-system"
    scheduler_names: tuple[str, ...] = ("phalanx",)
    leader_elect: bool = False
    lease_name: str


class HubProcess(LeadingService):
    """Process that requests forecasts from member clusters and writes the results while it leads.

    `transports` carry the requests to member clusters.
    """

    def __init__(
        self,
        client: KubeClient,
        options: HubProcessOptions,
        policy: Policy,
        transports: Transports | None = None,
    ) -> None:
        lease = LeaseOptions(options.namespace, options.lease_name, 15.0, 10.0, 2.0)
        super().__init__(Leadership(client, lease if options.leader_elect else None))
        self._client = client.fenced(self.leadership.holds)
        self._transports = transports
        self._recorder = EventRecorder(
            self._client, controller="phalanx-hub", instance=f"phalanx-hub-{platform.node() or 'unknown'}"
        )
        self._estimates = Estimates(policy, options.scheduler_names)

    async def close(self) -> None:
        self._estimates.close()

    def _member_client(self, config: ClusterConfig, max_connections: int) -> KubeClient:
        """Return an API client of a member cluster with a limited answer size."""
        bounded = dataclasses.replace(config, answer_limit=_ANSWER_BYTES)
        return KubeClient(
            bounded, user_agent="phalanx-hub", max_connections=max_connections, transports=self._transports
        )
