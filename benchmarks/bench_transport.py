"""What the Kubernetes client costs: CPU microseconds per binding, per listed pod and per watch event.

The server is a raw asyncio protocol in a process of its own, pinned to another core where the system lets us,
so that the client is what is measured. CPU time is the figure to trust; the rate is wall clock. Run with
``python -m benchmarks.bench_transport``.
"""

from __future__ import annotations

import asyncio
import datetime
import multiprocessing
import os
import platform
import ssl
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path

import msgspec

from benchmarks.figures import record
from phalanx.kube.auth.config import ClusterConfig
from phalanx.kube.auth.tls import TlsSettings
from phalanx.kube.changes import Change, Upsert
from phalanx.kube.client import KubeClient
from phalanx.kube.http.connections import Transports, aiohttp_transport, default_transport
from phalanx.kube.paths import Resource
from phalanx.kube.reflector import Reflector

PODS = Resource("", "v1", "pods", "Pod")
BINDINGS = 20_000
CONCURRENCY = 64
LISTED = 20_000
EVENTS = 20_000
PAGE = 500
ROUNDS = 3
TRANSPORTS: dict[str, Transports] = {"own": default_transport, "aiohttp": aiohttp_transport}


class Metadata(msgspec.Struct, rename="camel"):
    name: str
    namespace: str
    uid: str
    resource_version: str
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}


class Resources(msgspec.Struct):
    requests: dict[str, str] = {}


class Container(msgspec.Struct):
    name: str
    resources: Resources = msgspec.field(default_factory=Resources)


class Spec(msgspec.Struct, rename="camel"):
    containers: list[Container]
    node_name: str = ""
    scheduler_name: str = ""
    priority: int = 0
    tolerations: list[dict[str, str | int]] = []


class Pod(msgspec.Struct):
    """The part of a pod that a scheduler reads; the rest of the 5 kB is skipped."""

    metadata: Metadata
    spec: Spec


def pod(number: int, version: int) -> bytes:
    """About 5 kB, four tenths of it managed fields, as in a real cluster."""
    managed: dict[str, object] = {"f:metadata": {f"f:label-{n}": {f"f:value-{n}": {}} for n in range(55)}}
    return msgspec.json.encode(
        {
            "metadata": {
                "name": f"worker-{number}",
                "namespace": "training",
                "uid": f"5f0c7c1e-0000-4000-8000-{number:012d}",
                "resourceVersion": str(version),
                "labels": {f"example.com/label-{n}": f"value-{n}" for n in range(6)},
                "annotations": {"example.com/note": "x" * 200},
                "managedFields": [{"manager": "controller", "operation": "Update", "fieldsV1": managed}],
            },
            "spec": {
                "containers": [
                    {
                        "name": "main",
                        "image": "images.example/train:1",
                        "resources": {"requests": {"cpu": "4", "memory": "8Gi", "nvidia.com/gpu": "1"}},
                        "env": [{"name": f"SETTING_{n}", "value": f"value number {n}"} for n in range(25)],
                        "volumeMounts": [{"name": "token", "mountPath": "/var/run/secrets/token"}],
                    }
                ],
                "nodeName": f"node-{number % 1000}",
                "schedulerName": "phalanx",
                "priority": 100,
                "tolerations": [
                    {"key": f"node.kubernetes.io/{word}", "operator": "Exists", "tolerationSeconds": 300}
                    for word in ("not-ready", "unreachable")
                ],
            },
            "status": {
                "phase": "Running",
                "conditions": [
                    {"type": word, "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
                    for word in ("Initialized", "Ready", "ContainersReady", "PodScheduled")
                ],
            },
        }
    )


class Server(asyncio.Protocol):
    """Answers every POST with a Status, a list with pages of pods, a watch with events and then an end."""

    def __init__(self, pods: list[bytes], changed: list[bytes]) -> None:
        self._pods = pods
        self._changed = changed
        self._buffer = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while (end := self._buffer.find(b"\r\n\r\n")) >= 0:
            at = self._buffer.find(b"Content-Length: ", 0, end)
            length = int(self._buffer[at + 16 : self._buffer.index(b"\r\n", at)]) if at >= 0 else 0
            if len(self._buffer) < end + 4 + length:
                return
            target = self._buffer.split(b" ", 2)[1]
            self._buffer = self._buffer[end + 4 + length :]
            self._answer(target)

    def _answer(self, target: bytes) -> None:
        assert self._transport is not None
        if b"watch=true" in target:
            events = b"".join(b'{"type":"MODIFIED","object":%b}\n' % one for one in self._changed)
            head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
            self._transport.write(head)
            for start in range(0, len(events), 8192):
                piece = events[start : start + 8192]
                self._transport.write(b"%x\r\n%b\r\n" % (len(piece), piece))
            self._transport.write(b"0\r\n\r\n")
            self._transport.close()
            return
        if b"limit=" in target:
            first = int(target.partition(b"continue=")[2].partition(b"&")[0] or b"0")
            token = b',"continue":"%d"' % (first + PAGE) if first + PAGE < LISTED else b""
            items = b",".join(self._pods[first : first + PAGE])
            body = b'{"kind":"PodList","metadata":{"resourceVersion":"%d"%b},"items":[%b]}' % (LISTED, token, items)
            status = b"200 OK"
        else:
            body = b'{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Success","code":201}'
            status = b"201 Created"
        self._transport.write(
            b"HTTP/1.1 %b\r\nAudit-Id: 7f6c2d1e-0000-4000-8000-000000000000\r\nCache-Control: no-cache, private\r\n"
            b"Content-Type: application/json\r\nDate: Thu, 01 Jan 2026 00:00:00 GMT\r\nContent-Length: %d\r\n\r\n%b"
            % (status, len(body), body)
        )


def serve(pipe: Connection, chain: str | None) -> None:
    pin(-1)
    pods = [pod(number, number + 1) for number in range(LISTED)]
    changed = [pod(number, LISTED + number + 1) for number in range(EVENTS)]
    context = None
    if chain is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(chain)

    async def main() -> None:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: Server(pods, changed), "127.0.0.1", 0, ssl=context)
        pipe.send(server.sockets[0].getsockname()[1])
        await loop.run_in_executor(None, pipe.recv)

    with suppress(EOFError):
        asyncio.run(main())


