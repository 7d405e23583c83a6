"""Incomplete objects, and objects invalidated by other ones, are reported as the scheduler would treat them."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from phalanx.admission.webhook.registration import RegistrationOptions, WebhookAddress, configurations
from phalanx.reports.migration.examine import Examiner
from phalanx.reports.migration.findings import MigrationVerdict
from phalanx.reports.migration.steps import read_webhook, summary

from .examined import READERS, examined, objected_in

# --- objects without a spec

WITHOUT_SPEC = [
    ("scheduling.volcano.sh/v1beta1", "PodGroup", MigrationVerdict.WORKS),
    ("scheduling.volcano.sh/v1beta1", "Queue", MigrationVerdict.WORKS),
    ("scheduling.x-k8s.io/v1alpha1", "ElasticQuota", MigrationVerdict.WORKS),
    ("topology.volcano.sh/v1alpha1", "HyperNode", MigrationVerdict.WORKS),
    ("batch.volcano.sh/v1alpha1", "Job", MigrationVerdict.NOT_HONOURED),
]


@pytest.mark.parametrize(("api_version", "kind", "verdict"), WITHOUT_SPEC, ids=[each[1] for each in WITHOUT_SPEC])
def test_object_without_a_spec_is_reported_as_its_reader_treats_it(
    api_version: str, kind: str, verdict: MigrationVerdict
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
    assert found.verdict is MigrationVerdict.WORKS
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
    assert told["spec.nodeSelector.matchLabels.pool"] is MigrationVerdict.WORKS


# --- webhooks

OURS = configurations(
    RegistrationOptions(address=WebhookAddress(url="https://x"), scheduler_names=("phalanx",)), b""
)


def clashing(*configured: Any) -> str:
    queue = "apiVersion: scheduling.volcano.sh/v1beta1\nkind: Queue\nmetadata: {name: q}\nspec: {}\n"
    steps = summary(examined(queue), [read_webhook(each, False) for each in configured]).steps
    return "".join(step for step in steps if step.startswith("webhooks"))


@pytest.mark.parametrize("ours", OURS, ids=[each["kind"] for each in OURS])
def test_deletion_of_our_own_webhooks_is_never_suggested(ours: dict[str, Any]) -> None:
    assert clashing(ours) == ""
    labels = {"app.kubernetes.io/name": "phalanx", "app.kubernetes.io/managed-by": "Helm"}
    assert clashing({**ours, "metadata": {"name": "team-volcano-webhook", "labels": labels}}) == ""
    assert clashing({**ours, "metadata": {"name": "team-volcano-webhook"}}) == ""


def test_webhook_named_like_ours_is_reported() -> None:
    rules = [{"apiGroups": ["batch.volcano.sh"]}]
    hooks = [{"name": "jobs.volcano.sh", "rules": rules}]
    labels = {"app.kubernetes.io/name": "volcano"}
    assert "phalanx-webhook" in clashing(
        {"metadata": {"name": "phalanx-webhook", "labels": labels}, "webhooks": hooks}
    )


# --- HyperNodes


def hypernode(name: str, tier: int, *members: str) -> str:
    nested = ", ".join(f"{{type: HyperNode, selector: {{exactMatch: {{name: {each}}}}}}}" for each in members)
    head = f"apiVersion: topology.volcano.sh/v1alpha1\nkind: HyperNode\nmetadata: {{name: {name}}}\n"
    return f"{head}spec: {{tier: {tier}, members: [{nested}]}}\n"


def test_hypernode_with_a_missing_member_is_reported_in_the_words_of_the_scheduler() -> None:
    told = objected_in(hypernode("rack", 2, "gone"))["spec.members[0].selector.exactMatch.name"]
    assert (told.verdict, told.message) == (
        MigrationVerdict.CHANGE,
        "there is no HyperNode gone that can be its member",
    )


def test_hypernode_that_is_its_own_member_is_reported_in_the_words_of_the_scheduler() -> None:
    told = objected_in(hypernode("rack", 2, "rack"))["spec.members[0].selector.exactMatch.name"]
    assert "cannot be its member" in told.message


def test_hypernodes_that_fit_together_work_as_they_are() -> None:
    found = examined(hypernode("zone", 2, "rack"), hypernode("rack", 1))
    assert {each.verdict for each in found} == {MigrationVerdict.WORKS}


def test_members_of_hypernodes_are_not_checked_after_an_incomplete_list() -> None:
    examiner = Examiner(readers=READERS)
    examiner.references.partial.add("HyperNode")
    examiner.add(yaml.safe_load(hypernode("rack", 2, "gone")))
    assert [each.verdict for each in examiner.found] == [MigrationVerdict.WORKS]


# --- names


@pytest.mark.parametrize(
    ("metadata", "words"),
    [("{}", "has no name"), ("{name: ''}", "has no name"), ("{name: 5}", "5 is not a string")],
)
@pytest.mark.parametrize("kind", ["Queue", "PodGroup"])
def test_invalid_name_is_reported(kind: str, metadata: str, words: str) -> None:
    text = f"apiVersion: scheduling.volcano.sh/v1beta1\nkind: {kind}\nmetadata: {metadata}\nspec: {{}}\n"
    told = objected_in(text)["metadata.name"]
    assert told.verdict is MigrationVerdict.NOT_HONOURED
    assert words in told.message


# --- policies


@pytest.mark.parametrize("data", ["[a]", "{volcano-scheduler.conf: 5}", "{}", "null"])
def test_config_map_of_volcanos_scheduler_without_a_policy_is_reported(data: str) -> None:
    head = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: volcano-scheduler-configmap}\n"
    assert "contains no policy" in objected_in(f"{head}data: {data}\n")["data"].message
    assert not examined(f"{head.replace('volcano-scheduler-configmap', 'other')}data: {data}\n")


# --- words of which the API server knows all


def test_value_that_the_api_server_would_refuse_is_reported() -> None:
    told = objected_in("""
