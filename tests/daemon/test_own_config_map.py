"""A ConfigMap of ours that another version of the scheduler writes as well."""

from __future__ import annotations

import pytest

from phalanx.daemon.controllers.own_config_map import LeftAlone, OwnConfigMap, version_of
from phalanx.kube.auth.config import ClusterConfig
from phalanx.kube.client import KubeClient

from .test_usage_record import ConfigMaps

NAME = "phalanx-things"
OLD, NEW = '{"version": 1, "things": []}', '{"version": 2, "boxes": {}}'


def of(api: ConfigMaps) -> OwnConfigMap:
    client = KubeClient(ClusterConfig("http://maps.invalid"), transports=lambda *_, **__: api)
    return OwnConfigMap(client, "kube-system", NAME, "things are lost")


async def test_foreign_keys_are_preserved() -> None:
    api = ConfigMaps()
    api.objects[NAME] = {"metadata": {"name": NAME}, "data": {"a.json": OLD, "b.json": "theirs"}}
    mine = of(api)
    assert await mine.read() == {"a.json": OLD, "b.json": "theirs"}
    await mine.put({"a.json": "{}"}, {"a.json": "{}"})
    assert api.objects[NAME]["data"] == {"a.json": "{}", "b.json": "theirs"}


async def test_content_of_a_later_version_is_neither_read_nor_written(caplog: pytest.LogCaptureFixture) -> None:
    """The other keys are not written either, as they depend on each other."""
    api = ConfigMaps()
    api.objects[NAME] = {"metadata": {"name": NAME}, "data": {"a.json": NEW, "b.json": OLD}}
    mine = of(api)
    assert await mine.read() == {"b.json": OLD}
    with pytest.raises(LeftAlone):
        await mine.put({"b.json": "{}"}, {"b.json": "{}"})
    assert api.objects[NAME]["data"] == {"a.json": NEW, "b.json": OLD}
    assert [record.getMessage() for record in caplog.records] == [
        "configmap kube-system/phalanx-things has key a.json of version 2, written by a newer Phalanx: "
        "it is neither read nor written"
    ]


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"version": "9"}', '{"version": null}', '{"version": 1e9}'])
def test_content_without_a_version_is_not_of_a_later_one(text: str) -> None:
    assert version_of(text) == 0
