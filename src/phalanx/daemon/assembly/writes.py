"""Builder of the path of every write: the lease, the client that checks it, the write pool, the event recorder."""

from __future__ import annotations

import socket

import msgspec

from phalanx.daemon.assembly.core import Core
from phalanx.execution.writes import PooledClient, Urgency, WritePool
from phalanx.kube.client import KubeClient
from phalanx.kube.events import EventRecorder
from phalanx.kube.leadership import Leadership, LeaseOptions


class Writes(msgspec.Struct, frozen=True, eq=False):
    leadership: Leadership
    #: Refuses every change without the lease; reads pass.
    client: KubeClient
    pool: WritePool
    recorder: EventRecorder


def build_writes(core: Core, client: KubeClient) -> Writes:
    options = core.options
    lease = LeaseOptions(
        options.lease_namespace,
        options.lease_name,
        options.lease_seconds,
        options.renew_seconds,
        options.retry_seconds,
    )
    leadership = Leadership(client, lease if options.leader_elect else None)
    client = client.fenced(leadership.holds)
    pool = WritePool(options.concurrency, leadership.holds, core.failures)
    client.throttled = pool.slow_down
    name = options.scheduler_names[0]
    events = PooledClient(client, pool, Urgency.EVENT, read=False)
    recorder = EventRecorder(events, controller=name, instance=f"{name}-{socket.gethostname()}")
    return Writes(leadership, client, pool, recorder)