apiVersion: batch.volcano.sh/v1alpha1
kind: CronJob
metadata: {name: c, namespace: t}
spec:
  schedule: "0 0 * * *"
  concurrencyPolicy: Sometimes
  jobTemplate: {spec: {tasks: [{name: w, replicas: 1, template: {spec: {containers: [{name: c, image: x}]}}}]}}
""")
    assert list(told) == ["spec.concurrencyPolicy"]
    assert "Allow, Forbid, Replace" in told["spec.concurrencyPolicy"].message


# --- amounts that a group announces


def test_the_number_of_pods_that_a_group_announces_is_read_by_either_name() -> None:
    head = "apiVersion: scheduling.volcano.sh/v1beta1\nkind: PodGroup\nmetadata: {name: g, namespace: t}\n"
    assert not objected_in(f'{head}spec: {{minMember: 1, minResources: {{count/pods: "5"}}}}\n')


def test_group_created_by_a_controller_needs_no_change() -> None:
    text = """
apiVersion: scheduling.volcano.sh/v1beta1
kind: PodGroup
metadata: {name: g, namespace: t OWNERS}
spec: {minMember: 1, minResources: {count/pods: "1", pods: "1", requests.cpu: "1", limits.cpu: "1", cpu: "1"}}
"""
    owners = ", ownerReferences: [{apiVersion: batch.volcano.sh/v1alpha1, kind: Job, name: j, controller: true}]"
    assert not objected_in(text.replace(" OWNERS", owners))
    written = objected_in(text.replace(" OWNERS", ""))
    # (Its limits count against quotas.)
    assert set(written) == {"spec.minResources[requests.cpu]"}


# --- how long a group may wait

JOB = """
apiVersion: batch.volcano.sh/v1alpha1
kind: Job
metadata: {name: a, namespace: t, annotations: {KEY: VALUE}}
spec: {tasks: [{name: w, replicas: 1, template: {spec: {containers: [{name: c, image: x}]}}}]}
"""
GROUP = """
apiVersion: scheduling.volcano.sh/v1beta1
kind: PodGroup
metadata: {name: a, namespace: t, annotations: {KEY: VALUE}}
spec: {minMember: 1}
"""


@pytest.mark.parametrize("text", [JOB, GROUP], ids=["Job", "PodGroup"])
@pytest.mark.parametrize("key", ["sla-waiting-time", "volcano.sh/sla-waiting-time"])
def test_waiting_time_of_a_group_is_read_and_an_invalid_one_reported(text: str, key: str) -> None:
    field = f"metadata.annotations[{key}]" if "/" in key else f"metadata.annotations.{key}"
    (found,) = examined(text.replace("KEY", key).replace("VALUE", "1h"))
    assert {each.field: each.verdict for each in found.fields}[field] is MigrationVerdict.WORKS
    told = objected_in(text.replace("KEY", key).replace("VALUE", "banana"))[field]
    assert told.verdict is MigrationVerdict.CHANGE
    assert "banana" in told.message


# --- the field at fault


def test_flow_step_without_a_dependency_target_is_reported_at_its_field() -> None:
    told = objected_in("""
