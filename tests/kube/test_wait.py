"""Waiting ends when the state is reached, when time is up, or when the question itself fails."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from phalanx.kube.changes import Key
from phalanx.kube.client import KubeClient
from phalanx.kube.paths import Resource
from phalanx.kube.wait import wait_until

from .stub_server import StubServer, Watch, event, page, thing

PODS = Resource("", "v1", "pods", "Pod")
PATH = "/api/v1/namespaces/ns/pods"


def all_red(objects: Mapping[Key, dict[str, Any]]) -> bool:
    return len(objects) == 2 and all(obj["color"] == "red" for obj in objects.values())


async def test_wait_ends_when_the_condition_holds(server: StubServer, client: KubeClient) -> None:
    server.on(
        "GET", PATH, page(3, thing("a", 1, color="red"), thing("x", 2, color="red"), thing("b", 3, color="?"))
    )
    changes = (event("DELETED", thing("x", 4, color="red")), event("MODIFIED", thing("b", 5, color="red")))
    server.on("GET", PATH, Watch(changes), watch=True)
    objects = await wait_until(client, PODS, all_red, seconds=5, namespace="ns", label_selector="a=b")
    assert sorted(objects) == [("ns", "a"), ("ns", "b")]
    assert server.requests[0].query["labelSelector"] == "a=b"


async def test_half_a_list_is_not_judged(server: StubServer, client: KubeClient) -> None:
    server.on("GET", PATH, page(3, token="t"), page(3, thing("a", 1)))
    server.on("GET", PATH, Watch((event("DELETED", thing("a", 4)),)), watch=True)
    assert await wait_until(client, PODS, lambda objects: not objects, seconds=5, namespace="ns") == {}
    assert len(server.requests) == 3


async def test_time_runs_out(server: StubServer, client: KubeClient) -> None:
    server.on("GET", PATH, page(3, thing("a", 1, color="?")))
    server.on("GET", PATH, Watch(), watch=True)
    with pytest.raises(TimeoutError, match=r"pods: not reached within 0.05 s \(watching, 1 objects\)"):
        await wait_until(client, PODS, all_red, seconds=0.05, namespace="ns")


async def test_the_question_fails(server: StubServer, client: KubeClient) -> None:
    server.on("GET", PATH, page(3, thing("a", 1), thing("b", 2)))
    with pytest.raises(KeyError, match="color"):
        await wait_until(client, PODS, all_red, seconds=5, namespace="ns")
