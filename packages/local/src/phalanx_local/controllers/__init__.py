"""Controllers that every cluster needs, and the controllers of the basic workloads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from phalanx_local.admission.quota import QuotaLedger
from phalanx_local.admission.webhook_calls import WebhookClient
from phalanx_local.controllers.base import Controller
from phalanx_local.controllers.cluster_roles import ClusterRoleAggregation
from phalanx_local.controllers.definitions import DefinitionController
from phalanx_local.controllers.deployments import DeploymentController
from phalanx_local.controllers.disruption import DisruptionController
from phalanx_local.controllers.ephemeral_volumes import EphemeralVolumes
from phalanx_local.controllers.event_ttl import EventExpiry
from phalanx_local.controllers.garbage import GarbageCollector
from phalanx_local.controllers.jobs import JobController
from phalanx_local.controllers.namespaces import NamespaceController
from phalanx_local.controllers.node_lifecycle import NodeLifecycle
from phalanx_local.controllers.pod_gc import PodGarbageCollector
from phalanx_local.controllers.pod_groups import PodGroupController
from phalanx_local.controllers.replicas import ReplicaSetController
from phalanx_local.controllers.resource_claims import ResourceClaimController
from phalanx_local.controllers.resource_quotas import ResourceQuotaController
from phalanx_local.controllers.stateful_sets import StatefulSetController
from phalanx_local.controllers.volume_protection import VolumeProtection
from phalanx_local.controllers.volumes import VolumeController
from phalanx_local.options import ServerOptions
from phalanx_local.registry.api import Api

__all__ = ["Controllers"]


class Controllers:
    """The enabled controllers, started and stopped together."""

    def __init__(self, api: Api, quotas: QuotaLedger, options: ServerOptions, webhooks: WebhookClient) -> None:
        makers: dict[str, Callable[[], Controller]] = {
            "garbage": lambda: GarbageCollector(api),
            "namespaces": lambda: NamespaceController(api),
            "definitions": lambda: DefinitionController(api),
            "podgc": lambda: PodGarbageCollector(api, options.lost_node_delay),
            "disruption": lambda: DisruptionController(api),
            "nodelifecycle": lambda: NodeLifecycle(api),
            "podgroups": lambda: PodGroupController(api),
            "resourceclaims": lambda: ResourceClaimController(api),
            "replicasets": lambda: ReplicaSetController(api),
            "deployments": lambda: DeploymentController(api),
            "jobs": lambda: JobController(api),
            "volumes": lambda: VolumeController(api),
            "volumeprotection": lambda: VolumeProtection(api),
            "ephemeralvolumes": lambda: EphemeralVolumes(api),
            "statefulsets": lambda: StatefulSetController(api),
            "clusterroles": lambda: ClusterRoleAggregation(api),
            "resourcequotas": lambda: ResourceQuotaController(api, quotas),
            "eventttl": lambda: EventExpiry(api, options.event_ttl),
        }
        self._controllers: list[Controller] = [
            make() for name, make in makers.items() if name in options.controllers
        ]
        self._tasks: list[asyncio.Task[None]] = []
        for controller in self._controllers:
            controller.webhooks = webhooks
            api.store.listen(controller.observe)

    def start(self) -> None:
        """Start all controllers: each first queues all existing objects, then observes changes."""
        for controller in self._controllers:
            controller.resync()
            self._tasks.append(asyncio.create_task(controller.run()))

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()
