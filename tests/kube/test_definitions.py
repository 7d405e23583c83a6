"""Kinds that are served according to their definitions, in addition to discovery."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from phalanx.kube.changes import Delete, Malformed, Synced, Upsert
from phalanx.kube.definitions import Definition, Definitions, decode_definition
from phalanx.kube.discovery import Discovery, ServedResource
from phalanx.kube.paths import Resource

GROUP = "scheduling.x-k8s.io"
NAME = f"podgroups.{GROUP}"
NOTHING = Discovery(())


def document(*versions: str, established: bool = True, unserved: tuple[str, ...] = ()) -> dict[str, Any]:
    stated = [
        {
            "name": version,
            "served": version not in unserved,
            "storage": True,
            "schema": {},
            "subresources": {"status": {}},
        }
        for version in versions
    ]
    return {
        "metadata": {"name": NAME, "uid": "u", "resourceVersion": "7"},
        "spec": {
            "group": GROUP,
            "names": {"plural": "podgroups", "kind": "PodGroup", "singular": "podgroup", "shortNames": ["pg"]},
            "scope": "Namespaced",
            "versions": stated,
        },
        "status": {"conditions": [{"type": "Established", "status": "True" if established else "False"}]},
    }


def told(*versions: str, **more: Any) -> Definitions:
    made = Definitions()
    made.take_in(upsert(document(*versions, **more)))
    return made


def upsert(found: dict[str, Any]) -> Upsert[Definition]:
    return Upsert(decode_definition(json.dumps(found).encode()), b"", ("", NAME), "u", 7)


def versions(served: Discovery) -> list[str]:
    return [each.version for each in served.find(GROUP, "podgroups")]


def test_kind_of_a_definition_that_discovery_misses_is_served() -> None:
    served = told("v1alpha1").added_to(NOTHING)
    resource = Resource(GROUP, "v1alpha1", "podgroups", "PodGroup")
    assert served.find(GROUP, "podgroups") == [resource]
    assert served.has_subresource(resource, "status")
    assert served.lookup("pg") == [resource]


def test_kind_in_discovery_and_definitions_is_listed_once() -> None:
    there = Discovery((ServedResource(Resource(GROUP, "v1alpha1", "podgroups", "PodGroup")),))
    assert told("v1alpha1").added_to(there) is there
    assert versions(told("v1alpha1", "v1beta1").added_to(there)) == ["v1alpha1", "v1beta1"]


def test_a_version_that_is_not_served_and_names_that_are_not_accepted_do_not_count() -> None:
    assert versions(told("v1alpha1", "v1beta1", unserved=("v1alpha1",)).added_to(NOTHING)) == ["v1beta1"]
    assert versions(told("v1alpha1", established=False).added_to(NOTHING)) == []


def test_a_definition_that_is_deleted_is_withdrawn_and_nothing_else_is() -> None:
    made = told("v1alpha1")
    assert not made.withdrawn(GROUP, "podgroups")
    made.take_in(Malformed(("", NAME), "u", "no JSON", b"{"))
    made.take_in(Synced())
    assert versions(made.added_to(NOTHING)) == ["v1alpha1"]
    made.take_in(Delete(("", NAME), "u"))
    assert made.withdrawn(GROUP, "podgroups")
    assert versions(made.added_to(NOTHING)) == []
    assert not made.withdrawn("batch", "jobs")


@pytest.mark.parametrize("spec", [None, [], {"group": 5}, {"group": GROUP, "names": {}, "scope": "Namespaced"}])
def test_one_that_cannot_be_read_is_its_own_misfortune(spec: object) -> None:
    with pytest.raises(msgspec.DecodeError):
        decode_definition(json.dumps({**document("v1"), "spec": spec}).encode())
