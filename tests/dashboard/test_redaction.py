"""Rows and answers for a viewer who sees only the namespace `ours`: fields are filtered, texts are never
trusted.
"""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from phalanx.dashboard.access import Viewer
from phalanx.dashboard.redaction import Redaction
from phalanx.dashboard.rows.entries import (
    ClusterRow,
    ClusterSummary,
    DispatchRow,
    EvictionRow,
    GangAnswer,
    GangRow,
    Mark,
    MemberLine,
    QueueRow,
    ReservationRow,
    SummaryRow,
    WhatIfReply,
)
from phalanx.dashboard.scope import Scope
from phalanx.hub.dispatch_answer import ClusterAnswer, DispatchAnswer, EndedAttempt
from phalanx.model.verdict import NamedObject, NodeCount, Objects
from phalanx.reports.account_entries import FirstWaiting, QueueEntry, QuotaEntry, SubqueueEntry
from phalanx.reports.evicted_members import EvictedMembers
from phalanx.reports.eviction_entries import EvictionPreview, EvictionReasons, NodeRoom, PreviewedPod
from phalanx.reports.whatif.answer import AskedStart, Starts, WaitSummary, WhatIfAnswer
from phalanx.reports.whatif.answer import NodeRoom as StartRoom
from phalanx.reports.why_answer import GroupLine, WhyAnswer
from phalanx.views.gang_state import GangState
from phalanx.views.promises import PromisedStart

#: Text with this word names an object that the viewer may not see.
SECRET = "covert"
OURS, THEIRS = NamedObject("Gang", "train", "ours"), NamedObject("Gang", SECRET, "theirs")
TENANT = Redaction(Scope(Viewer("somebody"), "ours", False, False, True, frozenset({"q"})))
AUDITOR = Redaction(Scope(Viewer("auditor"), "", True, False, True, frozenset()))
EVERYBODY = Redaction(Scope(Viewer("admin")))


def gang_row(objects: Objects, message: str = SECRET) -> GangRow:
    return GangRow(
        id="ours/train",
        kind="PodGroup",
        namespace="ours",
        name="train",
        queue="mine",
        state=GangState.PENDING,
        reason="NotEnoughResources",
        message=message,
        change=message,
        brief="0 of 3 required pods fit",
        objects=objects,
    )


@pytest.mark.parametrize(
    ("objects", "shown"),
    [
        ((), True),
        ((OURS,), True),
        ((OURS, NamedObject("Queue", "q")), True),
        ((OURS, NamedObject("Queue", "mine")), True),
        ((NamedObject("Namespace", "ours"),), True),
        (None, False),
        ((OURS, THEIRS), False),
        ((NamedObject("Queue", "other"),), False),
        ((NamedObject("Queue", "mine", "theirs"), NamedObject("Node", "n")), False),
        ((NamedObject("Namespace", "theirs"),), False),
        ((NamedObject("User", "ada"),), False),
        ((NamedObject("Quota", "tree"),), False),
    ],
)
def test_text_is_shown_only_if_all_its_objects_are_known_and_seen(objects: Objects, shown: bool) -> None:
    row = TENANT.gang_row(gang_row(objects, "x"))
    assert (row.message, row.change) == (("x", "x") if shown else ("0 of 3 required pods fit", ""))
    assert (row.reason, row.objects) == ("NotEnoughResources", None)


def test_viewer_of_everything_reads_texts_about_unknown_objects() -> None:
    encoded = msgspec.json.encode(gang_row(None))
    assert EVERYBODY.row("gangs", encoded) == encoded
    assert EVERYBODY.shows(None)


def test_viewer_of_all_namespaces_without_nodes_reads_of_gangs_and_not_of_nodes() -> None:
    assert AUDITOR.shows((OURS, THEIRS))
    assert not AUDITOR.shows((OURS, NamedObject("Node", "n")))
    assert not AUDITOR.shows((NamedObject("Queue", "other"),))


def start() -> PromisedStart:
    return PromisedStart(postponements=[SECRET], reason="NotCalibrated", message=SECRET, moves_because=SECRET)


def account(**more: Any) -> dict[str, Any]:
    first = FirstWaiting(SECRET, "QuotaExceeded", SECRET, SECRET, start(), THEIRS, (THEIRS,))
    return dict(
        name="q", parent=SECRET, used={}, partners=[SECRET], first=first, fault=SECRET, warnings=[SECRET], **more
    )


