"""Devices in the nodes file, and the slices that the agent publishes for them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from phalanx_local.nodeagent.node_file import parse_node_file

from .world import World

SLICES = "/apis/resource.k8s.io/v1/resourceslices"
NODE = "[{name: n0, allocatable: {cpu: 8}, devices: [{driver: gpu.example.com, name: 'gpu-{i}', count: %d%s}]}]"


def devices(text: str) -> Any:
    return parse_node_file(f"[{{name: n0, allocatable: {{cpu: 8}}, devices: {text}}}]", "nodes.yaml")


def test_attributes_have_the_type_of_their_text() -> None:
    found = devices("[{driver: d.example.com, attributes: {a: x, b: 1, c: true, v: {version: 1.2.3}}}]")
    (offer,) = found.nodes["n0"].devices
    assert offer.attributes == {
        "a": {"string": "x"},
        "b": {"int": 1},
        "c": {"bool": True},
        "v": {"version": "1.2.3"},
    }


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("{driver: d}", "devices: expected a list"),
        ("[{count: 1}]", "devices.driver: expected a name"),
        ("[{driver: d, count: 0}]", "devices.count: expected a number from 1 to 128"),
        ("[{driver: d, count: 2, name: one}]", "devices.name: 2 devices need {i} in their name"),
        ("[{driver: d, cuont: 2}]", "devices.cuont: unknown field"),
        ("[{driver: d, count: 100, name: 'a-{i}'}, {driver: d, count: 29, name: 'b-{i}'}]", "d has more than 128"),
        ("[{driver: d, attributes: {a: [1]}}]", "devices.attributes.a: expected a string"),
    ],
)
def test_a_mistake_is_named_with_its_field(text: str, complaint: str) -> None:
    found = devices(text)
    assert not found.nodes
    assert complaint in found.problems[0]


def test_the_example_of_the_documentation_is_read() -> None:
    text = (Path(__file__).parents[3] / "docs" / "devices-dra.md").read_text(encoding="utf-8")
    found = parse_node_file(re.findall(r"^```yaml\n(.*?)^```", text, re.M | re.S)[-1], "nodes.yaml")
    assert not found.problems
    assert [offer.count for offer in found.nodes["gpu-3"].devices] == [8]


@pytest.mark.e2e
async def test_slices_follow_the_file_and_are_deleted_with_the_node(world: World) -> None:
    await world.start(NODE % (2, ", attributes: {model: A100}, capacity: {memory: 40Gi}"))
    first = await world.until(f"{SLICES}/n0-gpu.example.com", lambda item: item is not None)
    assert first["spec"] == {
        "driver": "gpu.example.com",
        "nodeName": "n0",
        "pool": {"name": "n0", "generation": 1, "resourceSliceCount": 1},
        "devices": [
            {
                "name": name,
                "attributes": {"model": {"string": "A100"}},
                "capacity": {"memory": {"value": "40Gi"}},
            }
            for name in ("gpu-0", "gpu-1")
        ],
    }
    world.write_nodes(NODE % (3, ""))
    changed = await world.until(f"{SLICES}/n0-gpu.example.com", lambda item: len(item["spec"]["devices"]) == 3)
    assert changed["spec"]["pool"]["generation"] == 2
    world.write_nodes("[{name: n0, allocatable: {cpu: 8}}]")
    await world.until_gone(f"{SLICES}/n0-gpu.example.com")
