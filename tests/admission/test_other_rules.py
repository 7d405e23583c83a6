"""PodGroups, pods, CronJobs, JobFlows and HyperNodes: defaults and refusals."""

from __future__ import annotations

import json
from typing import Any

import pytest

from phalanx.admission import cron_jobs, hyper_nodes, job_flows, pod_groups, pods
from phalanx.admission.context import AdmissionContext
from phalanx.admission.pods import ResourceGroupError, read_resource_groups
from tests.admission.objects import changed, cluster, job, queue, task

Json = dict[str, Any]
NOWHERE = AdmissionContext()
MIN, MAX = "volcano.sh/jdb-min-available", "volcano.sh/jdb-max-unavailable"
TIERS = {"highestTierAllowed": 1, "highestTierName": "rack"}


# --- PodGroups


def group(queue: str | None = "default", **spec: Any) -> Json:
    named = {} if queue is None else {"queue": queue}
    return {"metadata": {"name": "g", "namespace": "team"}, "spec": {"minMember": 1, **named, **spec}}


def of_namespace(**annotations: str) -> AdmissionContext:
    return AdmissionContext(namespace={"metadata": {"name": "team", "annotations": annotations}})


@pytest.mark.parametrize(
    ("stated", "given", "then"),
    [
        ("default", "team-q", "team-q"),
        (None, "team-q", "team-q"),
        ("mine", "team-q", "mine"),
        ("default", "", "default"),
        ("default", "default", "default"),
    ],
)
def test_a_group_waits_in_the_queue_of_its_namespace(stated: str | None, given: str, then: str) -> None:
    context = of_namespace(**({"scheduling.volcano.sh/queue-name": given} if given else {}))
    built = pod_groups.defaults(group(stated), context)
    assert built.document["spec"].get("queue") == then
    assert pod_groups.defaults(built.document, context).patch == []


@pytest.mark.parametrize(
    ("document", "words"),
    [
        (group(), ""),
        (group("open"), ""),
        (group(None), ""),
        (group("gone"), 'unable to find queue: queue.scheduling.volcano.sh "gone" not found'),
        (group("closed"), "can only submit PodGroup to queue with state `Open`, queue `closed` status is `Closed`"),
        (group("root"), "can not submit PodGroup to root queue"),
        (group("parent"), "can only submit PodGroup to leaf queue, queue `parent` has 1 child queues"),
        (
            group(networkTopology=TIERS),
            "must not specify 'highestTierAllowed' and 'highestTierName' in networkTopology simultaneously.",
        ),
        (
            group(subGroupPolicy=[{"name": "a"}, {"name": "b", "networkTopology": TIERS}]),
            "in subGroupPolicy 'b': must not specify 'highestTierAllowed' and 'highestTierName' in networkTopology "
            "simultaneously.",
        ),
    ],
)
def test_a_group_needs_a_queue_that_takes_it(document: Json, words: str) -> None:
    context = cluster(queue("open"), queue("closed", state="Closed"), queue("parent"), queue("child", "parent"))
    assert " ".join(pod_groups.validate(document, None, context)) == words


def test_a_group_that_stays_is_not_asked_again() -> None:
    context = cluster(queue("closed", state="Closed"))
    before = group("closed", networkTopology=TIERS)
    assert pod_groups.validate(changed(before, "metadata.labels", {}), before, context) == []
    assert pod_groups.validate(group("closed"), group("closed", minMember=2), context) == []
    assert pod_groups.validate(group("closed"), group("default"), context) != []


# --- pods


def pod(scheduler: str = "phalanx", /, **annotations: str) -> Json:
    return {
        "metadata": {"name": "p", "namespace": "team", "annotations": annotations},
        "spec": {"schedulerName": scheduler, "containers": []},
    }


