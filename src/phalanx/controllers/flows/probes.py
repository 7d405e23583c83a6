"""Probes of a task's pods, on which the steps of a JobFlow can depend.

The author of a flow chooses port, path and header, and learns whether there was an answer. So only pods of that job
are probed, only at pod addresses (never in a node's network), and redirects are not followed.
"""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import aiohttp
from yarl import URL

from phalanx.jobs.flow import ProbeQuestion
from phalanx.jobs.members import JOB_NAME, TASK_SPEC
from phalanx.kube.client import KubeClient
from phalanx.kube.core_resources import PODS
from phalanx.model.pod_quota import mapping, sequence, text

_SECONDS = 1.0
_AT_A_TIME = 16


class PodProbes:
    """Prober of a task's pods; `client` lists the pods, `ask` probes one pod at its address."""

    def __init__(
        self, client: KubeClient, ask: Callable[[str, ProbeQuestion], Awaitable[bool]] | None = None
    ) -> None:
        self._client = client
        self._ask = ask or answers

    async def holds(self, namespace: str, question: ProbeQuestion) -> bool:
        """Return whether all pods of the probed task exist and answer the probe."""
        if not 0 < question.port < 65536:
            return False
        selector = f"{JOB_NAME}={question.job}"
        listed = await self._client.list_all(PODS.path(namespace), {"labelSelector": selector})
        pods = [pod for pod in sequence(listed.get("items")) if _belongs_to_task(mapping(pod), question)]
        addresses = [_address(pod) for pod in pods]
        if len(addresses) < max(1, question.replicas) or None in addresses:
            return False
        known_addresses = [address for address in addresses if address is not None]
        for begin in range(0, len(known_addresses), _AT_A_TIME):
            asked = (self._ask(address, question) for address in known_addresses[begin : begin + _AT_A_TIME])
            if not all(await asyncio.gather(*asked)):
                return False
        return True


def _belongs_to_task(pod: Mapping[str, Any], question: ProbeQuestion) -> bool:
    metadata = mapping(pod.get("metadata"))
    owners = [mapping(owner) for owner in sequence(metadata.get("ownerReferences"))]
    notes, labels = mapping(metadata.get("annotations")), mapping(metadata.get("labels"))
    return (
        any(owner.get("controller") is True and owner.get("uid") == question.job_uid for owner in owners)
        and (notes.get(TASK_SPEC) or labels.get(TASK_SPEC)) == question.task
        and "deletionTimestamp" not in metadata
    )


def _address(pod: Mapping[str, Any]) -> str | None:
    """Return the IP address of a running pod; None if it uses the network of its node."""
    status = mapping(pod.get("status"))
    if mapping(pod.get("spec")).get("hostNetwork") or status.get("phase") != "Running":
        return None
    written = text(status.get("podIP"))
    try:
        address = ipaddress.ip_address(written)
    except ValueError:
        return None
    address = getattr(address, "ipv4_mapped", None) or address
    is_special = address.is_loopback or address.is_link_local or address.is_multicast or address.is_unspecified
    # The address of the node is not the pod's own, even if the spec says so.
    return None if is_special or written == status.get("hostIP") else str(address)


async def answers(address: str, question: ProbeQuestion) -> bool:
    """Return whether the pod at an address answers a probe: a TCP connection, or a GET if the probe has a path."""
    return await (_accepts_connection if question.path is None else _answers_get)(address, question)


async def _accepts_connection(address: str, question: ProbeQuestion) -> bool:
    try:
        async with asyncio.timeout(_SECONDS):
            _, writer = await asyncio.open_connection(address, question.port)
    except (OSError, TimeoutError):
        return False
    writer.close()
    return True


async def _answers_get(address: str, question: ProbeQuestion) -> bool:
    """Return whether a pod answers a GET with a status from 200 to 399, like kubelet probes. The body is not
    read."""
    path, _, query = (question.path or "/").partition("?")
    headers = dict([question.header]) if question.header is not None else {}
    timeout = aiohttp.ClientTimeout(total=_SECONDS)
    try:
        url = URL.build(
            scheme="http",
            host=address,
            port=question.port,
            path=path if path.startswith("/") else f"/{path}",
            query_string=query,
        )
        async with (
            aiohttp.ClientSession(timeout=timeout, trust_env=False) as session,
            session.get(url, headers=headers, allow_redirects=False) as answer,
        ):
            return 200 <= answer.status < 400
    except (aiohttp.ClientError, OSError, TimeoutError, ValueError):
        return False