ROWS = {
    "summary": SummaryRow(
        id="cluster",
        summary=ClusterSummary(
            current=True, nodes=1, closed_nodes=0, offered={}, used={}, states={}, reasons={}, warnings=[SECRET]
        ),
    ),
    "gangs": gang_row(None),
    "queues": QueueRow(
        id="queue/q",
        place=0,
        queue=QueueEntry(
            **account(
                state="Open",
                weight=1,
                tenants=[
                    SubqueueEntry(kind="namespace", name=SECRET, weight=1, used={}),
                    SubqueueEntry(kind="user", name=SECRET, weight=1, used={}),
                ],
            )
        ),
        quota=QuotaEntry(**account(family="f", namespaces=[SECRET, "ours"])),
    ),
    "evictions": EvictionRow(
        id="e", when="", namespace="ours", pod="p", reason="Preempted", message=SECRET, preemptor=THEIRS
    ),
    "reservations": ReservationRow(
        id="r", kind="reservation", title="t", start="", queue=SECRET, note=SECRET, nodes=[SECRET]
    ),
    "clusters": ClusterRow(id="c", reason="Away", message=SECRET),
    "dispatches": DispatchRow(
        id="ours/g",
        namespace="ours",
        name="g",
        created="",
        dispatch=DispatchAnswer(
            gang="ours/g",
            kind="PodGroup",
            phase="Pending",
            epoch=1,
            cluster="c",
            since="",
            promised="",
            unknownSince="",
            reason="NoCluster",
            message=SECRET,
            answers=[ClusterAnswer(cluster="c", message=SECRET)],
            attempts=[EndedAttempt(epoch=1, cluster="c", outcome="Lost", message=SECRET)],
            change="",
        ),
    ),
}


@pytest.mark.parametrize("table", ROWS)
def test_no_text_of_a_row_reaches_a_tenant_without_objects_that_it_sees(table: str) -> None:
    encoded = msgspec.json.encode(ROWS[table])
    assert SECRET.encode() in encoded
    assert SECRET.encode() not in TENANT.row(table, encoded)


def test_eviction_for_an_own_gang_names_it_by_its_field() -> None:
    row = EvictionRow(id="e", when="", namespace="ours", pod="p", reason="Preempted", message="x", preemptor=OURS)
    shown = msgspec.json.decode(TENANT.row("evictions", msgspec.json.encode(row)), type=EvictionRow)
    assert shown.preemptor == OURS
    assert shown.message == "evicted for a gang or pod of higher priority (Gang ours/train)"


def why() -> WhyAnswer:
    return WhyAnswer(
        "Gang",
        "ours/train",
        GangState.PENDING,
        SECRET,
        "NotEnoughResources",
        nodes=[NodeCount(SECRET, 2), NodeCount("Insufficient cpu", 1, "cpu")],
        change=SECRET,
        warnings=[SECRET],
        evictions=EvictionPreview(
            "Vain",
            SECRET,
            rooms=[NodeRoom(SECRET, 1)],
            overtaken=[f"theirs/{SECRET}"],
            pods=[PreviewedPod(f"theirs/{SECRET}", SECRET, SECRET, 3), PreviewedPod("ours/p", "train", SECRET)],
            reasons=[EvictionReasons(SECRET, [SECRET])],
            missing=SECRET,
            changes=[SECRET],
            paced=[SECRET],
        ),
        loss=EvictedMembers("PreemptionByScheduler", SECRET, pods=["ours/p"]),
        domain=SECRET,
        groups=[GroupLine("ours/g", GangState.PENDING, SECRET)],
        start=start(),
    )


def test_no_text_of_an_answer_reaches_a_tenant_and_its_own_names_and_counts_stay() -> None:
    answer = GangAnswer(
        row=gang_row((THEIRS,)),
        why=why(),
        members=[MemberLine(name="p", state="Terminating", cause=SECRET, reason="PreemptionByScheduler")],
        marks=[
            Mark(when="", what="Pending QuotaExceeded", message=SECRET),
            Mark(when="", what="Pending", message="x", objects=(OURS,)),
        ],
        problem=SECRET,
        omitted=[],
    )
    shown = TENANT.gang(answer)
    assert SECRET not in msgspec.json.encode(shown).decode()
    assert shown.why is not None
    assert shown.why.message == "0 of 3 required pods fit"
    assert [(each.resource, each.count) for each in shown.why.nodes] == [("cpu", 1)]
    assert shown.why.evictions is not None
    assert [(each.pod, each.gang, each.priority) for each in shown.why.evictions.pods] == [
        ("another pod", "", 3),
        ("ours/p", "train", 0),
    ]
    assert [each.message for each in shown.marks] == ["", "x"]
    assert EVERYBODY.gang(answer) is answer


def test_hypothetical_answer_hides_nodes_and_texts_from_viewers_without_nodes() -> None:
    asked = AskedStart(
        "ours/g",
        1,
        "Later",
        nodes=[StartRoom(SECRET, 1)],
        domains={SECRET: {SECRET: 1}},
        verdict=WaitSummary("NoEligibleNode", SECRET, {SECRET: 1}, SECRET),
    )
    nobody = Starts(0, 0, 0)
    reply = WhatIfReply(
        command="phalanx what-if",
        answer=WhatIfAnswer("", 0, [asked], nobody, nobody, notes=[SECRET], missing=[SECRET]),
    )
    assert SECRET not in msgspec.json.encode(AUDITOR.what_if(reply)).decode()
    assert EVERYBODY.what_if(reply) is reply
