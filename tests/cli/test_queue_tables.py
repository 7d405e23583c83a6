"""Queues and quotas as people read them."""

from __future__ import annotations

import re

import msgspec
import pytest

from phalanx.cli.accounts.queue_tables import (
    describe_queue,
    describe_quota,
    queue_table,
    queue_tree,
    quota_table,
    quota_tree,
)
from phalanx.cli.columns import bar, brief, columns
from phalanx.reports.account_entries import (
    Counts,
    FirstWaiting,
    LimitEntry,
    QueueEntry,
    QueueReport,
    QuotaEntry,
    SubqueueEntry,
)

GPU = "nvidia.com/gpu"
NOW = 1e9
WAITS = FirstWaiting("gang ns/g", "QuotaExceeded", "Queue a: 6 gpu in use", "free 2 gpu")
A = QueueEntry(
    name="a",
    depth=1,
    parent="root",
    state="Open",
    weight=2,
    used={"cpu": "6", GPU: "6", "pods": "6"},
    pending={GPU: "2", "pods": "1"},
    deserved={"cpu": "8", GPU: "4", "memory": "64Gi"},
    entitled={GPU: "3"},
    share=50.0,
    own_share=25.0,
    dominant=GPU,
    gangs=Counts(2, 1),
    pods=Counts(6, 1),
    borrowed={GPU: "3"},
    partners=["b"],
    ceilings=[LimitEntry("deserved share", {GPU: "4"})],
    first=WAITS,
    tenants=[SubqueueEntry(kind="namespace", name="ns", weight=1, used={GPU: "6"}, share=50.0, first=WAITS)],
)
B = QueueEntry(
    name="b", depth=1, parent="root", state="Open", weight=1, used={}, own_share=75.0, dominant=GPU,
    lent={GPU: "3"}, partners=["a"], fault="Queue b: weight is 0", warnings=["Odd: looks odd"],
)  # fmt: skip
B1 = QueueEntry(name="b1", depth=2, parent="b", state="Closed", weight=1, used={}, dominant=GPU, fault="closed")
C = QueueEntry(name="c", depth=1, parent="root", state="Open", weight=1, used={}, dominant=GPU)
ROOT = QueueEntry(name="root", state="Open", weight=1, used={GPU: "6"}, share=50.0, own_share=100.0, dominant=GPU)
QUOTA = QuotaEntry(
    name="a/quota", family="ElasticQuota", used={GPU: "6", "cpu": "6"}, min={GPU: "4"}, max={GPU: "6"},
    share=60.0, own_share=40.0, dominant=GPU, borrowed={GPU: "2"}, partners=["b/quota"], namespaces=["a"],
)  # fmt: skip
REPORT = QueueReport({GPU: "12"}, ["proportion"], [ROOT, A, B, B1, C], [QUOTA])


def cells(lines: list[str], name: str) -> dict[str, str]:
    """One row of a table by the words of its header."""
    header = lines[0]
    words = [word for word in header.split("   ") if word]
    starts = [header.index(word) for word in words]
    row = next(line for line in lines if line.split("   ")[0] == name)
    ends = [*starts[1:], None]
    return {word.strip(): row[start:end].strip() for word, start, end in zip(words, starts, ends, strict=True)}


def test_a_table_has_one_line_a_queue() -> None:
    row = cells(queue_table(REPORT, wide=False, now=NOW), "a")
    assert row == {
        "NAME": "a",
        "STATE": "Open",
        "WEIGHT": "2",
        "DESERVED": "cpu=8,gpu=4",  # memory is nothing to a queue that neither uses nor names it
        "USED": "cpu=6,gpu=6",
        "SHARE": "50.0%",
        "PENDING": "gpu=2",
        "GANGS": "2/1",
        "BORROWED": "gpu=3",
        "START": "<none>",
        "WAITS FOR": "QuotaExceeded",
    }


def test_wide_table_shows_lenders_and_full_sentences() -> None:
    row = cells(queue_table(REPORT, wide=True, now=NOW), "a")
    assert (row["PARENT"], row["FROM"], row["FIRST"]) == ("root", "b", "gang ns/g")
    assert row["WAITS FOR"] == "QuotaExceeded: Queue a: 6 gpu in use (free 2 gpu)"


def test_fault_is_marked_in_its_row_and_explained_below() -> None:
    lines = queue_table(REPORT, wide=False, now=NOW)
    assert cells(lines, "b")["STATE"] == "Open (fault)"
    assert cells(lines, "b1")["STATE"] == "Closed"
    assert lines[-3:] == ["! b: Queue b: weight is 0", "! b: Odd: looks odd", "! b1: closed"]


