"""Both forms of discovery list the served kinds, and a broken group affects only itself."""

from __future__ import annotations

import pytest

from phalanx.kube.client import KubeClient
from phalanx.kube.discovery import AGGREGATED, Discovery, discover
from phalanx.kube.errors import ApiError
from phalanx.kube.paths import Resource

from .stub_server import Json, StubServer, refusal

PODS = Resource("", "v1", "pods", "Pod")
NODES = Resource("", "v1", "nodes", "Node", namespaced=False)
V2 = Resource("batch.example", "v2", "jobs", "Job")
V1 = Resource("batch.example", "v1", "jobs", "Job")


def aggregated(server: StubServer) -> None:
    def resource(plural: str, kind: str, scope: str, *subresources: str) -> dict[str, object]:
        return {
            "resource": plural,
            "responseKind": {"group": "", "version": "", "kind": kind},
            "scope": scope,
            "singularResource": kind.lower(),
            "shortNames": [plural[:2]],
            "verbs": ["get", "list", "watch"],
            "subresources": [{"subresource": name, "verbs": ["patch"]} for name in subresources],
        }

    core = [resource("pods", "Pod", "Namespaced", "status", "binding"), resource("nodes", "Node", "Cluster")]
    jobs = resource("jobs", "Job", "Namespaced", "status")
    server.on(
        "GET",
        "/api",
        Json(
            {
                "kind": "APIGroupDiscoveryList",
                "items": [{"metadata": {}, "versions": [{"version": "v1", "resources": core}]}],
            }
        ),
    )
    server.on(
        "GET",
        "/apis",
        Json(
            {
                "kind": "APIGroupDiscoveryList",
                "items": [
                    {
                        "metadata": {"name": "batch.example"},
                        "versions": [
                            {"version": "v2", "resources": [jobs], "freshness": "Current"},
                            {"version": "v1", "resources": [jobs], "freshness": "Current"},
                        ],
                    },
                    {
                        "metadata": {"name": "broken.example"},
                        "versions": [{"version": "v1", "resources": [], "freshness": "Stale"}],
                    },
                ],
            }
        ),
    )


def plain(server: StubServer) -> None:
    def resource(name: str, kind: str, namespaced: bool) -> dict[str, object]:
        return {
            "name": name,
            "kind": kind,
            "namespaced": namespaced,
            "singularName": "" if "/" in name else kind.lower(),
            "shortNames": [] if "/" in name else [name[:2]],
            "verbs": ["get", "list", "watch"],
        }

    server.on("GET", "/api", Json({"kind": "APIVersions", "versions": ["v1"]}))
    core = [
        resource("pods", "Pod", True),
        resource("pods/status", "Pod", True),
        resource("pods/binding", "Binding", True),
        resource("nodes", "Node", False),
    ]
    server.on("GET", "/api/v1", Json({"kind": "APIResourceList", "resources": core}))
    server.on(
        "GET",
        "/apis",
        Json(
            {
                "kind": "APIGroupList",
                "groups": [
                    {
                        "name": "batch.example",
                        "versions": [{"version": "v1"}, {"version": "v2"}],
                        "preferredVersion": {"version": "v2"},
                    },
                    {"name": "broken.example", "versions": [{"version": "v1"}]},
                ],
            }
        ),
    )
    jobs = [resource("jobs", "Job", True), resource("jobs/status", "Job", True)]
    for version in ("v1", "v2"):
        server.on("GET", f"/apis/batch.example/{version}", Json({"resources": jobs}))
    server.on("GET", "/apis/broken.example/v1", refusal(503, "ServiceUnavailable"))


@pytest.fixture(params=[aggregated, plain], ids=["aggregated", "plain"])
async def discovery(request: pytest.FixtureRequest, server: StubServer, client: KubeClient) -> Discovery:
    request.param(server)
    return await discover(client)


async def test_versions_come_in_the_order_of_preference(discovery: Discovery) -> None:
    assert discovery.find("batch.example", "jobs") == [V2, V1]
    assert discovery.find_kind("batch.example", "Job") == [V2, V1]
    assert discovery.find("", "pods") == [PODS]
    assert discovery.find("", "nodes") == [NODES]
    assert discovery.find("", "jobs") == []


async def test_subresources_and_verbs(discovery: Discovery) -> None:
    assert discovery.has_subresource(PODS, "binding")
    assert not discovery.has_subresource(NODES, "status")
    entry = discovery.entry(PODS)
    assert entry is not None
    assert entry.subresources == {"status", "binding"}
    assert entry.verbs == {"get", "list", "watch"}


async def test_a_broken_group_is_unknown_rather_than_absent(discovery: Discovery) -> None:
    assert list(discovery.degraded) == ["broken.example/v1"]
    assert discovery.serves_group("broken.example") is None
    assert discovery.serves_group("batch.example") is True
    assert discovery.serves_group("nowhere.example") is False


@pytest.mark.parametrize(
    ("word", "found"),
    [
        ("jobs", [V2]),
        ("job", [V2]),
        ("Job", [V2]),
        ("jo", [V2]),
        ("jobs.batch.example", [V2]),
        ("jobs.other.example", []),
        ("po", [PODS]),
        ("x", []),
    ],
)
async def test_kind_is_found_by_plural_singular_short_and_group_names(
    discovery: Discovery, word: str, found: list[Resource]
) -> None:
    assert discovery.lookup(word) == found


async def test_the_aggregated_form_is_asked_for(server: StubServer, client: KubeClient) -> None:
    aggregated(server)
    await discover(client)
    assert [(r.path, r.headers["Accept"]) for r in server.requests] == [("/api", AGGREGATED), ("/apis", AGGREGATED)]


async def test_a_server_that_does_not_answer_is_an_error(server: StubServer, client: KubeClient) -> None:
    aggregated(server)
    server.on("GET", "/apis", refusal(503, "ServiceUnavailable"))
    with pytest.raises(ApiError, match="503"):
        await discover(client)
