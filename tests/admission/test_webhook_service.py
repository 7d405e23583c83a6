"""The webhook as the API server calls it: defaults, refusals, accepted objects, and attempts to bypass it."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import io
import json
import ssl
from typing import Any

import aiohttp
import pytest

from phalanx.admission.webhook import registration
from phalanx.admission.webhook.registration import (
    CERTIFICATES,
    RegistrationOptions,
    WebhookAddress,
    register,
    unregister,
)
from phalanx.admission.webhook.service import WebhookError, WebhookService
from phalanx.jobs.spec import read_job
from phalanx.jobs.volumes import CLAIM_NAMES_MANAGER, claim_name_patch
from phalanx.kube.client import KubeClient, PatchType
from phalanx.kube.core_resources import SECRETS
from phalanx.kube.errors import ApiError
from tests.admission.conftest import PATHS, SYSTEM, TEAM, Site, known_definitions, of_kind
from tests.admission.objects import task

Json = dict[str, Any]

KEY = "scheduling.volcano.sh/queue-name"
CONTAINERS = [{"name": "main", "image": "busybox"}]
VALIDATING = registration.VALIDATING.path(None, registration.NAME)
MUTATING = registration.MUTATING.path(None, registration.NAME)


async def refusal(write: Any) -> str:
    with pytest.raises(ApiError) as error:
        await write
    return error.value.message


async def revision(client: KubeClient, path: str) -> str:
    found = await client.get(path)
    version: str = found["metadata"]["resourceVersion"]
    return version


async def open_queue(site: Site, name: str = "rich", **spec: Any) -> None:
    await site.admin.create(PATHS["queues"], of_kind("queues", name, spec=spec))


# --- behaviour


async def test_jobs_queues_and_groups_are_filled_in_and_checked(site: Site) -> None:
    async with site.webhook():
        job = await site.tenant.create(
            PATHS["jobs"],
            of_kind("jobs", spec={"tasks": [task(replicas=2)], "plugins": {"mpi": ["--master=worker"]}}),
        )
        spec = job["spec"]
        assert (spec["queue"], spec["schedulerName"], spec["maxRetry"], spec["minAvailable"]) == (
            "default",
            "phalanx",
            3,
            2,
        )
        assert set(spec["plugins"]) == {"mpi", "svc", "ssh"}
        said = await refusal(site.tenant.create(PATHS["jobs"], of_kind("jobs", "y", spec={"tasks": []})))
        assert said.startswith('admission webhook "validate.jobs.webhook.phalanx.dev" denied the request: ')
        assert said.endswith("No task specified in job spec")
        merge = {"spec": {"queue": "other"}}
        said = await refusal(site.tenant.patch(f"{PATHS['jobs']}/x", merge, PatchType.MERGE))
        assert "job updates may not change fields other than" in said
        # A queue that was made a moment ago is known.
        await open_queue(site, "fresh")
        await site.tenant.create(PATHS["jobs"], of_kind("jobs", "z", spec={"tasks": [task()], "queue": "fresh"}))
        await site.admin.create(PATHS["queues"], of_kind("queues", "child", spec={"parent": "fresh"}))
        said = await refusal(site.admin.delete(f"{PATHS['queues']}/fresh"))
        assert "queue fresh can not be deleted because it has 1 child queues: child" in said
        assert "`default` queue can not be deleted" in await refusal(
            site.admin.delete(f"{PATHS['queues']}/default")
        )
        await site.admin.delete(f"{PATHS['queues']}/child")


@pytest.mark.parametrize("way", [PatchType.MERGE, PatchType.APPLY], ids=["client-side", "server-side"])
@pytest.mark.parametrize("plural", ["jobs", "queues"])
async def test_second_apply_of_an_unchanged_manifest_changes_nothing(
    site: Site, plural: str, way: PatchType
) -> None:
    specs: dict[str, Json] = {
        "jobs": {"tasks": [{"replicas": 2, "template": task()["template"]}], "plugins": {"pytorch": []}},
        "queues": {"capability": {"cpu": "4"}},
    }
    manifest = of_kind(plural, spec=specs[plural])
    path = f"{PATHS[plural]}/x"
    async with site.webhook():
        if way is PatchType.APPLY:
            first = await site.admin.patch(path, manifest, way, field_manager="gitops")
            second = await site.admin.patch(path, manifest, way, field_manager="gitops")
        else:
            first = await site.admin.create(PATHS[plural], manifest)
            # kubectl replaces lists, which it cannot merge.
            second = await site.admin.patch(path, {"spec": specs[plural]}, way)
        assert second["spec"] == first["spec"]
        assert second["metadata"]["generation"] == first["metadata"]["generation"]


@pytest.mark.parametrize("way", [PatchType.MERGE, PatchType.APPLY], ids=["client-side", "server-side"])
async def test_second_apply_keeps_the_claim_name_of_the_controller(site: Site, way: PatchType) -> None:
    claim = {"accessModes": ["ReadWriteOnce"]}
    spec = {
        "tasks": [{"replicas": 2, "template": task()["template"]}],
        "volumes": [{"mountPath": "/a", "volumeClaimName": "own"}, {"mountPath": "/b", "volumeClaim": claim}],
    }
    manifest, path = of_kind("jobs", spec=spec), f"{PATHS['jobs']}/x"
    (definition,) = [item for item in known_definitions() if item["metadata"]["name"] == "jobs.batch.volcano.sh"]
    served = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{definition['metadata']['name']}"
    await site.admin.patch(served, {"spec": definition["spec"]}, PatchType.MERGE)
    async with site.webhook():
        created = (
            await site.admin.patch(path, manifest, way, field_manager="gitops")
            if way is PatchType.APPLY
            else await site.admin.create(PATHS["jobs"], manifest)
        )
        job, _ = read_job(created)
        names = claim_name_patch(job, created)
        assert [step["path"] for step in names if step["op"] == "add"] == ["/spec/volumes/1/volumeClaimName"]
        named = await site.admin.patch(path, names, PatchType.JSON, field_manager=CLAIM_NAMES_MANAGER)
        if way is PatchType.APPLY:
            again = await site.admin.patch(path, manifest, way, field_manager="gitops")
        else:
            again = await site.admin.patch(path, {"spec": spec}, way)
        assert again["spec"] == named["spec"]
        assert again["metadata"]["generation"] == named["metadata"]["generation"]


async def test_job_from_before_the_webhook_keeps_a_spec_without_defaults(site: Site) -> None:
    made = await site.tenant.create(PATHS["jobs"], of_kind("jobs", spec={"tasks": [task(replicas=2)]}))
    async with site.webhook():
        labelled = {"metadata": {"labels": {"a": "b"}}}
        changed = await site.tenant.patch(f"{PATHS['jobs']}/x", labelled, PatchType.MERGE)
        assert changed["spec"] == made["spec"]


DOORS: list[tuple[str, Json, str]] = [
    ("cronjobs", {"spec": {"schedule": ""}}, "schedule is required, but got empty"),
    (
        "jobflows",
        {"spec": {"flows": [{"name": "a", "dependsOn": {"targets": ["a"]}}]}},
        "jobflow Flow is not DAG",
    ),
    ("podgroups", {"spec": {"queue": "gone"}}, "unable to find queue"),
    (
        "hypernodes",
        {
            "spec": {
                "tier": 1,
                "members": [{"type": "Node", "selector": {"regexMatch": {"pattern": "a(b"}}}],
            }
        },
        "member regexMatch pattern is invalid",
    ),
    ("queues", {"spec": {"parent": "gone"}}, "failed to get parent queue gone of queue x"),
    (
        "pods",
        {
            "metadata": {"name": "x", "annotations": {"volcano.sh/jdb-min-available": "-1"}},
            "spec": {"schedulerName": "phalanx", "containers": CONTAINERS},
        },
        "it must be a positive integer",
    ),
]


async def test_every_kind_has_its_endpoint(site: Site) -> None:
    async with site.webhook():
        for plural, content, words in DOORS:
            assert words in await refusal(site.admin.create(PATHS[plural], of_kind(plural, **content))), plural


async def test_groups_wait_in_the_queue_of_their_namespace(site: Site) -> None:
    await open_queue(site)
    await site.admin.patch(
        f"/api/v1/namespaces/{TEAM}", {"metadata": {"annotations": {KEY: "rich"}}}, PatchType.MERGE
    )
    async with site.webhook(queue_rights=True):
        group = await site.tenant.create(PATHS["podgroups"], of_kind("podgroups", spec={"minMember": 1}))
        assert group["spec"]["queue"] == "rich"


async def test_queues_with_unfinished_groups_stay_where_that_is_wanted(site: Site) -> None:
    await open_queue(site)
    await site.tenant.create(PATHS["podgroups"], of_kind("podgroups", spec={"minMember": 1, "queue": "rich"}))
    async with site.webhook(protect_busy_queues=True):
        said = await refusal(site.admin.delete(f"{PATHS['queues']}/rich"))
        assert "queue rich cannot be deleted because it has 1 unfinished PodGroups" in said
    async with site.webhook():
        await site.admin.delete(f"{PATHS['queues']}/rich")


# --- registration and certificates


async def test_a_second_run_writes_nothing(site: Site) -> None:
    paths = (VALIDATING, MUTATING, SECRETS.path(SYSTEM, CERTIFICATES))
    async with site.webhook(listen="127.0.0.1:0", url="https://127.0.0.1:9"):
        before = [await revision(site.admin, path) for path in paths]
        async with site.webhook(listen="127.0.0.1:0", url="https://127.0.0.1:9"):
            assert [await revision(site.admin, path) for path in paths] == before


async def test_only_our_own_registration_is_touched(site: Site) -> None:
    other = {
        "metadata": {"name": "volcano-admission-service-jobs-validate"},
        "webhooks": [
            {
                "name": "validatejob.volcano.sh",
                "clientConfig": {"url": "https://127.0.0.1:9/"},
                "sideEffects": "None",
                "admissionReviewVersions": ["v1"],
            }
        ],
    }
    theirs = registration.VALIDATING.path(None, "volcano-admission-service-jobs-validate")
    await site.admin.create(registration.VALIDATING.path(), other)
    before = await revision(site.admin, theirs)
    async with site.webhook():
        await unregister(site.admin)
        await unregister(site.admin)
    assert await revision(site.admin, theirs) == before
    listed = await site.admin.get(registration.VALIDATING.path())
    assert [item["metadata"]["name"] for item in listed["items"]] == ["volcano-admission-service-jobs-validate"]


async def test_a_registration_of_another_installation_is_left_alone(site: Site) -> None:
    """A cluster has one registration, and an uninstalled release deletes its own."""
    here, there = (WebhookAddress(namespace=each, service="phalanx-webhook") for each in (SYSTEM, "elsewhere"))
    options = RegistrationOptions(address=here, scheduler_names=("phalanx",))
    await register(site.admin, options, b"")
    assert await unregister(site.admin, there) == f"{SYSTEM}/phalanx-webhook"
    assert await site.admin.get(registration.MUTATING.path(None, registration.NAME))
    assert await unregister(site.admin, here) == ""
    for resource in (registration.MUTATING, registration.VALIDATING):
        assert (await site.admin.get(resource.path()))["items"] == []
    outside = RegistrationOptions(
        address=WebhookAddress(url="https://192.0.2.7:8443"), scheduler_names=("phalanx",)
    )
    await register(site.admin, outside, b"")
    assert (await unregister(site.admin, here)).startswith("https://192.0.2.7:8443/")
    assert await unregister(site.admin) == ""


async def test_pods_pass_while_no_webhook_runs_and_our_own_kinds_do_not(site: Site) -> None:
    async with site.webhook():
        pass
    pod = of_kind("pods", spec={"schedulerName": "phalanx", "containers": CONTAINERS})
    pod["metadata"]["annotations"] = {"volcano.sh/jdb-min-available": "-1"}
    await site.tenant.create(PATHS["pods"], pod)
    said = await refusal(site.tenant.create(PATHS["podgroups"], of_kind("podgroups", spec={"minMember": 1})))
    assert "failed calling webhook" in said
    # Objects of the control plane must never be blocked.
    path = "/apis/scheduling.volcano.sh/v1beta1/namespaces/kube-system/podgroups"
    await site.admin.create(path, of_kind("podgroups", spec={"minMember": 1}))


async def test_webhook_fails_open_on_request(site: Site) -> None:
    async with site.webhook(failure_policy="Ignore"):
        pass
    await site.tenant.create(PATHS["podgroups"], of_kind("podgroups", spec={"minMember": 1}))


async def test_replicas_share_one_authority(site: Site) -> None:
    async with site.webhook() as first, site.webhook() as second:
        secret = await site.admin.get(SECRETS.path(SYSTEM, CERTIFICATES))
        stored = [name for name in secret["data"] if name.endswith(".crt") and name.startswith("ca-")]
        assert len(stored) == 1
        authority = base64.b64decode(secret["data"][stored[0]]).decode()
        for service in (first, second):
            context = ssl.create_default_context(cadata=authority)
            assert await fetched(service, "/healthz", context) == "ok\n"


ADDRESSES: list[tuple[Json, str]] = [
    ({"listen": "0.0.0.0:0"}, "give --url https://HOST:PORT or --service NAMESPACE/NAME"),
    ({"listen": "8443"}, "is not HOST:PORT"),
    ({"listen": "127.0.0.1:99999"}, "is not HOST:PORT"),
    ({"url": "http://a:1"}, "is not https://HOST:PORT"),
    ({"service": "name"}, "is not NAMESPACE/NAME"),
    ({"service": "a/b:c"}, "is not NAMESPACE/NAME"),
    ({"service": "a/b", "url": "https://a:1"}, "give --url or --service, not both"),
    ({"metrics_address": "nowhere"}, "--metrics-address: 'nowhere' is not HOST:PORT"),
]


async def test_an_address_that_cannot_work_is_named(site: Site) -> None:
    for options, words in ADDRESSES:
        with pytest.raises(WebhookError) as error:
            async with site.webhook(**options):
                pass
        assert words in str(error.value)


async def test_a_service_is_registered_by_its_name(site: Site) -> None:
    async with site.webhook(service="tools/hook:8443"):
        webhooks = (await site.admin.get(VALIDATING))["webhooks"]
    config = webhooks[0]["clientConfig"]
    assert config["service"] == {
        "namespace": "tools",
        "name": "hook",
        "path": "/jobs/validate",
        "port": 8443,
    }


# --- hostile questions


async def fetched(service: WebhookService, path: str, context: ssl.SSLContext | bool = False) -> str:
    url = f"https://127.0.0.1:{service.port}{path}"
    async with aiohttp.ClientSession() as session, session.get(url, ssl=context) as answer:
        return await answer.text()


async def post(session: aiohttp.ClientSession, service: WebhookService, path: str, body: bytes) -> tuple[int, str]:
    url = f"https://127.0.0.1:{service.port}{path}"
    async with session.post(url, data=io.BytesIO(body), ssl=False) as answer:
        return answer.status, await answer.text()


def review(**request: Any) -> bytes:
    body = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    return json.dumps(body).encode()


QUESTIONS: dict[str, tuple[bytes, int]] = {
    "nothing": (b"", 400),
    "no JSON": (b"{", 400),
    "a list": (b"[]", 400),
    "deep": (b'{"request": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", 400),
    "another version": (b'{"apiVersion": "admission.k8s.io/v1beta1", "kind": "AdmissionReview"}', 400),
    "no request": (b'{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}', 400),
    "no uid": (review(operation="CREATE", uid=""), 400),
    "no operation": (review(uid="u"), 400),
    "odd object": (review(uid="u", operation="CREATE", object=[1]), 400),
    "no object": (review(uid="u", operation="CREATE"), 200),
    "empty object": (review(uid="u", operation="CREATE", object={}), 200),
    "odd metadata": (review(uid="u", operation="CREATE", object={"metadata": 1, "spec": 2}), 200),
    "odd spec": (
        review(
            uid="u", operation="UPDATE", object={"spec": {"tasks": {"a": 1}, "flows": 3}}, oldObject={"spec": 7}
        ),
        200,
    ),
    "odd user": (review(uid="u", operation="CREATE", object={}, userInfo={"groups": 1}), 400),
    "connect": (review(uid="u", operation="CONNECT", object={}), 200),
    "delete": (review(uid="u", operation="DELETE", name="../../x"), 200),
    "a name that is none": (
        review(uid="u", operation="CREATE", object={"spec": {"queue": "../..", "parent": ".."}}, namespace="../x"),
        200,
    ),
    "too long": (b'{"x": "' + b"y" * (13 * 2**20) + b'"}', 413),
    "no UTF-8": (b'{"apiVersion": "\xff"}', 400),
    "numbers without end": (b'{"request": {"uid": 1' + b"0" * 100_000 + b"}}", 400),
}


async def test_no_question_brings_it_down(site: Site) -> None:
    async with site.webhook(queue_rights=True) as service, aiohttp.ClientSession() as session:
        paths = [f"/{plural}/validate" for plural in PATHS] + ["/jobs/mutate", "/pods/mutate", "/queues/mutate"]
        for question, (body, status) in QUESTIONS.items():
            for path in paths:
                answered, text = await post(session, service, path, body)
                assert answered == status, (question, path, text)
                if answered == 200:
                    assert json.loads(text)["response"]["uid"] == "u"
        assert (await post(session, service, "/nowhere", b"{}"))[0] == 404
        assert (await post(session, service, "/pods/validate", review(uid="u", operation="DELETE")))[0] == 200


async def test_reviews_are_counted(site: Site) -> None:
    async with site.webhook(metrics_address="127.0.0.1:0") as service:
        await refusal(site.tenant.create(PATHS["jobs"], of_kind("jobs", spec={"tasks": []})))
        text = await fetched(service, "/metrics")
    assert 'phalanx_admission_reviews_total{path="/jobs/validate",result="denied"} 1.0' in text
    assert 'phalanx_admission_reviews_total{path="/jobs/mutate",result="patched"} 1.0' in text


async def test_protected_metrics_require_the_right_of_the_api_server(site: Site) -> None:
    rbac = "/apis/rbac.authorization.k8s.io/v1"
    rules = [{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}]
    await site.admin.create(f"{rbac}/clusterroles", {"metadata": {"name": "metrics"}, "rules": rules})
    binding = {
        "metadata": {"name": "metrics"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "metrics"},
        "subjects": [{"kind": "User", "name": "monitoring", "apiGroup": "rbac.authorization.k8s.io"}],
    }
    await site.admin.create(f"{rbac}/clusterrolebindings", binding)

    async def asked(port: int, path: str, token: str = "") -> int:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        url = f"https://127.0.0.1:{port}{path}"
        async with aiohttp.ClientSession() as session, session.get(url, headers=headers, ssl=False) as answer:
            return answer.status

    async with site.webhook(metrics_address="127.0.0.1:0", guard_metrics=True) as service:
        for port in (service.port, service.metrics_port):
            tokens = {"": 401, "nonsense": 401, "jane": 403, "monitoring": 200}
            assert {token: await asked(port, "/metrics", token) for token in tokens} == tokens
            # Probes have no tokens.
            assert [await asked(port, path) for path in ("/healthz", "/readyz")] == [200, 200]


# --- attempts to bypass the rights


def named(plural: str, queue: str) -> Json:
    """An object of a tenant that uses a queue."""
    job = {"queue": queue, "tasks": [task()]}
    contents: dict[str, Json] = {
        "jobs": {"spec": job},
        "jobtemplates": {"spec": job},
        "cronjobs": {"spec": {"schedule": "* * * * *", "jobTemplate": {"spec": job}}},
        "jobflows": {"spec": {"flows": [{"name": "a", "patch": {"jobSpec": {"queue": queue}}}]}},
        "podgroups": {"spec": {"minMember": 1, "queue": queue}},
        "pods": {
            "metadata": {"name": "x", "annotations": {KEY: queue}},
            "spec": {"schedulerName": "phalanx", "containers": CONTAINERS},
        },
    }
    return of_kind(plural, **contents[plural])


NAMING = ("jobs", "jobtemplates", "cronjobs", "jobflows", "podgroups", "pods")


async def test_queue_is_usable_only_with_its_right(site: Site) -> None:
    await open_queue(site)
    async with site.webhook(queue_rights=True):
        for plural in NAMING:
            said = await refusal(site.tenant.create(PATHS[plural], named(plural, "rich")))
            assert "queue rich is not allowed in this namespace" in said, plural
            # Nor by the way round: first another queue, then this one.
            await site.tenant.create(PATHS[plural], named(plural, "default"))
            moved = named(plural, "rich")
            found = await site.tenant.get(f"{PATHS[plural]}/x")
            changed = {**found, **{key: moved[key] for key in ("spec",) if plural != "pods"}}
            changed["metadata"]["annotations"] = moved["metadata"].get("annotations") or {}
            said = await refusal(site.tenant.replace(f"{PATHS[plural]}/x", changed))
            refusals = ("queue rich is not allowed in this namespace", "job updates may not change fields")
            assert any(refusal in said for refusal in refusals), plural
            await site.tenant.delete(f"{PATHS[plural]}/x", grace_seconds=0)
            # An administrator may.
            await site.admin.create(PATHS[plural], named(plural, "rich"))
            await site.admin.delete(f"{PATHS[plural]}/x", grace_seconds=0)
        rbac = "/apis/rbac.authorization.k8s.io/v1"
        use = {
            "apiGroups": ["scheduling.volcano.sh"],
            "resources": ["queues"],
            "resourceNames": ["rich"],
            "verbs": ["use"],
        }
        await site.admin.create(f"{rbac}/clusterroles", {"metadata": {"name": "use-rich"}, "rules": [use]})
        subject = {"kind": "Group", "name": "devs", "apiGroup": "rbac.authorization.k8s.io"}
        reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "use-rich"}
        binding = {"metadata": {"name": "use-rich"}, "roleRef": reference, "subjects": [subject]}
        await site.admin.create(f"{rbac}/clusterrolebindings", binding)
        for plural in NAMING:
            await site.tenant.create(PATHS[plural], named(plural, "rich"))


async def test_a_namespace_has_the_queues_that_an_administrator_lists(site: Site) -> None:
    await open_queue(site)
    note = {"metadata": {"annotations": {"phalanx.dev/queues": "poor, rich"}}}
    assert "forbidden" in await refusal(site.tenant.patch(f"/api/v1/namespaces/{TEAM}", note, PatchType.MERGE))
    async with site.webhook(queue_rights=True):
        await refusal(site.tenant.create(PATHS["jobs"], named("jobs", "rich")))
        await site.admin.patch(f"/api/v1/namespaces/{TEAM}", note, PatchType.MERGE)
        async with asyncio.timeout(60):
            while True:  # until the webhook has heard of it
                with contextlib.suppress(ApiError):
                    await site.tenant.create(PATHS["jobs"], named("jobs", "rich"))
                    break
                await asyncio.sleep(0.02)


async def test_pods_of_another_scheduler_are_not_checked(site: Site) -> None:
    pod = named("pods", "rich")
    pod["spec"]["schedulerName"] = "default-scheduler"
    async with site.webhook(queue_rights=True):
        await site.tenant.create(PATHS["pods"], pod)


async def test_rights_are_enforced_while_the_webhook_is_down(site: Site) -> None:
    await open_queue(site)
    async with site.webhook(queue_rights=True):
        pass
    for plural in NAMING:
        assert "failed calling webhook" in await refusal(site.tenant.create(PATHS[plural], named(plural, "rich")))
    # Pods that name no queue are not held up.
    plain = of_kind("pods", spec={"schedulerName": "phalanx", "containers": CONTAINERS})
    await site.tenant.create(PATHS["pods"], plain)


async def test_without_the_switch_every_queue_is_open_to_all(site: Site) -> None:
    await open_queue(site)
    async with site.webhook():
        for plural in NAMING:
            await site.tenant.create(PATHS[plural], named(plural, "rich"))
