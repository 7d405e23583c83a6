"""Rights to queues: every kind that names one, and every field for it."""

from __future__ import annotations

from typing import Any

import pytest

from phalanx.admission.queue_rights import queues_named, queues_to_ask_for, refusal_of_use
from phalanx.admission.webhook.routes import ROUTES
from phalanx.jobs.suspended import SUSPENDABLE
from tests.admission.objects import job, task

KEY = "scheduling.volcano.sh/queue-name"
Json = dict[str, Any]


def marked(field: str) -> Json:
    return {"metadata": {field: {KEY: "rich"}}}


def labels(queue: str = "rich") -> Json:
    return {"metadata": {"labels": {"phalanx.dev/queue": queue}}}


@pytest.mark.parametrize(
    ("resource", "document"),
    [
        ("jobs.batch.volcano.sh", job(queue="rich")),
        ("jobs.batch.volcano.sh", job(task(template=marked("annotations")))),
        ("jobs.batch.volcano.sh", job(task(template=marked("labels")))),
        ("jobtemplates.flow.volcano.sh", job(queue="rich")),
        ("cronjobs.batch.volcano.sh", {"spec": {"jobTemplate": {"spec": {"queue": "rich"}}}}),
        (
            "cronjobs.batch.volcano.sh",
            {"spec": {"jobTemplate": {"spec": {"tasks": [{"template": marked("labels")}]}}}},
        ),
        (
            "jobflows.flow.volcano.sh",
            {"spec": {"flows": [{"name": "a"}, {"name": "b", "patch": {"jobSpec": {"queue": "rich"}}}]}},
        ),
        ("podgroups.scheduling.volcano.sh", {"spec": {"queue": "rich"}}),
        ("pods", marked("annotations")),
        ("pods", marked("labels")),
        *((f"{kind.served.plural}.{kind.served.group}", labels()) for kind in SUSPENDABLE),
        ("cronjobs.batch", {"spec": {"jobTemplate": labels()}}),
        ("jobsets.jobset.x-k8s.io", {"spec": {"replicatedJobs": [{}, {"template": labels()}]}}),
        ("trainjobs.trainer.kubeflow.org", {"spec": {"labels": {"phalanx.dev/queue": "rich"}}}),
        ("trainjobs.trainer.kubeflow.org", labels()),
        ("jaxjobs.kubeflow.org", labels()),
        ("podgroups.scheduling.incubator.k8s.io", {"spec": {"queue": "rich"}}),
    ],
)
def test_a_queue_is_found_wherever_it_is_named(resource: str, document: Json) -> None:
    assert queues_named(resource, document) == {"rich"}
    assert queues_to_ask_for(resource, document, None, {}) == ["rich"]
    assert queues_to_ask_for(resource, document, document, {}) == []


@pytest.mark.parametrize("resource", [resource for route in ROUTES for resource in route.resources])
def test_default_queue_is_open_to_every_user(resource: str) -> None:
    odd = {"metadata": {"labels": [1]}, "spec": {"tasks": "odd", "flows": [1], "replicatedJobs": [1], "labels": 7}}
    for document in ({}, {"spec": {"queue": "default"}}, labels("default"), {"spec": "odd"}, odd):
        assert queues_named(resource, document) == set()


@pytest.mark.parametrize(
    ("annotations", "asked"),
    [
        ({"phalanx.dev/queues": "poor, rich"}, []),
        ({KEY: "rich"}, []),
        ({"phalanx.dev/queues": "poor"}, ["rich"]),
        ({"phalanx.dev/queues": "richer,ric h"}, ["rich"]),
        ({}, ["rich"]),
    ],
)
def test_a_namespace_lends_its_queues_to_all_in_it(annotations: Json, asked: list[str]) -> None:
    namespace = {"metadata": {"name": "team", "annotations": annotations}}
    assert queues_to_ask_for("jobs.batch.volcano.sh", job(queue="rich"), None, namespace) == asked


def test_a_change_asks_for_the_new_queue_alone() -> None:
    before = {"metadata": {"annotations": {KEY: "old"}}}
    after = {"metadata": {"annotations": {KEY: "old"}, "labels": {KEY: "new"}}}
    assert queues_to_ask_for("pods", after, before, {}) == ["new"]


def test_refusal_names_the_fix() -> None:
    said = refusal_of_use("rich", "team")
    assert "phalanx.dev/queues of namespace team" in said
    assert "the verb use on queues.scheduling.volcano.sh/rich" in said