@pytest.mark.parametrize(
    ("document", "words"),
    [
        (pod(), ""),
        (pod(**{MIN: "3"}), ""),
        (pod(**{MAX: "50%"}), ""),
        (pod("default-scheduler", **{MIN: "-3"}), ""),
        (pod(**{MIN: "-3"}), f'invalid value <"-3"> for {MIN}, it must be a positive integer'),
        (pod(**{MAX: "0"}), f'invalid value <"0"> for {MAX}, it must be a positive integer'),
        (
            pod(**{MIN: "0%"}),
            f'invalid value <"0%"> for {MIN}, it must be a valid percentage which between 1% ~ 99%',
        ),
        (pod(**{MAX: "100%"}), "it must be a valid percentage which between 1% ~ 99%"),
        (pod(**{MIN: "many"}), f"for {MIN}"),
        (pod(**{MIN: "1", MAX: "1"}), f"not allow configure multiple annotations <[{MIN} {MAX}]> at same time"),
    ],
)
def test_the_budget_of_a_pod_s_job_is_a_number_or_a_share(document: Json, words: str) -> None:
    said = " ".join(pods.validate(document, None, NOWHERE))
    assert words in said
    assert bool(words) is bool(said)
    assert pods.validate(document, document, NOWHERE) == []


GROUPS = json.dumps(
    {
        "resourceGroups": [
            {
                "resourceGroup": "management",
                "object": {"key": "namespace", "value": ["mng-ns-1"]},
                "schedulerName": "default-scheduler",
                "tolerations": [{"effect": "NoSchedule", "key": "taint", "operator": "Exists"}],
                "labels": {"volcano.sh/nodetype": "management"},
                "affinity": '{"nodeAffinity": {"x": 1}}',
            },
            {
                "resourceGroup": "cpu",
                "object": {"key": "annotation", "value": ["volcano.sh/resource-group: cpu"]},
                "schedulerName": "phalanx",
                "labels": {"volcano.sh/nodetype": "cpu"},
            },
            {"resourceGroup": "gpu", "labels": {"volcano.sh/nodetype": "gpu"}},
        ]
    }
).encode()


def filled(document: Json) -> Json:
    context = AdmissionContext(resource_groups=read_resource_groups(GROUPS))
    built = pods.defaults(document, context)
    assert pods.defaults(built.document, context).patch == []
    return built.document


def test_pods_get_the_settings_of_the_resource_group_of_their_namespace() -> None:
    document = changed(pod(), "metadata.namespace", "mng-ns-1")
    document["spec"] |= {"nodeSelector": {"disk": "ssd"}, "tolerations": [{"key": "own"}]}
    spec = filled(document)["spec"]
    assert spec["nodeSelector"] == {"disk": "ssd", "volcano.sh/nodetype": "management"}
    assert [each["key"] for each in spec["tolerations"]] == ["own", "taint"]
    assert spec["affinity"] == {"nodeAffinity": {"x": 1}}
    assert spec["schedulerName"] == "default-scheduler"


def test_an_affinity_of_its_own_stays() -> None:
    document = changed(pod(), "metadata.namespace", "mng-ns-1")
    document["spec"]["affinity"] = {"podAffinity": {}}
    assert filled(document)["spec"]["affinity"] == {"podAffinity": {}}


@pytest.mark.parametrize(("value", "selector"), [("cpu", "cpu"), ("gpu", "gpu"), ("other", None)])
def test_pods_name_their_resource_group_in_an_annotation(value: str, selector: str | None) -> None:
    spec = filled(pod(**{"volcano.sh/resource-group": value}))["spec"]
    assert (spec.get("nodeSelector") or {}).get("volcano.sh/nodetype") == selector


def test_a_pod_of_no_group_is_left_alone() -> None:
    assert filled(pod()) == pod()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"a: b: c", "no YAML"),
        (b"resourceGroups: many", "resourceGroups must be a list"),
        (b"[1]", "resourceGroups must be a list"),
        (b"resourceGroups: [1]", "resourceGroups[0] must be an object"),
        (b"resourceGroups: [{object: {key: colour}}]", "resourceGroups[0].object.key is 'colour'"),
        (
            b"resourceGroups: [{object: {key: annotation, value: [cpu]}}]",
            "resourceGroups[0].object.value has 'cpu'",
        ),
        (b"resourceGroups: [{labels: [a]}]", "resourceGroups[0]: "),
        (b"resourceGroups: [{affinity: '{'}]", "resourceGroups[0]: "),
    ],
)
def test_a_configuration_that_cannot_be_meant_is_named(content: bytes, words: str) -> None:
    with pytest.raises(ResourceGroupError) as error:
        read_resource_groups(content)
    assert words in str(error.value)


