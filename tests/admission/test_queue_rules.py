"""Refusals of a Queue, alone and in the tree (facts from upstream's suite), and its defaults."""

from __future__ import annotations

from typing import Any

import pytest

from phalanx.admission import queues
from phalanx.admission.context import AdmissionContext, QueueCatalog
from tests.admission.objects import changed, cluster, queue

HIERARCHY, WEIGHTS = "volcano.sh/hierarchy", "volcano.sh/hierarchy-weights"


def refused(document: dict[str, Any], old: dict[str, Any] | None = None, *others: dict[str, Any]) -> str:
    return " ".join(queues.validate(document, old, cluster(*others)))


def in_hierarchy(path: str, weights: str, name: str = "new") -> dict[str, Any]:
    made = queue(name)
    made["metadata"]["annotations"] = {HIERARCHY: path, WEIGHTS: weights}
    return made


def guaranteed(**amounts: str) -> dict[str, Any]:
    return {"guarantee": {"resource": amounts}, "deserved": amounts}


@pytest.mark.parametrize(
    "document",
    [
        queue("a"),
        queue("a", state="Closed"),
        queue("a", state=""),
        queue("a", capability={"cpu": "4", "memory": "8Gi"}, deserved={"cpu": "2", "nvidia.com/gpu": 8}),
        queue("a", **guaranteed(cpu="1")),
        queue("a", guarantee={"resource": {"cpu": "1000m"}}, deserved={"cpu": 1}, capability={"cpu": "1"}),
        in_hierarchy("root/sci/dev", "1/2/8"),
    ],
)
def test_a_clean_queue_is_accepted(document: dict[str, Any]) -> None:
    assert refused(document) == ""


BODY = "requestBody.spec"


@pytest.mark.parametrize(
    ("document", "words"),
    [
        (queue("a", state="wrong"), f'{BODY}.state: Invalid value: "wrong": queue state must be in [Open Closed]'),
        (queue("a", weight=-1), "spec.weight: Invalid value: -1: should be greater than or equal to 1"),
        (
            queue("a", guarantee={"resource": {"cpu": "1"}}),
            f'{BODY}.deserved.cpu: Invalid value: "<nil>": deserved[cpu] must be >= guarantee[cpu]=1',
        ),
        (
            queue("a", deserved={"cpu": "2"}, capability={"cpu": "1"}),
            f'{BODY}.deserved.cpu: Invalid value: "2": deserved[cpu]=2 must be <= capability[cpu]=1',
        ),
        (
            queue("a", deserved={"memory": "1Gi"}, guarantee={"resource": {"memory": "3Gi"}}),
            f'{BODY}.deserved.memory: Invalid value: "1Gi": deserved[memory]=1Gi must be >= guarantee[memory]=3Gi',
        ),
        (
            queue("a", capability={"cpu": "-10"}),
            f'{BODY}.capability.cpu: Invalid value: "-10": must be greater than or equal to 0',
        ),
        (
            queue("a", deserved={"cpu": "-5"}),
            f'{BODY}.deserved.cpu: Invalid value: "-5": must be greater than or equal to 0',
        ),
        (
            queue("a", guarantee={"resource": {"cpu": "-2"}}),
            f'[{BODY}.guarantee.resource.cpu: Invalid value: "-2": must be greater than or equal to 0, '
            f'{BODY}.deserved.cpu: Invalid value: "<nil>": deserved[cpu] must be >= guarantee[cpu]=-2]',
        ),
        (queue("a", capability={"cpu": "much"}), f'{BODY}.capability.cpu: Invalid value: "much": quantities must'),
        (
            in_hierarchy("root/a/b", "1/2"),
            f'requestBody.metadata.annotations: Invalid value: "root/a/b": {HIERARCHY} must have the same length '
            f"with {WEIGHTS}",
        ),
        (in_hierarchy("root/a/b", ""), f"{HIERARCHY} must have the same length with {WEIGHTS}"),
        (
            in_hierarchy("root/a/b", "1/many/3"),
            'many in the 1/many/3 is invalid number: strconv.ParseFloat: parsing "many": invalid syntax',
        ),
        (in_hierarchy("root/a/b", "1/-1/3"), "-1 in the 1/-1/3 must be larger than 0"),
        (in_hierarchy("root/a", "1/0"), "0 in the 1/0 must be larger than 0"),
        (
            in_hierarchy("root/sci", "1/2"),
            "root/sci is not allowed to be in the sub path of root/sci/dev of queue dev",
        ),
    ],
)
def test_a_queue_is_refused_in_words_that_people_know(document: dict[str, Any], words: str) -> None:
    assert words in refused(document, None, in_hierarchy("root/sci/dev", "1/2/3", "dev"))


