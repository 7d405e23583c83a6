"""ConfigMaps and Secrets as variables and files of a local process."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from phalanx_local.nodeagent.core_v1 import V1Container, V1Pod
from phalanx_local.nodeagent.pod_runtime.config_objects import ConfigObjects, MissingObjectError

OBJECTS = {
    ("configmaps", "hosts"): {"data": {"worker.host": "a\nb", "N": "2"}},
    ("secrets", "keys"): {"data": {"id_rsa": "c2VjcmV0"}},
}


async def read(plural: str, namespace: str, name: str) -> bytes | None:
    assert namespace == "team"
    found = OBJECTS.get((plural, name))
    return None if found is None else json.dumps(found).encode()


def pod(container: dict[str, Any], *volumes: dict[str, Any]) -> tuple[V1Pod, V1Container]:
    spec = {"containers": [{"name": "main", **container}], "volumes": list(volumes)}
    made = msgspec.convert({"metadata": {"name": "p", "namespace": "team"}, "spec": spec}, V1Pod)
    return made, made.spec.containers[0]


def files_below(folder: Path) -> dict[str, str]:
    return {str(each.relative_to(folder)): each.read_text() for each in folder.rglob("*") if each.is_file()}


async def test_keys_become_variables_one_by_one_or_all() -> None:
    key = {"name": "hosts", "key": "N"}
    env = [{"name": "NUM", "valueFrom": {"configMapKeyRef": key}}]
    env_from = [{"prefix": "K_", "secretRef": {"name": "keys"}}]
    made, container = pod({"env": env, "envFrom": env_from})
    objects = await ConfigObjects.read(read, made, container)
    assert objects.variables(container) == {"K_id_rsa": "secret"}
    reference = (container.env or [])[0].value_from
    assert reference is not None
    assert reference.config_map_key_ref is not None
    assert objects.value("configmaps", reference.config_map_key_ref) == "2"


async def test_volumes_become_files_and_none_is_written_beside_them(tmp_path: Path) -> None:
    items = [{"key": "id_rsa", "path": "ssh/key"}, {"key": "id_rsa", "path": "../outside"}]
    volumes = (
        {"name": "hosts", "configMap": {"name": "hosts"}},
        {"name": "keys", "secret": {"secretName": "keys", "items": items}},
    )
    made, container = pod({}, *volumes)
    objects = await ConfigObjects.read(read, made, container)
    for volume in made.spec.volumes or ():
        objects.write(volume, tmp_path / volume.name)
    assert files_below(tmp_path) == {"hosts/worker.host": "a\nb", "hosts/N": "2", "keys/ssh/key": "secret"}


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ({"configMapKeyRef": {"name": "nowhere", "key": "N"}}, 'configmap "nowhere" not found'),
        ({"secretKeyRef": {"name": "keys", "key": "other"}}, "couldn't find key other in secret keys"),
    ],
)
async def test_missing_object_is_named_unless_it_is_optional(source: dict[str, Any], words: str) -> None:
    for optional in (False, True):
        (kind, reference), *_ = source.items()
        made, container = pod({"env": [{"name": "A", "valueFrom": {kind: {**reference, "optional": optional}}}]})
        if optional:
            (await ConfigObjects.read(read, made, container)).check(container)
        else:
            with pytest.raises(MissingObjectError, match=words):
                (await ConfigObjects.read(read, made, container)).check(container)
