"""Objects that are not whole, or that only others make wrong, are told as the scheduler would take them."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from phalanx.admission.webhook.registration import RegistrationOptions, WebhookAddress, configurations
from phalanx.reports.migration.examine import Examiner
from phalanx.reports.migration.findings import FieldFinding, ObjectFinding, Verdict
from phalanx.reports.migration.readers import Readers
from phalanx.reports.migration.steps import read_webhook, summary

READERS = Readers()


def examined(*texts: str) -> list[ObjectFinding]:
    examiner = Examiner(readers=READERS)
    examiner.add_all(document for text in texts for document in yaml.safe_load_all(text))
    return examiner.found


def objected(text: str) -> dict[str, FieldFinding]:
    (found,) = examined(text)
    return {each.field: each for each in found.fields if each.verdict is not Verdict.WORKS}


# --- objects without a spec

WITHOUT_SPEC = [
    ("scheduling.volcano.sh/v1beta1", "PodGroup", Verdict.WORKS),
    ("scheduling.volcano.sh/v1beta1", "Queue", Verdict.WORKS),
    ("scheduling.x-k8s.io/v1alpha1", "ElasticQuota", Verdict.WORKS),
    ("topology.volcano.sh/v1alpha1", "HyperNode", Verdict.WORKS),
    ("batch.volcano.sh/v1alpha1", "Job", Verdict.NOT_HONOURED),
]


@pytest.mark.parametrize(("api_version", "kind", "verdict"), WITHOUT_SPEC, ids=[each[1] for each in WITHOUT_SPEC])
def test_an_object_without_a_spec_is_what_its_reader_makes_of_it(
    api_version: str, kind: str, verdict: Verdict
) -> None:
    head = f"apiVersion: {api_version}\nkind: {kind}\nmetadata: {{name: a, namespace: t}}\n"
    for text in (head, f"{head}spec: null\n"):
        (found,) = examined(text)
        assert found.verdict is verdict
        assert not any("cannot be read" in each.message for each in found.fields)


def test_a_command_has_no_spec_and_is_carried_out() -> None:
    (found,) = examined("""
apiVersion: bus.volcano.sh/v1alpha1
kind: Command
metadata: {name: c, namespace: t}
action: AbortJob
target: {apiVersion: batch.volcano.sh/v1alpha1, kind: Job, name: j, uid: u}
reason: r
""")
    assert found.verdict is Verdict.WORKS
    assert {"action", "target.name", "reason"} <= {each.field for each in found.fields}


# --- quotas over nodes


def test_the_nodes_of_a_quota_tree_are_honoured() -> None:
    (found,) = examined("""
apiVersion: quota.koordinator.sh/v1alpha1
kind: ElasticQuotaProfile
metadata: {name: p, namespace: kube-system, labels: {quota.scheduling.koordinator.sh/tree-id: t}}
spec: {quotaName: pool, quotaLabels: {}, nodeSelector: {matchLabels: {pool: gpu}}}
""")
    told = {each.field: each.verdict for each in found.fields}
    assert told["spec.nodeSelector.matchLabels.pool"] is Verdict.WORKS


# --- webhooks

OURS = configurations(
    RegistrationOptions(address=WebhookAddress(url="https://x"), scheduler_names=("phalanx",)), b""
)


def clashing(*configured: Any) -> str:
    queue = "apiVersion: scheduling.volcano.sh/v1beta1\nkind: Queue\nmetadata: {name: q}\nspec: {}\n"
    steps = summary(examined(queue), [read_webhook(each, False) for each in configured]).steps
    return "".join(step for step in steps if step.startswith("webhooks"))


@pytest.mark.parametrize("ours", OURS, ids=[each["kind"] for each in OURS])
def test_nobody_is_told_to_delete_our_own_webhooks(ours: dict[str, Any]) -> None:
    assert clashing(ours) == ""
    labels = {"app.kubernetes.io/name": "phalanx", "app.kubernetes.io/managed-by": "Helm"}
    assert clashing({**ours, "metadata": {"name": "team-volcano-webhook", "labels": labels}}) == ""
    assert clashing({**ours, "metadata": {"name": "team-volcano-webhook"}}) == ""


def test_a_webhook_that_is_only_called_like_ours_is_told() -> None:
    rules = [{"apiGroups": ["batch.volcano.sh"]}]
    hooks = [{"name": "jobs.volcano.sh", "rules": rules}]
    labels = {"app.kubernetes.io/name": "volcano"}
    assert "phalanx-webhook" in clashing(
        {"metadata": {"name": "phalanx-webhook", "labels": labels}, "webhooks": hooks}
    )
