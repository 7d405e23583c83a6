"""The data file: an answered write exists after a restart, for any end of the server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from phalanx_local.server import ApiServer, ServerOptions
from phalanx_local.storage.journal import DataFileError, FileJournal
from tests.phalanx_local.client import CONFIG_MAPS, PODS, config_map, pod
from tests.phalanx_local.conftest import Starter

WIDGETS: dict[str, Any] = {
    "metadata": {"name": "widgets.example.com"},
    "spec": {
        "group": "example.com",
        "scope": "Namespaced",
        "names": {"plural": "widgets", "kind": "Widget"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {"spec": {"type": "object", "properties": {"size": {"type": "integer"}}}},
                    }
                },
            }
        ],
    },
}


def options(path: Path) -> ServerOptions:
    return ServerOptions(insecure=True, data=path)


async def test_objects_come_back_as_they_were(start: Starter, tmp_path: Path) -> None:
    path = tmp_path / "data"
    first, client = await start(options(path))
    await client.create(PODS, pod("kept"))
    await client.create(PODS, pod("gone"))
    await client.ok("DELETE", f"{PODS}/gone")
    before = await client.get("/api/v1/pods")
    spaces = await client.get("/api/v1/namespaces")
    await first.stop()

    _, again = await start(options(path))
    assert (await again.get("/api/v1/pods"))["items"] == before["items"]
    assert (await again.get("/api/v1/namespaces"))["items"] == spaces["items"]
    made = await again.create(PODS, pod("new"))
    assert int(made["metadata"]["resourceVersion"]) > int(before["metadata"]["resourceVersion"])


async def test_custom_resources_are_served_again(start: Starter, tmp_path: Path) -> None:
    path = tmp_path / "data"
    first, client = await start(options(path))
    await client.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", WIDGETS)
    widgets = "/apis/example.com/v1/namespaces/default/widgets"
    body = {
        "apiVersion": "example.com/v1",
        "kind": "Widget",
        "metadata": {"name": "w"},
        "spec": {"size": 3},
    }
    made = await client.create(widgets, body)
    await first.stop()
    _, again = await start(options(path))
    assert await again.get(f"{widgets}/w") == made


async def test_answered_write_survives_a_killed_process(tmp_path: Path) -> None:
    """A killed process leaves the file as it is at that moment, perhaps with half a line at its end."""
    path = tmp_path / "data"
    server = ApiServer(options(path))
    await server.start()
    pods = server.api.type("", "pods").preferred
    server.api.create(pods, "default", pod("p"), server.api.write())
    survived = tmp_path / "copy"
    survived.write_bytes(path.read_bytes() + b"99\tput\t/pods\tdefault\thalf")
    await server.stop()

    again = ApiServer(options(survived))
    await again.start()
    assert again.api.find("", "pods", "default", "p") is not None
    assert again.api.find("", "pods", "default", "half") is None
    again.api.create(pods, "default", pod("q"), again.api.write())
    await again.stop()
    last = ApiServer(options(survived))
    await last.start()
    assert [item["metadata"]["name"] for item in last.api.all("", "pods")] == ["p", "q"]
    await last.stop()


async def test_the_file_is_rewritten_when_most_of_it_is_history(
    start: Starter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("phalanx_local.storage.journal._SLACK", 50)
    path = tmp_path / "data"
    first, client = await start(options(path))
    await client.create(CONFIG_MAPS, config_map("a", n="0"))
    for index in range(1, 201):
        last = await client.merge(f"{CONFIG_MAPS}/a", {"data": {"n": str(index)}})
    assert len(path.read_bytes().splitlines()) < 150
    await first.stop()
    _, again = await start(options(path))
    assert await again.get(f"{CONFIG_MAPS}/a") == last


async def test_deletions_are_remembered_by_a_rewritten_file(
    start: Starter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("phalanx_local.storage.journal._SLACK", 30)
    path = tmp_path / "data"
    first, client = await start(options(path))
    for index in range(120):
        await client.create(CONFIG_MAPS, config_map(f"m{index}"))
        await client.ok("DELETE", f"{CONFIG_MAPS}/m{index}")
    revision = (await client.get(CONFIG_MAPS))["metadata"]["resourceVersion"]
    await first.stop()
    _, again = await start(options(path))
    found = await again.get(CONFIG_MAPS)
    assert found["items"] == []
    assert int(found["metadata"]["resourceVersion"]) >= int(revision)


def test_a_file_serves_one_server_at_a_time(tmp_path: Path) -> None:
    journal = FileJournal(tmp_path / "data")
    with pytest.raises(DataFileError, match="another server is using this data file"):
        FileJournal(tmp_path / "data")
    journal.close()
    FileJournal(tmp_path / "data").close()


def test_a_foreign_or_damaged_file_is_refused_by_name(tmp_path: Path) -> None:
    foreign = tmp_path / "foreign"
    foreign.write_text("hello\n")
    with pytest.raises(DataFileError, match="foreign: not a data file"):
        FileJournal(foreign)
    damaged = tmp_path / "damaged"
    damaged.write_bytes(b"phalanx-data-1\nnot a line\n1\trevision\n")
    with pytest.raises(
        DataFileError, match=r"damaged: line 2 \(byte 15\) is damaged: it is no record; restore the file"
    ):
        FileJournal(damaged)


async def test_clients_survive_a_restart_because_the_server_preserves_its_keys(tmp_path: Path) -> None:
    first = ApiServer(ServerOptions(data=tmp_path / "data"))
    await first.start()
    port, authority, token = (
        int(first.url.rpartition(":")[2]),
        first.kubeconfig()["clusters"][0]["cluster"],
        first.token,
    )
    await first.stop()
    second = ApiServer(ServerOptions(data=tmp_path / "data", port=port))
    await second.start()
    try:
        assert second.kubeconfig()["clusters"][0]["cluster"] == authority
        assert second.token == token
    finally:
        await second.stop()
    identity = tmp_path / "data.identity"
    assert identity.stat().st_mode & 0o777 == 0o600
    identity.write_text("nonsense")
    third = ApiServer(ServerOptions(data=tmp_path / "data"))
    assert third.token != token
    await third.stop()
