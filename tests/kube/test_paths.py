"""A resource knows the URL paths of its objects, and a hostile name cannot leave its place in them."""

from __future__ import annotations

import pytest

from phalanx.kube.paths import Resource

PODS = Resource("", "v1", "pods", "Pod")


@pytest.mark.parametrize(
    ("resource", "arguments", "path"),
    [
        (PODS, (), "/api/v1/pods"),
        (PODS, ("ns",), "/api/v1/namespaces/ns/pods"),
        (PODS, ("ns", "a"), "/api/v1/namespaces/ns/pods/a"),
        (PODS, ("ns", "a", "binding"), "/api/v1/namespaces/ns/pods/a/binding"),
        (Resource("", "v1", "nodes", namespaced=False), (None, "n"), "/api/v1/nodes/n"),
        (Resource("", "v1", "nodes", namespaced=False), ("ns", "n"), "/api/v1/nodes/n"),
        (Resource("b.io", "v1", "jobs"), ("ns", "j", "status"), "/apis/b.io/v1/namespaces/ns/jobs/j/status"),
        (PODS, ("../../x", "a/b?c d"), "/api/v1/namespaces/..%2F..%2Fx/pods/a%2Fb%3Fc%20d"),
    ],
)
def test_path(resource: Resource, arguments: tuple[str, ...], path: str) -> None:
    assert resource.path(*arguments) == path


@pytest.mark.parametrize("arguments", [(None, "a"), ("ns", None, "status"), ("..",), ("ns", "."), ("ns", "..")])
def test_invalid_path_is_rejected(arguments: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match=r"needs|cannot be the name"):
        PODS.path(*arguments)


def test_api_version() -> None:
    assert (PODS.api_version, Resource("b.io", "v2", "jobs").api_version) == ("v1", "b.io/v2")