def test_the_tree_has_branches() -> None:
    names = [line.split("   ")[0].split(" █")[0].rstrip() for line in queue_tree(REPORT)[1:6]]
    assert names == ["root", "├─ a", "├─ b", "│  └─ b1", "└─ c"]


def test_tree_omits_empty_values() -> None:
    root = queue_tree(REPORT)[1]
    assert root.startswith("root")
    assert root.endswith("-")


def test_deserved_share_of_an_idle_queue_is_shown() -> None:
    idle = QueueEntry(name="q", state="Open", weight=1, used={}, deserved={"cpu": "24"}, dominant="cpu")
    assert cells(queue_table(QueueReport({}, [], [idle], []), wide=False, now=NOW), "q")["DESERVED"] == "cpu=24"


def test_borrowing_is_not_drawn_where_no_queue_has_a_share() -> None:
    used = QueueEntry(name="q", state="Open", weight=1, used={GPU: "6"}, share=50.0, dominant=GPU)
    drawn = queue_tree(QueueReport({GPU: "12"}, [], [used], []))[1]
    assert "█" in drawn
    assert "▓" not in drawn


def test_tree_shows_loans_and_faults() -> None:
    lines = queue_tree(REPORT)
    assert "weight 2; borrows 3 gpu from b; 1 pod pending; waits: QuotaExceeded" in lines[2]
    assert "lends 3 gpu to a; ! Queue b: weight is 0; ! Odd: looks odd" in lines[3]


@pytest.mark.parametrize(
    ("share", "own", "shown"),
    [
        (0, 0, "····"),
        (50, 50, "██··"),
        (75, 25, "█▓▓·"),
        (25, 75, "█░░·"),
        (0.1, 0, "▓···"),
        (250, 100, "████"),
    ],
)
def test_bar_distinguishes_own_from_borrowed_usage(share: float, own: float, shown: str) -> None:
    assert bar(share, own, 4) == shown


def test_everything_about_a_queue() -> None:
    text = "\n".join(describe_queue(A, NOW))
    assert "Share:           50.0% of the cluster's nvidia.com/gpu; entitled to 25.0%" in text
    assert "Gangs:           2 running, 1 pending" in text
    assert "Borrows 3 nvidia.com/gpu from b" in text
    assert "  deserved share: 4 nvidia.com/gpu" in text
    assert "First waiting: gang ns/g (QuotaExceeded)\n  Queue a: 6 gpu in use\n  Fix: free 2 gpu" in text
    amounts = next(line for line in text.splitlines() if line.startswith(GPU))
    assert amounts.split() == [GPU, "-", "4", "3", "-", "6", "-", "2", "3", "-"]


def test_eviction_protection_is_shown_where_it_is_configured() -> None:
    plain = "\n".join(describe_quota(QUOTA, NOW))
    assert "Evictions" not in plain
    assert "Protected" not in plain
    assert "Self-protection" not in plain
    limited = msgspec.structs.replace(
        QUOTA, min_run_time="1h30m", eviction_rate="10/1m", self_protection="none", max_protection_time="2h"
    )
    text = "\n".join(describe_quota(limited, NOW))
    assert re.search(r"Self-protection: +none for at most 2h after a pod is bound", text)
    assert re.search(r"Protected for: +1h30m after a pod is bound", text)
    assert re.search(r"Evictions: +at most 10 pods within 1m", text)


def test_everything_about_a_queue_with_nothing_in_it() -> None:
    text = "\n".join(describe_queue(C, NOW))
    assert "no amounts declared, used or requested" in text
    assert text.endswith("Waiting: none")


def test_quotas_have_a_table_a_tree_and_a_page() -> None:
    row = cells(quota_table(REPORT, wide=False), "a/quota")
    assert (row["MIN"], row["MAX"], row["USED"], row["BORROWED"]) == ("gpu=4", "gpu=6", "gpu=6", "gpu=2")
    assert "RUNTIME" not in row
    assert "4 gpu / 6 gpu" in quota_tree(REPORT)[1]
    assert "Borrows 2 nvidia.com/gpu from b/quota" in describe_quota(QUOTA, NOW)


def test_missing_quotas_are_stated() -> None:
    empty = QueueReport({}, [], [], [])
    assert quota_table(empty, wide=False) == quota_tree(empty)
    assert "no quotas" in quota_table(empty, wide=False)[0]


def test_resources_keep_their_domain_where_two_share_a_name() -> None:
    assert brief({"a.com/gpu": "1", "b.com/gpu": "2", "cpu": "3"}) == "a.com/gpu=1,b.com/gpu=2,cpu=3"


def test_columns_have_minimal_width_and_empty_cells_a_placeholder() -> None:
    assert columns(["A", "B"], [["long", ""], ["", "x"]]) == ["A        B", "long     <none>", "<none>   x"]