def pin(which: int) -> None:
    """The client on the first core and the server on the last, where cores can be chosen."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[which]})


async def bind(client: KubeClient) -> int:
    """Bind as the executor does: one POST per binding, with a limit of concurrent requests."""
    waiting = iter(range(BINDINGS))

    async def worker() -> None:
        for number in waiting:
            body = msgspec.json.encode(
                {
                    "apiVersion": "v1",
                    "kind": "Binding",
                    "metadata": {"name": f"worker-{number}", "namespace": "training", "uid": f"uid-{number}"},
                    "target": {"apiVersion": "v1", "kind": "Node", "name": f"node-{number % 1000}"},
                }
            )
            await client.request("POST", PODS.path("training", f"worker-{number}", "binding"), body=body)

    await asyncio.gather(*(worker() for _ in range(CONCURRENCY)))
    return BINDINGS


async def reflect(client: KubeClient, until: Callable[[Change[Pod]], bool]) -> None:
    done = asyncio.Event()

    def sink(change: Change[Pod]) -> None:
        if until(change):
            done.set()

    task = asyncio.create_task(
        Reflector(client, PODS, msgspec.json.Decoder(Pod).decode, sink, page_size=PAGE).run()
    )
    await done.wait()
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


async def list_pods(client: KubeClient) -> int:
    """A reflector's first list, typed, page by page."""
    await reflect(client, lambda change: not isinstance(change, Upsert))
    return LISTED


async def watch_pods(client: KubeClient) -> int:
    """A list and then a watch that changes every pod; the list is measured apart and taken off."""
    last = str(LISTED + EVENTS)
    await reflect(
        client, lambda change: isinstance(change, Upsert) and change.object.metadata.resource_version == last
    )
    return EVENTS


async def measured(
    work: Callable[[KubeClient], Awaitable[int]], config: ClusterConfig, transports: Transports
) -> tuple[float, float, int]:
    async with KubeClient(config, max_connections=CONCURRENCY, transports=transports) as client:
        await client.get("/version")
        cpu, wall = time.process_time(), time.perf_counter()
        count = await work(client)
        return time.process_time() - cpu, time.perf_counter() - wall, count


def best(
    work: Callable[[KubeClient], Awaitable[int]], config: ClusterConfig, transports: Transports
) -> tuple[float, float, int]:
    return min(asyncio.run(measured(work, config, transports)) for _ in range(ROUNDS))


def certificate(directory: Path) -> tuple[str, bytes]:
    """A self-signed certificate for loopback: the file for the server, the authority for the client."""
    from ipaddress import ip_address

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "bench")])
    now = datetime.datetime.now(datetime.UTC)
    pem = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
        .public_bytes(serialization.Encoding.PEM)
    )
    chain = directory / "server.pem"
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    chain.write_bytes(private + pem)
    return str(chain), pem


def main() -> None:
    pin(0)
    print(f"Python {platform.python_version()}, {os.cpu_count()} CPUs, {len(pod(1, 1))} bytes per pod")
    with tempfile.TemporaryDirectory() as directory:
        chain, authority = certificate(Path(directory))
        for scheme in ("http", "https"):
            ours, theirs = multiprocessing.Pipe()
            process = multiprocessing.get_context("spawn").Process(
                target=serve, args=(theirs, chain if scheme == "https" else None), daemon=True
            )
            process.start()
            config = ClusterConfig(
                f"{scheme}://127.0.0.1:{ours.recv()}", tls=TlsSettings(authority=authority, origin="bench")
            )
            for name, transports in TRANSPORTS.items():
                report(scheme, name, config, transports)
            ours.send("stop")
            process.join(10)


def report(scheme: str, name: str, config: ClusterConfig, transports: Transports) -> None:
    cpu, wall, count = best(bind, config, transports)
    print(f"{scheme:5} {name:8} bind   {cpu / count * 1e6:6.1f} us CPU each  {count / wall:8,.0f}/s")
    record(__file__, f"{scheme}, {name}: binding", cpu / count * 1e6, "us CPU")
    listing, wall, count = best(list_pods, config, transports)
    print(f"{scheme:5} {name:8} list   {listing / count * 1e6:6.1f} us CPU each  {count / wall:8,.0f}/s")
    record(__file__, f"{scheme}, {name}: listed pod", listing / count * 1e6, "us CPU")
    cpu, wall, count = best(watch_pods, config, transports)
    record(__file__, f"{scheme}, {name}: watched pod", (cpu - listing) / count * 1e6, "us CPU")
    print(f"{scheme:5} {name:8} watch  {(cpu - listing) / count * 1e6:6.1f} us CPU each")


if __name__ == "__main__":
    main()