def test_no_configuration_has_no_groups() -> None:
    assert read_resource_groups(b"") == ()


def test_a_pod_that_asks_for_it_waits_for_its_queue_behind_a_gate() -> None:
    asking = pod(**{pods.QUEUE_GATE: "true"})
    gate = {"name": pods.QUEUE_GATE}
    assert filled(asking)["spec"]["schedulingGates"] == [gate]
    also = changed(asking, "spec.schedulingGates", [{"name": "other"}])
    assert filled(also)["spec"]["schedulingGates"] == [{"name": "other"}, gate]
    for other in (pod("default-scheduler", **{pods.QUEUE_GATE: "true"}), pod(**{pods.QUEUE_GATE: "false"})):
        assert "schedulingGates" not in filled(other)["spec"]


# --- CronJobs


def cron_job(schedule: str = "*/5 * * * *", name: str = "nightly", **spec: Any) -> Json:
    return {
        "metadata": {"name": name, "namespace": "team"},
        "spec": {"schedule": schedule, "jobTemplate": {"spec": job(queue="gone")["spec"]}, **spec},
    }


@pytest.mark.parametrize(
    ("document", "words"),
    [
        (cron_job(), ""),
        (cron_job("@daily", timeZone="Europe/Berlin"), ""),
        (cron_job("@every 1h30m"), ""),
        (cron_job("0 22 * * MON-FRI"), ""),
        (cron_job("0 0 1,15 jan,jul ?"), ""),
        (cron_job("0-30/10 */2 * * 0"), ""),
        (cron_job("5/15 * * * *"), ""),
        (cron_job(timeZone="Etc/GMT+5"), ""),
        (cron_job(name="a" * 52), ""),
        (cron_job(""), "schedule is required, but got empty"),
        (
            cron_job("TZ=UTC * * * * *"),
            "schedule should not contain TZ or CRON_TZ, TZ should only be set in the timeZone field",
        ),
        (cron_job("CRON_TZ=UTC * * * * *"), "schedule should not contain TZ or CRON_TZ"),
        (cron_job("* * * *"), "schedule is not a valid cron expression"),
        (cron_job("60 * * * *"), "schedule is not a valid cron expression"),
        (cron_job("* 24 * * *"), "schedule is not a valid cron expression"),
        (cron_job("* * 0 * *"), "schedule is not a valid cron expression"),
        (cron_job("* * * 13 *"), "schedule is not a valid cron expression"),
        (cron_job("* * * * 7"), "schedule is not a valid cron expression"),
        (cron_job("5-1 * * * *"), "schedule is not a valid cron expression"),
        (cron_job("*/0 * * * *"), "schedule is not a valid cron expression"),
        (cron_job("@sometimes"), "schedule is not a valid cron expression"),
        (cron_job("@every never"), "schedule is not a valid cron expression"),
        (cron_job("* * * * mon-blue"), "schedule is not a valid cron expression"),
        (cron_job(timeZone=""), "timeZone must be nil or non-empty string, got empty string"),
        (cron_job(timeZone="Mars/Olympus"), "invalid timeZone"),
        (cron_job(timeZone="../etc/passwd"), "unknown timeZone"),
        (
            cron_job(timeZone="local"),
            "timeZone can't be Local, and must be defined in https://www.iana.org/time-zones",
        ),
        (
            cron_job(name="a" * 53),
            "cronJob name must be no more than 52 characters to accommodate job name suffix (max 63 total)",
        ),
        (cron_job(name="-a"), 'invalid cronJob name "-a": name part must consist of'),
        (cron_job("", timeZone=""), "schedule is required, but got empty; timeZone must be nil"),
        (cron_job(jobTemplate={"spec": {"tasks": []}}), "spec.jobTemplate: No task specified in job spec"),
        (
            cron_job(jobTemplate={"spec": job(task(minAvailable=2))["spec"]}),
            "spec.jobTemplate: 'minAvailable' is greater",
        ),
    ],
)
def test_a_cron_job_can_be_run_when_its_time_comes(document: Json, words: str) -> None:
    said = " ".join(cron_jobs.validate(document, None, cluster()))
    assert words in said
    assert bool(words) is bool(said)


