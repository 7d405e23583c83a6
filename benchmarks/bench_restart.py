"""How long the scheduler takes from its start to its first binding in a cluster that is already full.

By default 5,000 nodes, 140,000 running pods of 70,000 gangs with their PodGroups (scheduler-plugins'), and one gang
that waits. The API server is the embedded one, in a process of its own, filled without HTTP. Run with
``python -m benchmarks.bench_restart``.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import datetime
import multiprocessing
import resource
import tempfile
import time
import uuid
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from benchmarks.figures import record
from phalanx.daemon.garbage_collection import until_ready
from phalanx.daemon.service import SchedulerOptions, SchedulerService
from phalanx.kube.auth.config import load_config
from phalanx.kube.client import KubeClient
from phalanx.kube.paths import Resource

PODS = Resource("", "v1", "pods", "Pod")
# Seconds after the start until everything is told, and over which it is looked at rest.
SETTLE = 10.0
REST = 10.0
NAMESPACES = 20
CREATED = "2026-11-20T10:00:00Z"
GROUP = "scheduling.x-k8s.io"
LABEL = "scheduling.x-k8s.io/pod-group"


def node(number: int) -> dict[str, Any]:
    name = f"node-{number:05d}"
    return {
        "metadata": _metadata(name, "", {"kubernetes.io/hostname": name}),
        "spec": {},
        "status": {
            "allocatable": {"cpu": "256", "memory": "2Ti", "nvidia.com/gpu": "64", "pods": "250"},
            "capacity": {"cpu": "256", "memory": "2Ti", "nvidia.com/gpu": "64", "pods": "250"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }  # fmt: skip


def group(number: int, size: int) -> dict[str, Any]:
    return {
        "metadata": _metadata(f"train-{number}", _namespace(number)),
        "spec": {"minMember": size},
        "status": {"phase": "Running", "running": size, "occupiedBy": f"{_namespace(number)}/train-{number}"},
    }


def pod(gang: int, member: int, host: str) -> dict[str, Any]:
    """As an API server stores one that a Job has made and a kubelet runs: about 4 kB."""
    name, job = f"train-{gang}-worker-{member}", f"train-{gang}"
    metadata = _metadata(name, _namespace(gang), {LABEL: job, "app": "train", "batch.kubernetes.io/job-name": job})
    owner = str(uuid.uuid5(uuid.NAMESPACE_OID, job))
    metadata["ownerReferences"] = [
        {"apiVersion": "batch/v1", "kind": "Job", "name": job, "uid": owner, "controller": True}
    ]
    metadata["managedFields"] = [
        {
            "manager": manager,
            "operation": "Update",
            "apiVersion": "v1",
            "time": CREATED,
            "fieldsType": "FieldsV1",
            "fieldsV1": {"f:metadata": {f"f:field-{n}": {f"f:value-{n}": {}} for n in range(25)}},
        }
        for manager in ("kube-controller-manager", "kubelet")
    ]
    amounts = {"cpu": "4", "memory": f"{8 + gang % 16}Gi", "nvidia.com/gpu": "1"}
    access = f"kube-api-access-{metadata['uid'][:5]}"
    path = "/var/run/secrets/kubernetes.io/serviceaccount"
    conditions = [
        {"type": kind, "status": "True", "lastProbeTime": None, "lastTransitionTime": CREATED}
        for kind in ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")
    ]
    return {
        "metadata": metadata,
        "spec": {
            "volumes": [
                {
                    "name": access,
                    "projected": {
                        "sources": [
                            {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
                            {"configMap": {"name": "kube-root-ca.crt"}},
                        ],
                        "defaultMode": 420,
                    },
                }
            ],
            "containers": [
                {
                    "name": "worker",
                    "image": "train:1.2.3",
                    "command": ["python", "-m", "train"],
                    "resources": {"limits": amounts, "requests": amounts},
                    "volumeMounts": [{"name": access, "readOnly": True, "mountPath": path}],
                    "imagePullPolicy": "IfNotPresent",
                }
            ],
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 30,
            "serviceAccountName": "default",
            "schedulerName": "phalanx",
            "tolerations": [
                {"key": f"node.kubernetes.io/{what}", "operator": "Exists", "effect": "NoExecute"}
                for what in ("not-ready", "unreachable")
            ],
            "priority": 0,
            **({"nodeName": host} if host else {}),
        },
        "status": {
            "phase": "Running",
            "conditions": conditions,
            "hostIP": "10.0.0.1",
            "podIP": "10.1.2.3",
            "startTime": CREATED,
            "containerStatuses": [
                {"name": "worker", "ready": True, "restartCount": 0, "imageID": "sha256:" + "a" * 64}
            ],
            "qosClass": "Guaranteed",
        }
        if host
        else {"phase": "Pending"},
    }  # fmt: skip


def _metadata(name: str, namespace: str, labels: dict[str, str] | None = None) -> dict[str, Any]:
    uid = str(uuid.uuid5(uuid.NAMESPACE_OID, f"{namespace}/{name}"))
    where = {"namespace": namespace} if namespace else {}
    return {"name": name, **where, "uid": uid, "creationTimestamp": CREATED, "labels": labels or {}}


def _namespace(gang: int) -> str:
    return f"team-{gang % NAMESPACES}"


def serve(pipe: Connection, nodes: int, pods: int, size: int, kubeconfig: str) -> None:
    """The process of the API server; sends a word when it is full, and ends when the pipe is closed."""
    asyncio.run(serve_filled(pipe, nodes, pods, size, kubeconfig, lambda server, change: None))


async def serve_filled(
    pipe: Connection, nodes: int, pods: int, size: int, kubeconfig: str, apply: Callable[[Any, Any], None]
) -> None:
    """Fill an API server, send a word, and apply each received change to the server until the pipe is closed."""
    from phalanx.cli.installation.install import all_rights, install_into
    from phalanx.cli.installation.manifests import definitions, volcano_queues
    from phalanx_local.options import ServerOptions
    from phalanx_local.server import ApiServer

    server = ApiServer(ServerOptions(controllers=frozenset(), insecure=True, native_groups="none"))
    await server.start()
    server.write_kubeconfig(kubeconfig)
    async with KubeClient(load_config(kubeconfig)) as client:
        await install_into(client, definitions(), all_rights("phalanx", "phalanx-system"), volcano_queues(), 60.0)

    def fill(api_group: str, plural: str, objects: Any) -> None:
        found = server.registry.find(api_group, plural)
        assert found is not None, plural
        collection = server.api.collection(found)
        for each in objects:
            server.store.put(collection, each, None)

    fill("", "namespaces", ({"metadata": _metadata(_namespace(n), "")} for n in range(NAMESPACES)))
    fill("", "nodes", map(node, range(nodes)))
    gangs = pods // size
    fill(GROUP, "podgroups", (group(n, size) for n in range(gangs)))
    fill(
        "",
        "pods",
        (pod(n, m, f"node-{(n * size + m) % nodes:05d}") for n in range(gangs) for m in range(size)),
    )
    fill(GROUP, "podgroups", [group(gangs, size)])
    fill("", "pods", [pod(gangs, m, "") for m in range(size)])
    pipe.send("full")
    with contextlib.suppress(EOFError):
        while True:
            apply(server, await asyncio.get_running_loop().run_in_executor(None, pipe.recv))
    await server.stop()


async def measure(kubeconfig: str, waiting: list[str]) -> dict[str, float]:
    """Seconds from the start to readiness, and until all `waiting` (uids) are bound, CPU
    seconds until then, the share of a CPU that it takes afterwards, and megabytes."""
    async with KubeClient(load_config(kubeconfig)) as client:
        begun, cpu = time.perf_counter(), time.process_time()
        service = SchedulerService(client, SchedulerOptions())
        running = asyncio.create_task(service.run())
        await until_ready(service.ready)
        ready = time.perf_counter() - begun
        pods = service.state.pods
        while not all(pods[uid].pod.node for uid in waiting):  # noqa: ASYNC110 - the state has no event to await
            await asyncio.sleep(0.01)
        bound, used = time.perf_counter() - begun, time.process_time() - cpu
        await asyncio.sleep(SETTLE)
        rest_cpu, rest = time.process_time(), time.perf_counter()
        await asyncio.sleep(REST)
        idle = (time.process_time() - rest_cpu) / (time.perf_counter() - rest)
        service.stop()
        await running
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"ready": ready, "bound": bound, "cpu": used, "idle": idle, "memory": memory}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--nodes", type=int, default=5_000)
    parser.add_argument("--pods", type=int, default=140_000)
    parser.add_argument("--gang", type=int, default=2)
    options = parser.parse_args()
    gangs = options.pods // options.gang
    print(f"{datetime.date.today()}, {options.nodes} nodes, {options.pods} pods, {gangs} PodGroups", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        kubeconfig = str(Path(folder) / "kubeconfig")
        ours, theirs = multiprocessing.Pipe()
        arguments = (theirs, options.nodes, options.pods, options.gang, kubeconfig)
        server = multiprocessing.get_context("spawn").Process(target=serve, args=arguments, daemon=True)
        server.start()
        theirs.close()
        ours.recv()
        waiting = [pod(gangs, member, "")["metadata"]["uid"] for member in range(options.gang)]
        found = asyncio.run(measure(kubeconfig, waiting))
        ours.close()
        server.join(10)
    print(f"{found['ready']:7.1f} s until it schedules")
    print(f"{found['bound']:7.1f} s until the gang that waited is bound, {found['cpu']:.1f} s of them CPU")
    of = f"{options.nodes} nodes, {options.pods} pods"
    record(__file__, f"start to the first binding, {of}", found["bound"], "s")
    record(__file__, f"CPU of it, {of}", found["cpu"], "s")
    record(__file__, f"memory, {of}", found["memory"], "MB")
    record(__file__, f"CPU at rest, {of}", 100 * found["idle"], "%")
    print(f"{found['memory']:7.0f} MB at most, {found['idle']:.1%} of a CPU at rest")


if __name__ == "__main__":
    main()
