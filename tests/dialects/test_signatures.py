"""Signed annotations: trusted only on the pod for which we signed them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phalanx.dialects.core import PodObject
from phalanx.dialects.gangs.plan_marks import PLAN_ANNOTATION, decode_mark, encode_mark
from phalanx.dialects.intake import Intake
from phalanx.dialects.signatures import Signer
from phalanx.model.events import PodUpdated
from phalanx.model.gang import GangKey
from phalanx.model.pod import PlanMark
from tests.dialects.objects import pod

OLD, NEW = ("1000", b"o" * 32), ("2000", b"n" * 32)
SIGNER = Signer((NEW, OLD))
GANG = GangKey("team-a", "train")
MARK = PlanMark("c7-1900000000@group-uid", 4, 1_900_000_000)
MARKS = [MARK, PlanMark("a/b", 1, 0), PlanMark("ü\x00/9/9", 12, 3)]


@pytest.mark.parametrize("mark", MARKS)
def test_mark_is_read_back_as_written(mark: PlanMark) -> None:
    assert decode_mark(encode_mark(mark, SIGNER, "pod-uid", GANG), SIGNER, "pod-uid", GANG) == mark


@pytest.mark.parametrize(
    ("uid", "gang"),
    [
        ("another-uid", GANG),  # a copy: by its owner, or from a backup
        ("pod-uid", GangKey("team-a", "other")),
        ("pod-uid", GangKey("team-b", "train")),
        ("", GANG),
    ],
)
def test_mark_is_trusted_on_no_other_pod_and_for_no_other_gang(uid: str, gang: GangKey) -> None:
    assert decode_mark(encode_mark(MARK, SIGNER, "pod-uid", GANG), SIGNER, uid, gang) is None


@pytest.mark.parametrize(
    ("old", "new"), [("/4/", "/3/"), ("/1900000000/", "/1900000001/"), ("group-uid", "group-uie"), ("c7", "c8")]
)
def test_no_part_of_a_mark_can_be_changed(old: str, new: str) -> None:
    text = encode_mark(MARK, SIGNER, "pod-uid", GANG)
    assert old in text
    assert decode_mark(text.replace(old, new, 1), SIGNER, "pod-uid", GANG) is None


@pytest.mark.parametrize(
    "text",
    [
        "", "plan", "plan/4", "plan/4/1", "plan/four/1/1000.x", "/4/1/1000.x", "plan/0/1/1000.x",
        "plan/4/-1/1000.x",
        "p/4/" + "9" * 40 + "/1000.x", "c7/4/1900000000", "c7/4/1900000000/", "c7/4/1900000000/2000.", "c7/4/9/.",
        "c7/4/1900000000/2000.\ud800", "c7/4/1900000000/unknown.AAAAAAAAAAAAAAAAAAAAAA",
    ],
)  # fmt: skip
def test_unsigned_text_is_no_mark(text: str) -> None:
    assert decode_mark(text, SIGNER, "pod-uid", GANG) is None


@given(st.text(), st.text(), st.lists(st.text(), max_size=3))
def test_absent_text_is_not_trusted_and_no_fault(plan: str, signature: str, rest: list[str]) -> None:
    assert decode_mark("/".join([plan, *rest, "4", "7", signature]), SIGNER, "pod-uid", GANG) is None


def test_key_is_rotated_by_adding_one() -> None:
    text = encode_mark(MARK, Signer((OLD,)), "pod-uid", GANG)
    assert decode_mark(text, SIGNER, "pod-uid", GANG) == MARK
    assert encode_mark(MARK, SIGNER, "pod-uid", GANG).rpartition("/")[2].startswith("2000.")
    assert decode_mark(text, Signer((NEW,)), "pod-uid", GANG) is None


def test_without_a_key_no_mark_is_trusted_not_even_one_written_without_a_key() -> None:
    keyless = Signer()
    assert decode_mark(encode_mark(MARK, keyless, "pod-uid", GANG), keyless, "pod-uid", GANG) is None


def test_parts_of_a_mark_cannot_be_shifted_from_one_to_the_next() -> None:
    assert not SIGNER.believes(SIGNER.sign("ab", "c"), "a", "bc")
    assert not SIGNER.believes(SIGNER.sign("a", 1), "a", "1")


def test_reader_without_the_keys_reads_marks_unverified() -> None:
    text = encode_mark(MARK, SIGNER, "pod-uid", GANG)
    assert decode_mark(text, Signer(unchecked=True), "pod-uid", GANG) == MARK


# Intake


def member(name: str, text: str, node: str = "n1") -> PodObject:
    labels = {"pod-group.scheduling.sigs.k8s.io/name": "train"}
    return pod(name, namespace="team-a", node=node, labels=labels, annotations={PLAN_ANNOTATION: text})


def test_mark_on_a_copied_pod_is_ignored_and_reported_once() -> None:
    told: list[tuple[str, str, str]] = []
    intake = Intake(["phalanx"], signer=SIGNER, distrust=lambda *about: told.append(about))
    ours = member("a", "")
    ours.metadata.annotations[PLAN_ANNOTATION] = encode_mark(MARK, SIGNER, ours.metadata.uid, GANG)
    text = ours.metadata.annotations[PLAN_ANNOTATION]
    marks = [
        event.pod.mark
        for each in (ours, member("copy", text), member("copy", text))
        for event in intake.pod(each)
        if isinstance(event, PodUpdated)
    ]
    assert marks == [MARK, None]
    assert told == [(PLAN_ANNOTATION, "team-a", "copy")]


def test_mark_of_another_scheduler_on_its_own_pods_is_not_reported() -> None:
    told: list[tuple[str, str, str]] = []
    intake = Intake(["phalanx-two"], signer=SIGNER, distrust=lambda *about: told.append(about))
    intake.pod(member("a", "signed by another key"))
    assert told == []


def test_signature_of_this_process_is_no_longer_valid_once_its_key_is_replaced() -> None:
    signer = Signer((("1", b"k" * 32),))
    signature = signer.sign("subject", "uid", 1)
    signer.use((("2", b"l" * 32),))
    assert not signer.believes(signature, "subject", "uid", 1)


def test_signature_of_this_process_is_valid_each_time_and_for_its_parts_alone() -> None:
    signer = Signer((("1", b"k" * 32),))
    signature = signer.sign("subject", "uid", 1)
    answers = [signer.believes(signature, "subject", uid, 1) for uid in ("other", "uid", "uid", "other")]
    assert answers == [False, True, True, False]