def test_a_name_that_only_begins_alike_is_another_path() -> None:
    assert refused(in_hierarchy("root/sci", "1/2"), None, in_hierarchy("root/scidev/x", "1/2/3", "dev")) == ""


# --- the tree


@pytest.mark.parametrize(
    ("document", "others", "words"),
    [
        (queue("a", "a"), [], "queue a cannot use itself as parent"),
        (queue("a", "gone"), [], 'failed to get parent queue gone of queue a: queue.scheduling.volcano.sh "gone"'),
        (
            queue("a", "busy"),
            [queue("busy", allocated_pods=1)],
            "queue busy cannot be the parent queue of queue a because it has allocated Pods: 1",
        ),
        (queue("a", "busy"), [queue("busy", allocated_pods=1), queue("b", "busy")], ""),
        (
            queue("l6", "l5"),
            [queue("l1"), *(queue(f"l{level}", f"l{level - 1}") for level in range(2, 6))],
            "queue l6 exceeds the maximum allowed depth of 5",
        ),
        (queue("l5", "l4"), [queue("l1"), *(queue(f"l{level}", f"l{level - 1}") for level in range(2, 5))], ""),
        (
            queue("a", "p", capability={"cpu": "20"}),
            [queue("p", capability={"cpu": "10"})],
            "queue a capability[cpu]=20 exceeds its ancestor's capability=10",
        ),
        (
            queue("a", "p", capability={"cpu": "20"}),
            [queue("g", capability={"cpu": "10"}), queue("p", "g")],
            "queue a capability[cpu]=20 exceeds its ancestor's capability=10",
        ),
        (queue("a", "p", capability={"cpu": "20"}), [queue("p", capability={"memory": "1Gi"})], ""),
        (
            queue("a", "p", **guaranteed(cpu="5", memory="10Gi")),
            [
                queue("p", **guaranteed(cpu="8", memory="16Gi")),
                queue("b", "p", **guaranteed(cpu="4", memory="8Gi")),
            ],
            "parent queue p validation failed: sum of children's guarantee (cpu 9000.00, memory 19327352832.00) "
            "exceeds parent's guarantee limit (cpu 8000.00, memory 17179869184.00)",
        ),
        (
            queue("a", "p", deserved={"cpu": "5"}),
            [queue("p", deserved={"cpu": "8"}), queue("b", "p", deserved={"cpu": "4"})],
            "parent queue p validation failed: sum of children's deserved",
        ),
        (
            queue("a", "p", deserved={"nvidia.com/gpu": 1}),
            [queue("p", deserved={"cpu": "8"})],
            "sum of children's deserved (cpu 0.00, memory 0.00, nvidia.com/gpu 1000.00) exceeds parent's",
        ),
        (
            queue("a", "p", deserved={"cpu": "4"}),
            [queue("p", deserved={"cpu": "8"}), queue("b", "p", deserved={"cpu": "4"})],
            "",
        ),
        (queue("a", deserved={"cpu": "4"}), [queue("b", deserved={"cpu": "400"})], ""),
    ],
)
def test_a_queue_fits_into_its_tree(document: dict[str, Any], others: list[dict[str, Any]], words: str) -> None:
    said = refused(document, None, *others)
    assert words in said
    assert bool(words) is bool(said)


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        (
            {"capability": {"cpu": "20"}},
            {"capability": {"cpu": "10"}},
            "queue p capability[cpu]=10 is smaller than its descendants' max capability=12",
        ),
        ({"capability": {"cpu": "20"}}, {"capability": {"cpu": "12"}}, ""),
        (
            guaranteed(cpu="20", memory="40Gi"),
            guaranteed(cpu="10", memory="20Gi"),
            "queue p validation failed: sum of children's guarantee (cpu 13000.00, memory 27917287424.00) exceeds "
            "parent's guarantee limit (cpu 10000.00, memory 21474836480.00)",
        ),
    ],
)
def test_a_parent_cannot_become_too_small(before: dict[str, Any], after: dict[str, Any], words: str) -> None:
    others = [
        queue("c1", "p", **guaranteed(cpu="6", memory="13Gi")),
        queue("c2", "p", **guaranteed(cpu="7", memory="13Gi")),
        queue("g1", "c1", capability={"cpu": "12"}),
    ]
    if "capability" in before:
        others = [queue("c1", "p"), queue("g1", "c1", capability={"cpu": "12"})]
    assert refused(queue("p", **after), queue("p", **before), *others) == words


