"""Way from the client to the hub: the address of its pod, or a forwarded port of this machine."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import os
import re
import shutil
from collections.abc import AsyncIterator
from typing import Any

from phalanx.sdk.errors import GangUnreachableError
from phalanx.sdk.gang.settings import PORT

DIRECT, PORT_FORWARD = "direct", "port-forward"
_FORWARDING = re.compile(rb"Forwarding from 127\.0\.0\.1:(\d+)")
_START_SECONDS = 20.0


def way_to(address: str) -> str:
    """Return DIRECT for an address that this process reaches itself: in a pod, or of a local process."""
    inside = bool(os.environ.get("KUBERNETES_SERVICE_HOST"))
    return DIRECT if inside or ipaddress.ip_address(address).is_loopback else PORT_FORWARD


@contextlib.asynccontextmanager
async def reached(
    pod: dict[str, Any], way: str, kubeconfig: str, context: str, port: int = PORT
) -> AsyncIterator[tuple[str, int]]:
    """Yield host and port by which the port of a pod is reached. Raises GangUnreachableError without kubectl."""
    address = pod["status"]["podIP"]
    name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
    if (way or way_to(address)) == DIRECT:
        yield address, port
        return
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        raise GangUnreachableError(
            f"the gang's pod {namespace}/{name} ({address}) is not reachable from here: install kubectl, whose "
            'port-forward is used, run this program in a pod, or set way="direct" if pods are reachable',
            about=f"pod/{name}",
        )
    words = [kubectl, "port-forward", "--address", "127.0.0.1", "-n", namespace, f"pod/{name}", f":{port}"]
    words += ["--kubeconfig", kubeconfig] if kubeconfig else []
    words += ["--context", context] if context else []
    process = await asyncio.create_subprocess_exec(
        *words,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    try:
        yield "127.0.0.1", await _forwarded_port(process, name)
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        await process.wait()


async def _forwarded_port(process: asyncio.subprocess.Process, pod: str) -> int:
    assert process.stdout is not None
    assert process.stderr is not None
    line = b""
    with contextlib.suppress(TimeoutError):
        line = await asyncio.wait_for(process.stdout.readline(), _START_SECONDS)
    match = _FORWARDING.search(line)
    if match is None:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        cause = (await process.stderr.read()).decode("utf-8", "replace").strip() or "no answer"
        raise GangUnreachableError(f"kubectl port-forward to pod {pod} failed: {cause}", about=f"pod/{pod}")
    return int(match[1])
