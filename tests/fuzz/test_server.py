"""For any request, the API server answers in Kubernetes' words: no 500, and the next request is served."""

from __future__ import annotations

import gc
import json
import logging
import re
from random import Random
from typing import Any

import pytest

from tests.phalanx_local.client import CONFIG_MAPS, NODES, PODS, Client, config_map
from tests.phalanx_local.client import pod as small_pod
from tests.phalanx_local.conftest import client, clock, server  # noqa: F401 - fixtures

from .hostile import TEXTS, mutated, node, pod, value

PATCHES = (
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
)
QUERIES = (
    *("labelSelector", "fieldSelector", "limit", "continue", "resourceVersion", "resourceVersionMatch", "dryRun"),
    *("fieldManager", "force", "fieldValidation", "gracePeriodSeconds", "propagationPolicy", "pretty"),
)
PATHS = ("", "a", "a/status", "a/binding", "a/eviction", "a/scale", "a/log", "..", "%00", "a%2fb")
HOMES = (
    PODS,
    NODES,
    CONFIG_MAPS,
    "/api/v1/namespaces",
    "/api/v1/namespaces/default/resourcequotas",
    "/api/v1/namespaces/default/services",
    "/api/v1/namespaces/default/persistentvolumeclaims",
    "/apis/policy/v1/namespaces/default/poddisruptionbudgets",
    "/apis/apps/v1/namespaces/default/deployments",
    "/apis/batch/v1/namespaces/default/jobs",
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
    "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims",
    "/apis/scheduling.k8s.io/v1/priorityclasses",
    "/apis/coordination.k8s.io/v1/namespaces/default/leases",
)


def document(rng: Random, home: str) -> Any:
    made: dict[str, Any] = pod(rng) if home == PODS or rng.random() < 0.3 else node(rng)
    made["metadata"] |= {"name": rng.choice(("a", "b")), "namespace": "default"}
    if rng.random() < 0.5:
        made["spec"] = {
            "template": {"metadata": made["metadata"], "spec": made["spec"]},
            "replicas": 1,
            "parallelism": 2,
        }
    return mutated(rng, made, 4)


def operation(rng: Random) -> dict[str, Any]:
    paths = (
        "",
        "/metadata/labels",
        "/spec/containers/0",
        "/spec/containers/-",
        "/a/b",
        "/metadata/name",
        "/data/~1",
    )
    kinds = ("add", "remove", "replace", "move", "copy", "test", "x")
    return {
        "op": rng.choice(kinds),
        "path": rng.choice((*paths, *TEXTS)),
        "from": rng.choice(paths),
        "value": value(rng),
    }


async def request(rng: Random, client: Client) -> tuple[str, int, Any]:  # noqa: F811 - the fixture
    home, sub = rng.choice(HOMES), rng.choice(PATHS)
    method = rng.choice(("GET", "POST", "PUT", "PATCH", "PATCH", "DELETE"))
    path = f"{home}/{sub}" if (sub and method != "POST") or rng.random() < 0.1 else home
    media = rng.choice(PATCHES) if method == "PATCH" else rng.choice(("application/json", "application/yaml"))
    body: bytes | None = None
    if method not in ("GET", "DELETE"):
        made = [operation(rng) for _ in range(3)] if media == PATCHES[0] else document(rng, home)
        body = json.dumps(made).encode("utf-8", "replace")
        if rng.random() < 0.15:
            at = rng.randrange(len(body))
            body = body[:at] + bytes([rng.randrange(256)]) + body[at + 1 :]
    query = {rng.choice(QUERIES): rng.choice(TEXTS)[:2000] for _ in range(rng.randrange(3))}
    reply = await client.call(method, path, body, content_type=media, headers=None, **query)
    return f"{method} {path} {query} {media} {body!r:.600}", reply.status, reply.body


async def play(seed: int, requests: int, client: Client) -> None:  # noqa: F811
    rng = Random(seed)
    for each in (config_map("a"), config_map("b")):
        await client.call("POST", CONFIG_MAPS, each)
    await client.call("POST", PODS, small_pod("a"))
    for number in range(requests):
        what, status, body = await request(rng, client)
        # Some mistakes are 500 upstream as well; one that names our exception is a bug.
        told = str(body.get("message", "")) if isinstance(body, dict) else ""
        assert status < 500 or not re.match(r"\w+(Error|Exception): ", told), (
            f"seed {seed}, {number}: {what}: {body}"
        )
    await client.call("DELETE", f"{CONFIG_MAPS}/canary")
    await client.create(CONFIG_MAPS, config_map("canary"))


@pytest.mark.parametrize("seed", range(3))
async def test_any_request_gets_an_answer(seed: int, client: Client, caplog: pytest.LogCaptureFixture) -> None:  # noqa: F811
    await play(seed, 150, client)
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR] == []


@pytest.mark.slow
@pytest.mark.timeout(1800)
async def test_twenty_thousand_requests(client: Client, caplog: pytest.LogCaptureFixture) -> None:  # noqa: F811
    # Warnings of an earlier test's leftovers appear now, and are not the server's.
    gc.collect()
    caplog.clear()
    for seed in range(100, 200):
        await play(seed, 200, client)
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR] == []
