"""The nodes file: its fields, and messages about mistakes."""

from __future__ import annotations

import pytest

from phalanx_local.nodeagent.node_file import NodeFileError, parse_node_file


def names(text: str) -> list[str]:
    parsed = parse_node_file(text, "nodes.yaml")
    assert parsed.problems == ()
    return list(parsed.nodes)


def problem(text: str) -> str:
    (found,) = parse_node_file(text, "nodes.yaml").problems
    return found


def test_a_compact_entry_is_a_node() -> None:
    parsed = parse_node_file(
        """
        - name: gpu-0
          allocatable: {cpu: 32, memory: 128Gi, nvidia.com/gpu: 4}
          labels: {zone: a}
          taints: [{key: gpu, value: "yes", effect: NoSchedule}]
          unschedulable: true
        """,
        "nodes.yaml",
    )
    spec = parsed.nodes["gpu-0"]
    assert spec.allocatable == {"pods": "110", "cpu": "32", "memory": "128Gi", "nvidia.com/gpu": "4"}
    assert spec.capacity == spec.allocatable
    assert spec.labels == {"zone": "a"}
    assert spec.taints == [{"key": "gpu", "value": "yes", "effect": "NoSchedule"}]
    assert spec.unschedulable


def test_a_count_and_a_pattern_make_many() -> None:
    assert names("[{name: 'gpu-{i}', count: 3, allocatable: {cpu: 1}}]") == ["gpu-0", "gpu-1", "gpu-2"]
    assert names("[{name: 'n{i:03}.rack', count: 2, allocatable: {cpu: 1}}]") == ["n000.rack", "n001.rack"]
    assert names("[{name: 'n{i}', count: 0, allocatable: {cpu: 1}}]") == []


def test_node_objects_are_read_one_by_one_in_documents_and_in_lists() -> None:
    one = "{apiVersion: v1, kind: Node, metadata: {name: %s}, status: {capacity: {cpu: 8, pods: 20}}}"
    documents = f"{one % 'a'}\n---\n{one % 'b'}\n---\n"
    listed = f"{{kind: List, items: [{one % 'c'}, {one % 'd'}]}}"
    assert names(documents + listed) == ["a", "b", "c", "d"]
    assert parse_node_file(one % "a", "f").nodes["a"].allocatable == {"cpu": "8", "pods": "20"}


def test_json_is_yaml_too() -> None:
    assert names('{"nodes": [{"name": "a", "allocatable": {"cpu": "500m"}}]}') == ["a"]


def test_allocatable_may_be_less_than_capacity() -> None:
    spec = parse_node_file("[{name: a, capacity: {cpu: 8, memory: 1Gi}, allocatable: {cpu: 7}}]", "f").nodes["a"]
    assert spec.allocatable == {"pods": "110", "cpu": "7", "memory": "1Gi"}
    assert spec.capacity == {"pods": "110", "cpu": "8", "memory": "1Gi"}


@pytest.mark.parametrize(
    ("entry", "says"),
    [
        ("{name: a}", "(a): allocatable: missing"),
        ("{name: a, allocatable: {cpu: many}}", "(a): allocatable.cpu: 'many' is not a quantity"),
        ("{name: a, allocatable: {cpu: -1}}", "(a): allocatable.cpu: -1 is negative"),
        ("{name: a, alocatable: {cpu: 1}}", "alocatable: unknown field; did you mean allocatable?"),
        ("{name: A_b, allocatable: {cpu: 1}}", "name: 'A_b' is not a DNS name"),
        ("{allocatable: {cpu: 1}}", "(without a name): name: expected a string"),
        ("{name: a, count: 3, allocatable: {cpu: 1}}", "name: 3 nodes need {i} in their name, such as a-{i}"),
        ("{name: 'a{i}', count: lots, allocatable: {cpu: 1}}", "count: expected a number"),
        ("{name: a, allocatable: {cpu: 1}, labels: {big: true}}", "labels.big: expected a string, found true"),
        ("{name: a, allocatable: {cpu: 1}, taints: [{key: x}]}", 'taints: {"key": "x"} needs a key and an effect'),
        ("{kind: Pod, metadata: {name: a}}", "kind: expected Node, found 'Pod'"),
        ("7", "expected a node, found 7"),
        ("{name: 'z{i:99999999999}', allocatable: {cpu: 1}}", "'z{i:99999999999}' asks for more than 253 digits"),
        ("{name: 'z{i:%s}', allocatable: {cpu: 1}}" % ("9" * 200), "asks for more than 253 digits"),
        ("{name: 'z{i:%s}', allocatable: {cpu: 1}}" % ("9" * 5000), "has more than 253 characters"),
        ("{name: 'z{i:254}', count: 9, allocatable: {cpu: 1}}", "asks for more than 253 digits"),
        ("{name: '%s', count: 9, allocatable: {cpu: 1}}" % ("{i:253}" * 9), "is not a DNS name"),
        ("{name: '%s', allocatable: {cpu: 1}}" % ("{i:253}" * 90_000), "has more than 253 characters"),
        ("{name: '%s', allocatable: {cpu: 1}}" % ("a" * 5_000_000), "has more than 253 characters"),
    ],
)
def test_a_bad_entry_is_named_with_its_field_and_harms_only_itself(entry: str, says: str) -> None:
    text = f"- {entry}\n- {{name: good, allocatable: {{cpu: 1}}}}"
    assert says in problem(text)
    assert list(parse_node_file(text, "nodes.yaml").nodes) == ["good"]


def test_the_second_of_two_equal_names_is_refused() -> None:
    twice = "- {name: a, allocatable: {cpu: 1}}\n- {name: a, allocatable: {cpu: 2}}"
    assert "two nodes have the name 'a'" in problem(twice)
    assert parse_node_file(twice, "f").nodes["a"].allocatable["cpu"] == "1"


@pytest.mark.parametrize("text", ["[", "just words", "7"])
def test_a_file_that_is_no_list_of_nodes_is_an_error(text: str) -> None:
    with pytest.raises(NodeFileError, match=r"nodes file nodes\.yaml"):
        parse_node_file(text, "nodes.yaml")


def test_an_empty_file_is_a_cluster_without_nodes() -> None:
    assert names("") == []


def test_file_with_more_nodes_than_the_limit_is_an_error() -> None:
    entries = [f"{{name: 'n{at}-{{i}}', count: 100000, allocatable: {{cpu: 1}}}}" for at in range(3)]
    with pytest.raises(NodeFileError, match="more than 100000 nodes"):
        parse_node_file(f"[{', '.join(entries)}]", "nodes.yaml")


def test_nodes_of_one_entry_share_its_contents() -> None:
    labels = ", ".join(f"k{at}: v" for at in range(1000))
    text = f"[{{name: 'n{{i}}', count: 1000, allocatable: {{cpu: 1}}, labels: {{{labels}}}}}]"
    nodes = parse_node_file(text, "nodes.yaml").nodes
    assert nodes["n0"].labels is nodes["n999"].labels
