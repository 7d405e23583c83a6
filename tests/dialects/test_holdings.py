"""Status of queues and quotas: usage and counts."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phalanx.dialects.kinds import ServedKind
from phalanx.dialects.quotas.usage_status import QuotaUsage
from phalanx.model.resources import parse_amount
from phalanx.model.text.quantity import canonical_quantity
from tests.dialects.objects import (
    KUBE_BATCH_QUEUE,
    QUOTA,
    QUOTA_TREE,
    SIGS_QUOTA,
    VOLCANO_QUEUE,
    queue,
    quota,
    quota_tree,
    read_account,
    usage_status,
)

GIB = 2**30
HELD = QuotaUsage({"cpu": 1500, "memory": GIB, "pods": 3}, {"cpu": 500, "pods": 1}, {"Running": 2, "Pending": 1})
NOTHING = QuotaUsage({}, {})


def change(kind: ServedKind, document: dict[str, Any], holdings: QuotaUsage) -> dict[str, Any]:
    (account,) = read_account(kind, document).accounts
    return usage_status(document["status"], account, holdings)


def merged(status: dict[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
    """RFC 7386."""
    result = dict(status)
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        elif isinstance(value, dict):
            result[name] = merged(result.get(name) or {}, value)
        else:
            result[name] = value
    return result


def test_status_of_a_new_queue_is_open() -> None:
    assert change(VOLCANO_QUEUE, queue(), NOTHING) == {"state": "Open", "allocated": {"cpu": "0", "memory": "0"}}


def test_status_of_a_queue_has_its_groups_and_usage() -> None:
    assert change(VOLCANO_QUEUE, queue(), HELD) == {
        "state": "Open",
        "running": 2,
        "pending": 1,
        "allocated": {"cpu": "1500m", "memory": "1Gi", "pods": "3"},
    }


def test_usage_that_a_queue_no_longer_has_is_removed() -> None:
    status = {"state": "Open", "running": 2, "allocated": {"cpu": "1", "nvidia.com/gpu": "2", "pods": "0"}}
    assert change(VOLCANO_QUEUE, queue(status=status), NOTHING) == {
        "running": 0,
        "allocated": {"cpu": "0", "nvidia.com/gpu": None},
    }


def test_other_spellings_of_an_equal_amount_are_not_rewritten() -> None:
    allocated = {"cpu": "1.5", "memory": 1073741824, "pods": 3}
    status = {"state": "Open", "running": 2, "pending": 1, "allocated": allocated, "reservation": {"nodes": ["n"]}}
    assert change(VOLCANO_QUEUE, queue(status=status), HELD) == {}


@pytest.mark.parametrize(
    ("said", "holdings", "state"),
    [
        ("Closing", NOTHING, "Closed"),
        ("Closing", HELD, None),
        ("Closed", HELD, None),
        ("Closed", NOTHING, None),
        ("Closed", QuotaUsage({}, {}, {"Pending": 1}), None),
        ("Closing", QuotaUsage({}, {}, {"Completed": 4}), "Closed"),
        ("Unknown", NOTHING, None),
        ("Open", HELD, None),
    ],
)
def test_queue_is_closed_once_it_is_empty(said: str, holdings: QuotaUsage, state: str | None) -> None:
    assert change(VOLCANO_QUEUE, queue(status={"state": said}), holdings).get("state") == state


def test_kube_batch_queue_counts_groups_only() -> None:
    assert change(KUBE_BATCH_QUEUE, queue(), HELD) == {"running": 2, "pending": 1}
    assert change(KUBE_BATCH_QUEUE, queue(status={"running": 2, "pending": 1}), HELD) == {}


@pytest.mark.parametrize("kind", [QUOTA, SIGS_QUOTA], ids=lambda kind: kind.group)
def test_status_of_a_quota_has_the_requests_of_running_pods(kind: ServedKind) -> None:
    limits: dict[str, Any] = {"min": {"cpu": 2, "nvidia.com/gpu": 1}, "max": {"memory": "1Gi"}}
    used = {"cpu": "500m", "nvidia.com/gpu": "0", "memory": "0"}
    assert change(kind, quota(**limits), HELD) == {"used": used}
    assert change(kind, quota(**limits, status={"used": used}), HELD) == {}


def test_pods_are_counted_in_the_resources_that_the_quota_names() -> None:
    assert change(QUOTA, quota(max={"pods": 5}), HELD) == {"used": {"cpu": "500m", "pods": "1"}}


def test_usage_without_requests_is_removed() -> None:
    document = quota(min={"cpu": 2}, status={"used": {"cpu": "1", "example.com/fpga": "0", "odd": "x"}})
    assert change(QUOTA, document, NOTHING) == {"used": {"cpu": "0", "example.com/fpga": None, "odd": None}}


def test_status_of_a_koordinator_quota_has_the_usage_of_all_its_pods() -> None:
    document = quota(max={"cpu": 2}, labels={"quota.scheduling.koordinator.sh/is-parent": "false"})
    assert change(SIGS_QUOTA, document, HELD) == {"used": {"cpu": "1500m", "memory": "1Gi"}}


def test_quota_tree_has_no_status() -> None:
    assert change(QUOTA_TREE, quota_tree({"name": "root"}), HELD) == {}


_names = st.sampled_from(["cpu", "memory", "pods", "nvidia.com/gpu"])
_amounts = st.dictionaries(_names, st.integers(0, 2**53), max_size=4)
_texts = st.dictionaries(_names, st.sampled_from(["0", "1", "x", "500m", 3]), max_size=4)


@given(_amounts, _texts, st.sampled_from(["Open", "Closed", "Closing", ""]))
def test_one_write_completes_the_status(held: dict[str, int], stated: dict[str, Any], state: str) -> None:
    holdings = QuotaUsage(held, held, {"Running": 1})
    for kind, document in (
        (VOLCANO_QUEUE, queue(status={"allocated": stated, "state": state})),
        (QUOTA, quota(min={"cpu": 1}, max={"memory": "1Gi"}, status={"used": stated})),
    ):
        document["status"] = merged(document["status"], change(kind, document, holdings))
        assert change(kind, document, holdings) == {}


@given(st.integers(0, 2**53), st.sampled_from(["cpu", "memory", "nvidia.com/gpu", "hugepages-2Mi"]))
def test_no_amount_of_a_status_is_rounded(amount: int, resource: str) -> None:
    assert parse_amount(resource, canonical_quantity(amount, resource)) == amount
