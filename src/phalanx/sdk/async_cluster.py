"""Cluster, for callers with an event loop of their own."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, Unpack
from urllib.parse import urlsplit

from phalanx.sdk.async_job import AsyncJob
from phalanx.sdk.entry_list import EntryList
from phalanx.sdk.errors import (
    ConnectionFailedError,
    InvalidArgumentError,
    PhalanxError,
    RequestRejectedError,
    translated,
)
from phalanx.sdk.requests import SubmitOptions, command_job, generated_name, manifest_objects, script_command

if TYPE_CHECKING:
    from phalanx.daemon.gang_entries import GangEntry
    from phalanx.kube.auth.config import ClusterConfig
    from phalanx.kube.client import KubeClient
    from phalanx.reports.account_entries import QueueEntry
    from phalanx.reports.nodes.entries import NodeEntry
    from phalanx.reports.reservation_list import ReservationEntry
    from phalanx.reports.whatif.answer import WhatIfAnswer
    from phalanx.scheduling.framework.policy import Policy
    from phalanx.sdk.arrays import AsyncJobArray
    from phalanx.sdk.questions import Change

Json = dict[str, Any]
Manifest = Mapping[str, Any] | Sequence[Mapping[str, Any]] | str | Path

#: Kubeconfig that `phalanx up` writes into its directory.
LOCAL_KUBECONFIG = Path(".phalanx") / "kubeconfig"
# Beginning of the container runtime of nodes that run local processes and pull no images.
_LOCAL_RUNTIME = "phalanx://"
_MANIFEST_OPTIONS = frozenset({"queue", "priority", "scheduler"})
_GANG_COLUMNS = ("name", "kind", "queue", "user", "state", "running", "minimum", "total", "gpus", "start", "reason")
_QUEUE_COLUMNS = ("name", "state", "used", "deserved", "capability")
_NODE_COLUMNS = ("name", "state", "pool", "pods")


def kubeconfig_file(kubeconfig: str | Path | None) -> Path | None:
    """Return the file of a kubeconfig, which can be given as the directory of `phalanx up`; None for kubectl's own
    search. That of `phalanx up` in the working directory is used if kubectl would find none."""
    if kubeconfig is not None:
        path = Path(kubeconfig)
        return path / LOCAL_KUBECONFIG.name if path.is_dir() else path
    environ = os.environ
    elsewhere = environ.get("KUBECONFIG") or environ.get("KUBERNETES_SERVICE_HOST")
    if elsewhere or (Path.home() / ".kube" / "config").exists():
        return None
    return LOCAL_KUBECONFIG if LOCAL_KUBECONFIG.exists() else None


def find_config(kubeconfig: str | Path | None, context: str | None) -> ClusterConfig:
    """Return the settings of a connection: those of kubectl, else of `phalanx up` in the working directory.

    `kubeconfig` is a file, or the directory of `phalanx up`. Raises ConnectionFailedError.
    """
    from phalanx.kube.auth.config import load_config
    from phalanx.kube.errors import ConfigError

    file = kubeconfig_file(kubeconfig)
    try:
        return load_config(str(file) if file is not None else None, context)
    except ConfigError as error:
        raise ConnectionFailedError(str(error)) from error


class AsyncCluster:
    """Connection to one cluster; the methods are those of `Cluster`, each to be awaited.

    Use it as an asynchronous context manager, within one event loop. The arguments are those of `connect`.
    """

    def __init__(
        self,
        kubeconfig: str | Path | None = None,
        context: str | None = None,
        *,
        namespace: str | None = None,
        lease_namespace: str = "kube-system",
    ) -> None:
        self.config = find_config(kubeconfig, context)
        self.namespace = namespace or self.config.namespace
        self.lease_namespace = lease_namespace
        #: Kubeconfig for other programs; "" for the default or the service account of a pod.
        self.kubeconfig = str(kubeconfig_file(kubeconfig) or "")
        self._client: KubeClient | None = None

    @property
    def server(self) -> str:
        return self.config.server

    @property
    def client(self) -> KubeClient:
        """Client of the API server. Raises PhalanxError before the context is entered."""
        if self._client is None:
            raise PhalanxError("the connection is closed; use: async with AsyncCluster() as cluster")
        return self._client

    async def __aenter__(self) -> Self:
        from phalanx.kube.client import KubeClient

        with translated():
            self._client = KubeClient(self.config)
            try:
                await self._client.get("/version")
            except BaseException:
                await self.close()
                raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        if self._client is not None:
            await self._client.close()
            self._client = None

    # jobs

    async def submit(
        self,
        command: Sequence[str] | str | Path | None = None,
        *,
        name: str | None = None,
        manifest: Manifest | None = None,
        namespace: str | None = None,
        **options: Unpack[SubmitOptions],
    ) -> AsyncJob:
        """Create a job and return it.

        `command` is a list of words, a text for /bin/sh, or the Path of a script. It runs in each of `replicas`
        pods; see SubmitOptions for the other options. `manifest` is used instead of a command: a file, a YAML text,
        a dictionary or a list of these; its first job is returned.

        Raises InvalidArgumentError with the name of the argument, RequestRejectedError.
        """
        from phalanx.orders.submission.creation import create_all, job_reference, refuse_bad_job

        scope = namespace or self.namespace
        if isinstance(command, Path):
            if command.suffix in (".yaml", ".yml"):
                command, manifest = None, command
            else:
                command = script_command(command)
        if (command is None) == (manifest is None):
            raise InvalidArgumentError("set either a command or a manifest", field="command")
        with translated(name or ""):
            if command is not None:
                await self.check_image(options)
                documents = [command_job(command, name or generated_name("job"), options, scope)]
            elif wrong := ["name"] * (name is not None) + sorted(set(options) - _MANIFEST_OPTIONS):
                raise InvalidArgumentError(
                    f"{wrong[0]} excludes a manifest; set the field in the manifest", field=wrong[0]
                )
            else:
                assert manifest is not None
                documents = self._filled(manifest_objects(manifest), options)
            for document in documents:
                refuse_bad_job(document)
            created = await create_all(self.client, documents, scope)
        for document in created:
            if reference := job_reference(document):
                return self._job_of(document, reference)
        raise InvalidArgumentError("the manifest has no job and no PodGroup", field="manifest")

    async def check_image(self, options: Mapping[str, Any]) -> bool:
        """Return whether the pods are local processes, which have no image.

        Raises InvalidArgumentError if neither an image nor PHALANX_IMAGE is set and a node pulls images.
        """
        image = options.get("image") or os.environ.get("PHALANX_IMAGE")
        local = await self._runs_local_processes()
        if local is None:
            # The user must not list nodes.
            local = not image and urlsplit(self.server).hostname in ("127.0.0.1", "localhost", "::1")
        if not local and not image:
            raise InvalidArgumentError(
                "no image: set image= or the variable PHALANX_IMAGE (only `phalanx up --exec` runs jobs without)",
                field="image",
            )
        return local

    async def _runs_local_processes(self) -> bool | None:
        """Return whether the nodes are those of `phalanx up`; None if the user must not list nodes."""
        try:
            with translated():
                nodes = (await self.client.get("/api/v1/nodes", {"limit": 500})).get("items") or []
        except RequestRejectedError as error:
            if error.status != 403:
                raise
            return None
        runtimes = [
            str((node["status"].get("nodeInfo") or {}).get("containerRuntimeVersion") or "") for node in nodes
        ]
        return bool(runtimes) and all(runtime.startswith(_LOCAL_RUNTIME) for runtime in runtimes)

    def _filled(self, documents: list[Json], options: SubmitOptions) -> list[Json]:
        from phalanx.orders.submission.manifests import fill_in

        for document in documents:
            fill_in(
                document,
                queue=options.get("queue", ""),
                scheduler_name=options.get("scheduler", ""),
                priority_class=options.get("priority", ""),
            )
        return documents

    def _job_of(self, document: Json, reference: tuple[str, str, str]) -> AsyncJob:
        from phalanx.reports.jobs.job_report import found_job
        from phalanx.reports.jobs.kinds import RESOURCES

        resource = RESOURCES.get(reference[0])
        return AsyncJob(self, found_job(reference[0], document, resource, (), (), time.time()).entry)

    async def map_array(
        self,
        command: Sequence[str] | Callable[[Any], Sequence[str]],
        items: Iterable[Any],
        *,
        name: str | None = None,
        limit: int | None = None,
        namespace: str | None = None,
        **options: Unpack[SubmitOptions],
    ) -> AsyncJobArray:
        """Submit one job per item, at most `limit` unfinished at a time; see Cluster.map_array."""
        from phalanx.sdk.arrays import AsyncJobArray

        array = AsyncJobArray(self, command, list(items), name, limit, namespace, options)
        await array.start()
        return array

    async def job(self, name: str, *, namespace: str | None = None) -> AsyncJob:
        """Return the existing job with this name (NAME or KIND/NAME). Raises JobNotFoundError."""
        from phalanx.orders.found_job import find_job
        from phalanx.reports.jobs.job_report import JobReader
        from phalanx.reports.jobs.kinds import WORDS

        word, slash, rest = name.partition("/")
        kind, own_name = (WORDS[word.lower()], rest) if slash and word.lower() in WORDS else ("", name)
        with translated(name):
            reader = JobReader(self.client)
            return AsyncJob(self, (await find_job(reader, kind, own_name, namespace or self.namespace)).entry)

    async def jobs(
        self,
        *,
        namespace: str | None = None,
        all_namespaces: bool = False,
        queue: str | None = None,
        states: Sequence[str] = (),
        user: str | None = None,
    ) -> EntryList[GangEntry]:
        """Return the gangs and jobs, as `phalanx jobs -t all`; `states` are names such as "Pending"."""
        from phalanx.daemon.policy_file import dialect_options
        from phalanx.kube.core_resources import PODS
        from phalanx.reports.gangs.gang_list import gang_entries
        from phalanx.reports.jobs.job_report import JobReader
        from phalanx.reports.read_promises import read_promises
        from phalanx.views.gang_state import GangState

        known = {str(state).lower(): state for state in GangState}
        for state in states:
            if state.lower() not in known:
                raise InvalidArgumentError(
                    f"unknown state {state!r}; expected one of {', '.join(GangState)}", field="states"
                )
        wanted = {known[state.lower()] for state in states}
        with translated():
            policy, names = await self.read_policy()
            scope = None if all_namespaces else namespace or self.namespace
            reader = JobReader(self.client)
            jobs = await reader.jobs(scope, time.time(), loose=names)
            if PODS in reader.forbidden:
                message = f"request rejected by the API server: {reader.forbidden[PODS]}"
                raise RequestRejectedError(message, about="pods", status=403)
            promises = await read_promises(self.client, self.lease_namespace, names)
            entries = gang_entries(jobs, dialect_options(policy), promises)
        return EntryList(
            (
                entry
                for entry in entries
                if (not wanted or entry.state in wanted)
                and queue in (None, entry.queue)
                and user in (None, entry.user)
            ),
            _GANG_COLUMNS,
        )

    # cluster

    async def queues(self) -> EntryList[QueueEntry]:
        """Return the queues with their limits and usage, as `phalanx queue list`."""
        from phalanx.daemon.policy_file import dialect_options
        from phalanx.reports.queue_report import report
        from phalanx.reports.read_promises import read_promises
        from phalanx.reports.snapshot import read_cluster
        from phalanx.reports.stored_usage import read_usage

        with translated():
            policy, names = await self.read_policy()
            snapshot = await read_cluster(self.client, names, dialect_options(policy), self.lease_namespace)
            await read_usage(self.client, snapshot, policy, self.lease_namespace, names)
            promises = await read_promises(self.client, self.lease_namespace, names)
        return EntryList(report(snapshot, policy, time.time(), promises).queues, _QUEUE_COLUMNS)

    async def nodes(self, selector: str = "") -> EntryList[NodeEntry]:
        """Return the nodes with their state and free resources, as `phalanx nodes`."""
        from phalanx.daemon.policy_file import dialect_options
        from phalanx.reports.nodes.node_list import read_nodes
        from phalanx.reports.stored_history import read_backoffs

        with translated():
            policy, names = await self.read_policy()
            backoffs = await read_backoffs(self.client, self.lease_namespace, names)
            listed = await read_nodes(
                self.client, selector, "", dialect_options(policy), lambda *counts: None, backoffs.entries
            )
        return EntryList(listed, _NODE_COLUMNS)

    async def what_if(self, **change: Unpack[Change]) -> WhatIfAnswer:
        """Predict the effect of a new job or another change, as `phalanx what-if`; see Change."""
        from phalanx.sdk.questions import predict

        return await predict(self, change)

    async def reserve(self, name: str, **options: Any) -> ReservationEntry:
        """Create an advance reservation and return it, with name, phase, start, end, nodes and reason
        (docs/advance-reservations.md).

        The room is `count` pods with `cpus`, `memory` and `gpus` each, or whole `nodes` (names). The time is
        `start`, or `not_before`, with `duration` or `end`. `owners` may use it; default: pods of this namespace.
        """
        from phalanx.sdk.questions import reserve

        return await reserve(self, name, **options)

    async def read_policy(self) -> tuple[Policy, tuple[str, ...]]:
        """Return the policy of the scheduler and the names of the schedulers."""
        from phalanx.reports.scheduler_policy import SchedulerPolicy

        with translated():
            found = await SchedulerPolicy("").read(self.client, self.lease_namespace, ())
        return found.policy, found.scheduler_names

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.server}, namespace {self.namespace}>"

    def _repr_html_(self) -> str:
        from html import escape

        return f"<b>{escape(self.server)}</b>, namespace {escape(self.namespace)}"
