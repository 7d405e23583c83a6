"""Cluster, for scripts and notebooks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, Unpack

from phalanx.sdk.async_cluster import AsyncCluster
from phalanx.sdk.job import Job
from phalanx.sdk.loop import LoopThread

if TYPE_CHECKING:
    from phalanx.daemon.gang_entries import GangEntry
    from phalanx.reports.account_entries import QueueEntry
    from phalanx.reports.nodes.entries import NodeEntry
    from phalanx.reports.reservation_list import ReservationEntry
    from phalanx.reports.whatif.answer import WhatIfAnswer
    from phalanx.sdk.arrays import JobArray
    from phalanx.sdk.async_cluster import Manifest
    from phalanx.sdk.entry_list import EntryList
    from phalanx.sdk.questions import Change
    from phalanx.sdk.requests import SubmitOptions


def connect(
    kubeconfig: str | Path | None = None,
    context: str | None = None,
    *,
    namespace: str | None = None,
    lease_namespace: str = "kube-system",
) -> Cluster:
    """Connect to a cluster as kubectl does: a kubeconfig and its context, or the service account of a pod.

    Without a kubeconfig the cluster of `phalanx up` in the working directory is used. `kubeconfig` is a file, or
    the directory of `phalanx up`. `namespace` is the default of all calls, else that of the context.
    `lease_namespace` has the scheduler's lease and policy. Raises ConnectionFailedError.
    """
    return Cluster(kubeconfig, context, namespace=namespace, lease_namespace=lease_namespace)


class Cluster:
    """Connection to one cluster. The arguments are those of `connect`; `close` ends it, as does a `with` block."""

    def __init__(
        self,
        kubeconfig: str | Path | None = None,
        context: str | None = None,
        *,
        namespace: str | None = None,
        lease_namespace: str = "kube-system",
    ) -> None:
        self._cluster = AsyncCluster(kubeconfig, context, namespace=namespace, lease_namespace=lease_namespace)
        self._loop = LoopThread()
        try:
            self._loop.run(self._cluster.__aenter__())
        except BaseException:
            self._loop.close()
            raise

    @property
    def namespace(self) -> str:
        return self._cluster.namespace

    @property
    def server(self) -> str:
        """URL of the API server."""
        return self._cluster.server

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the connection; jobs go on. A second call has no effect."""
        if not self._loop.loop.is_closed():
            self._loop.run(self._cluster.close())
            self._loop.close()

    def submit(
        self,
        command: Sequence[str] | str | Path | None = None,
        *,
        name: str | None = None,
        manifest: Manifest | None = None,
        namespace: str | None = None,
        **options: Unpack[SubmitOptions],
    ) -> Job:
        """Create a job and return it.

        `command` is a list of words, a text for /bin/sh, or the Path of a script. It runs in each of `replicas`
        pods; see SubmitOptions for the other options. `manifest` is used instead of a command: a file, a YAML text,
        a dictionary or a list of these; its first job is returned.

        Raises InvalidArgumentError with the name of the argument, RequestRejectedError.
        """
        submitted = self._cluster.submit(command, name=name, manifest=manifest, namespace=namespace, **options)
        return Job(self._loop, self._loop.run(submitted))

    def map_array(
        self,
        command: Sequence[str] | Callable[[Any], Sequence[str]],
        items: Iterable[Any],
        *,
        name: str | None = None,
        limit: int | None = None,
        namespace: str | None = None,
        **options: Unpack[SubmitOptions],
    ) -> JobArray:
        """Submit one job per item, at most `limit` unfinished at a time, and return them as a JobArray.

        `command` is a list of words in which `{}` is replaced by the item, or a function that returns the words for
        an item. Jobs above the limit are submitted by this process, so it must live until the last is submitted.
        """
        from phalanx.sdk.arrays import JobArray

        array = self._cluster.map_array(command, items, name=name, limit=limit, namespace=namespace, **options)
        return JobArray(self._loop, self._loop.run(array))

    def job(self, name: str, *, namespace: str | None = None) -> Job:
        """Return the existing job with this name (NAME or KIND/NAME). Raises JobNotFoundError."""
        return Job(self._loop, self._loop.run(self._cluster.job(name, namespace=namespace)))

    def jobs(
        self,
        *,
        namespace: str | None = None,
        all_namespaces: bool = False,
        queue: str | None = None,
        states: Sequence[str] = (),
        user: str | None = None,
    ) -> EntryList[GangEntry]:
        """Return the gangs and jobs, as `phalanx jobs -t all`; `states` are names such as "Pending"."""
        return self._loop.run(
            self._cluster.jobs(
                namespace=namespace, all_namespaces=all_namespaces, queue=queue, states=states, user=user
            )
        )

    def queues(self) -> EntryList[QueueEntry]:
        """Return the queues with their limits and usage, as `phalanx queue list`."""
        return self._loop.run(self._cluster.queues())

    def nodes(self, selector: str = "") -> EntryList[NodeEntry]:
        """Return the nodes with their state and free resources, as `phalanx nodes`."""
        return self._loop.run(self._cluster.nodes(selector))

    def what_if(self, **change: Unpack[Change]) -> WhatIfAnswer:
        """Predict the effect of a new job or another change, as `phalanx what-if`; see Change."""
        return self._loop.run(self._cluster.what_if(**change))

    def reserve(self, name: str, **options: Any) -> ReservationEntry:
        """Create an advance reservation and return it; AsyncCluster.reserve lists the options."""
        return self._loop.run(self._cluster.reserve(name, **options))

    def __repr__(self) -> str:
        return repr(self._cluster).replace("AsyncCluster", "Cluster", 1)

    def _repr_html_(self) -> str:
        return self._cluster._repr_html_()