def test_unchanged_fields_are_not_validated_on_update() -> None:
    odd = queue("a", "gone", capability={"cpu": "1"}, deserved={"cpu": "2"})
    assert refused(odd) != ""
    assert refused(changed(odd, "metadata.labels", {"a": "b"}), odd) == ""
    assert refused(changed(odd, "status.state", "Closed"), odd) == ""
    assert refused(changed(odd, "spec.weight", 5), odd) != ""


def test_the_root_queue_keeps_its_amounts() -> None:
    words = "root queue's resource attributes (capability, deserved, guarantee) cannot be modified"
    assert refused(queue("root", capability={"cpu": "1"}), queue("root")) == words
    assert refused(queue("root", weight=2), queue("root")) == ""
    assert refused(queue("root", capability={"cpu": "1"}), queue("root", capability={"cpu": "1000m"})) == ""


def test_a_tree_that_is_a_ring_does_not_keep_us() -> None:
    ring = [queue("a", "b"), queue("b", "a", capability={"cpu": "1"})]
    assert "is below itself" in refused(changed(queue("a"), "spec.parent", "b"), queue("a"), *ring)
    assert refused(queue("c", "a", capability={"cpu": "9"}), None, *ring) != ""


def test_a_chain_of_many_queues_is_no_trouble() -> None:
    chain = [
        queue("q0"),
        *(queue(f"q{at}", f"q{at - 1}") for at in range(1, 5000)),
        queue("end", "q4999", capability={"cpu": "9"}),
    ]
    words = "queue q0 capability[cpu]=1 is smaller than its descendants' max capability=9"
    assert refused(queue("q0", capability={"cpu": "1"}), queue("q0"), *chain) == words


# --- deletion


def test_some_queues_stay() -> None:
    context = cluster(queue("p"), queue("c1", "p"), queue("c2", "p"), queue("open"), unfinished_groups={"c1": 2})
    words = {
        name: " ".join(queues.validate_deletion(name, context)) for name in ("default", "root", "p", "c1", "open")
    }
    assert words == {
        "default": "`default` queue can not be deleted",
        "root": "`root` queue can not be deleted",
        "p": "queue p can not be deleted because it has 2 child queues: c1, c2",
        "c1": "queue c1 cannot be deleted because it has 2 unfinished PodGroups; close it and wait for them",
        "open": "",
    }


# --- defaults


def filled(document: dict[str, Any]) -> dict[str, Any]:
    built = queues.defaults(document, AdmissionContext())
    assert queues.defaults(built.document, AdmissionContext()).patch == []
    return built.document


def test_a_queue_can_be_reclaimed_from_and_weighs_one() -> None:
    assert filled({"metadata": {"name": "a"}})["spec"] == {"reclaimable": True, "weight": 1}
    stated = {"reclaimable": False, "weight": 7}
    assert filled({"metadata": {"name": "a"}, "spec": stated})["spec"] == stated


def test_paths_begin_at_the_root() -> None:
    notes = filled(in_hierarchy("sci/dev", "2/8"))["metadata"]["annotations"]
    assert notes == {HIERARCHY: "root/sci/dev", WEIGHTS: "1/2/8"}
    assert filled(in_hierarchy("root/sci", "1/2"))["metadata"]["annotations"][HIERARCHY] == "root/sci"


def test_patch_equals_the_defaulted_document() -> None:
    built = queues.defaults(in_hierarchy("sci", "2"), AdmissionContext())
    assert built.patch[0] == {
        "op": "add",
        "path": "/metadata/annotations/volcano.sh~1hierarchy",
        "value": "root/sci",
    }


def test_the_catalog_follows_queues_that_move() -> None:
    catalog = QueueCatalog([queue("p"), queue("c", "p")])
    assert [child["metadata"]["name"] for child in catalog.children("p")] == ["c"]
    catalog.put(queue("c"))
    assert catalog.children("p") == []
    catalog.remove("c")
    catalog.remove("c")
    assert [found["metadata"]["name"] for found in catalog.all()] == ["p"]