apiVersion: flow.volcano.sh/v1alpha1
kind: JobFlow
metadata: {name: f, namespace: t}
spec: {flows: [{name: a}, {name: b, dependsOn: {targets: [a]}}, {name: c, dependsOn: {targets: [missing]}}]}
""")
    assert list(told) == ["spec.flows[2].dependsOn.targets[0]"]


def test_schedule_and_its_time_zone_are_reported_separately() -> None:
    def cron_job(schedule: str, zone: str) -> str:
        job = "{tasks: [{name: w, replicas: 1, template: {spec: {containers: [{name: c, image: x}]}}}]}"
        head = "apiVersion: batch.volcano.sh/v1alpha1\nkind: CronJob\nmetadata: {name: c, namespace: t}\n"
        return f'{head}spec: {{schedule: "{schedule}", timeZone: {zone}, jobTemplate: {{spec: {job}}}}}\n'

    assert list(objected_in(cron_job("0 0 * * *", "Mars/X"))) == ["spec.timeZone"]
    assert list(objected_in(cron_job("never", "Europe/Berlin"))) == ["spec.schedule"]
    both = objected_in(cron_job("never", "Mars/X"))
    assert set(both) == {"spec.schedule", "spec.timeZone"}
    assert "timeZone" in both["spec.timeZone"].message


# --- settings of other schedulers without an equivalent


@pytest.mark.parametrize(
    ("text", "field", "advice"),
    [
        (
            "apiVersion: scheduling.k8s.io/v1\nkind: PriorityClass\nvalue: 10\nmetadata:\n  name: patient\n"
            "  annotations:\n    preemption-toleration.scheduling.x-k8s.io/toleration-seconds: '3600'\n",
            "metadata.annotations[preemption-toleration.scheduling.x-k8s.io/toleration-seconds]",
            "phalanx.dev/min-run-time",
        ),
        (
            "apiVersion: v1\nkind: Pod\nmetadata:\n  name: p\n  namespace: t\n  annotations:\n"
            "    volcano.sh/last-checkpoint-time: '2026-11-28T00:00:00Z'\n"
            "spec: {schedulerName: volcano, containers: []}\n",
            "metadata.annotations[volcano.sh/last-checkpoint-time]",
            "phalanx.dev/min-run-time",
        ),
        (
            "apiVersion: scheduling.volcano.sh/v1beta1\nkind: NamespaceQueue\nmetadata: {name: q, namespace: t}\n"
            "spec: {queue: research}\n",
            "spec.queue",
            "scheduling.volcano.sh/queue-name",
        ),
        (
            "apiVersion: scheduling.volcano.sh/v1beta1\nkind: Queue\nmetadata: {name: q}\n"
            "spec: {weight: 1, allowedNamespaces: [a, b]}\n",
            "spec.allowedNamespaces",
            "right `use`",
        ),
    ],
    ids=["priority class", "checkpoint", "namespace queue", "allowed namespaces"],
)
def test_setting_without_an_equivalent_is_named_with_what_to_do_instead(text: str, field: str, advice: str) -> None:
    found = {name: said for name, said in objected_in(text).items() if name.startswith(field)}
    assert found
    assert all(advice in said.message and said.verdict is MigrationVerdict.NOT_HONOURED for said in found.values())


def test_priority_class_without_a_toleration_is_no_finding() -> None:
    head = "apiVersion: scheduling.k8s.io/v1\nkind: PriorityClass\n"
    assert examined(f"{head}value: 10\nmetadata: {{name: plain}}\n") == []
