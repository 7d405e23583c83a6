"""Way to a gang: directly, or by the port-forward of kubectl; and the image that its pods need."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from phalanx.kube.errors import ApiError
from phalanx.sdk import ConnectionFailedError, GangUnreachableError, InvalidArgumentError, connect
from phalanx.sdk.async_cluster import AsyncCluster
from phalanx.sdk.gang.reach import reached, way_to

POD = {"metadata": {"name": "g-hub-0", "namespace": "ml"}, "status": {"podIP": "10.0.0.7"}}
_CONFIG = """
apiVersion: v1
kind: Config
current-context: a
contexts: [{name: a, context: {cluster: a, user: a}}]
clusters: [{name: a, cluster: {server: "SERVER"}}]
users: [{name: a, user: {}}]
"""


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file `kubectl` that is the only program in the PATH."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    return tmp_path / "kubectl"


def write_program(file: Path, text: str) -> None:
    file.write_text(f"#!/bin/sh\n{text}\n")
    file.chmod(0o755)


def test_way_is_direct_in_a_pod_and_for_local_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    assert way_to("127.130.0.1") == "direct"
    assert way_to("10.0.0.7") == "port-forward"
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.96.0.1")
    assert way_to("10.0.0.7") == "direct"


async def test_port_of_kubectl_is_used_and_its_process_ends(program: Path, tmp_path: Path) -> None:
    write_program(
        program,
        f'echo "$@" > {tmp_path}/words; echo "Forwarding from 127.0.0.1:4711 -> 7077"; exec /bin/sleep 600',
    )
    async with reached(POD, "", "/kube/config", "east") as place:
        assert place == ("127.0.0.1", 4711)
    words = (tmp_path / "words").read_text()
    assert words == (
        "port-forward --address 127.0.0.1 -n ml pod/g-hub-0 :7077 --kubeconfig /kube/config --context east\n"
    )


async def test_refusal_of_kubectl_is_the_error(program: Path) -> None:
    write_program(program, 'echo "forbidden: pods/portforward" >&2; exit 1')
    with pytest.raises(GangUnreachableError, match="forbidden: pods/portforward"):
        async with reached(POD, "", "", ""):
            raise AssertionError("nothing is reached")


async def test_missing_kubectl_is_an_error_that_names_the_ways(program: Path) -> None:
    with pytest.raises(GangUnreachableError, match=r'install kubectl.*in a pod.*way="direct"'):
        async with reached(POD, "", "", ""):
            raise AssertionError("nothing is reached")


class Nodes:
    """Client of a cluster whose nodes have a container runtime; None: they may not be listed."""

    def __init__(self, runtime: str | None) -> None:
        self._runtime = runtime

    async def get(self, path: str, params: object = None) -> Any:
        if self._runtime is None:
            raise ApiError(403, "Forbidden", "nodes is forbidden")
        return {"items": [{"status": {"nodeInfo": {"containerRuntimeVersion": self._runtime}}}]}


def cluster_with(tmp_path: Path, runtime: str | None, server: str) -> AsyncCluster:
    file = tmp_path / "config"
    file.write_text(_CONFIG.replace("SERVER", server))
    cluster = AsyncCluster(file)
    cluster._client = Nodes(runtime)  # type: ignore[assignment]
    return cluster


@pytest.mark.parametrize(
    ("runtime", "server", "image", "local"),
    [
        ("phalanx://0.1.0", "https://127.0.0.1:1", "", True),
        ("phalanx://0.1.0", "https://127.0.0.1:1", "torch", True),
        ("containerd://2.0", "https://10.0.0.1", "torch", False),
        ("containerd://2.0", "https://127.0.0.1:1", "", None),
        (None, "https://127.0.0.1:1", "", True),
        (None, "https://127.0.0.1:1", "torch", False),
        (None, "https://10.0.0.1", "", None),
    ],
)
async def test_image_is_required_where_nodes_pull_images(
    runtime: str | None,
    server: str,
    image: str,
    local: bool | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("PHALANX_IMAGE", raising=False)
    cluster = cluster_with(tmp_path, runtime, server)
    with expected_error(local):
        assert await cluster.check_image({"image": image}) is local


@contextlib.contextmanager
def expected_error(local: bool | None) -> Iterator[None]:
    if local is not None:
        yield
        return
    with pytest.raises(InvalidArgumentError, match="set image= or the variable PHALANX_IMAGE") as caught:
        yield
    assert caught.value.field == "image"


def test_server_that_does_not_answer_and_missing_kubeconfig_are_connection_errors(tmp_path: Path) -> None:
    file = tmp_path / "config"
    file.write_text(_CONFIG.replace("SERVER", "http://127.0.0.1:1"))
    with pytest.raises(ConnectionFailedError, match="cannot reach the API server"):
        connect(file)
    with pytest.raises(ConnectionFailedError, match="no such file"):
        connect(tmp_path / "none")