def test_a_cron_job_that_was_admitted_can_be_suspended() -> None:
    before = cron_job(jobTemplate={"spec": {"tasks": []}})
    assert cron_jobs.validate(changed(before, "spec.suspend", True), before, NOWHERE) == []
    assert cron_jobs.validate(changed(before, "spec.schedule", "never"), before, NOWHERE) != []


# --- JobFlows


def flow(**steps: str) -> Json:
    """Return a flow of steps with their dependencies, separated by spaces."""
    flows: list[Json] = [
        {"name": name, **({"dependsOn": {"targets": targets.split()}} if targets else {})}
        for name, targets in steps.items()
    ]
    return {"metadata": {"name": "f"}, "spec": {"flows": flows}}


@pytest.mark.parametrize(
    ("document", "words"),
    [
        (flow(), ""),
        (flow(a=""), ""),
        (flow(a="", b="a", c="b", d="c"), ""),
        (flow(a="", b="a", c="a", d="b c"), ""),
        (flow(a="", b="a", c="a", d="b", e="b c", g="d e"), ""),
        (flow(a="a"), "jobflow Flow is not DAG"),
        (flow(a="b", b="a"), "jobflow Flow is not DAG"),
        (flow(a="", b="c", c="d", d="b"), "jobflow Flow is not DAG"),
        (flow(a="", b="gone"), "jobflow Flow is not DAG: vertex is not defined: gone"),
    ],
)
def test_a_flow_can_be_walked_through(document: Json, words: str) -> None:
    assert " ".join(job_flows.validate(document, None, NOWHERE)) == words
    assert job_flows.validate(document, document, NOWHERE) == []


def test_a_long_flow_takes_no_long_time() -> None:
    layers = {
        "s0": "",
        **{f"s{at}": " ".join(f"s{before}" for before in range(max(0, at - 9), at)) for at in range(1, 3000)},
    }
    assert job_flows.validate(flow(**layers), None, NOWHERE) == []


# --- HyperNodes


def hyper_node(*selectors: Json) -> Json:
    members = [{"type": "Node", "selector": selector} for selector in selectors]
    return {"metadata": {"name": "h"}, "spec": {"tier": 1, "members": members}}


@pytest.mark.parametrize(
    ("document", "words"),
    [
        (hyper_node({"exactMatch": {"name": "node-1"}}), ""),
        (hyper_node({"regexMatch": {"pattern": "^node-[0-9]+$"}}), ""),
        (hyper_node({"labelMatch": {"matchLabels": {"rack": "r1"}}}), ""),
        (hyper_node(), "member must have at least one member"),
        (
            hyper_node({"regexMatch": {"pattern": "a(b"}}),
            'spec.members[0].selector.regexMatch.pattern: Invalid value: "a(b": member regexMatch '
            "pattern is invalid: error parsing regexp: missing closing )",
        ),
        (hyper_node({"regexMatch": {"pattern": ""}}), "should be at least 1 chars long"),
        (
            hyper_node({"exactMatch": {"name": ""}}),
            'spec.members[0].selector.exactMatch.name: Invalid value: "": should be at least 1 chars long',
        ),
        (hyper_node({"exactMatch": {"name": "Not_A_Name"}}), "a lowercase RFC 1123 subdomain must consist of"),
        (hyper_node({}), "exactly one of exactMatch, regexMatch, labelMatch must be set, found none"),
        (
            hyper_node({"exactMatch": {"name": "a"}, "regexMatch": {"pattern": "b"}}),
            "found exactMatch and regexMatch",
        ),
    ],
)
def test_a_hyper_node_has_members_that_can_be_read(document: Json, words: str) -> None:
    said = " ".join(hyper_nodes.validate(document, None, NOWHERE))
    assert words in said
    assert bool(words) is bool(said)
    assert hyper_nodes.validate(document, document, NOWHERE) == []
