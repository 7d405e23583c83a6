"""The Helm chart and the plain manifests: made from the code, installed, upgraded and taken away again."""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
import subprocess
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml
from charts.generate import CHART, NAMESPACE, ROOT, files, rendered

from phalanx.admission.webhook.registration import (
    MUTATING,
    VALIDATING,
    RegistrationOptions,
    WebhookAddress,
    register,
    unregister,
)
from phalanx.admission.webhook.registration import NAME as WEBHOOK
from phalanx.cli.installation.admission import guarded_schedulers
from phalanx.cli.installation.dashboard_manifests import address_manifests
from phalanx.cli.installation.people_manifests import PEOPLE
from phalanx.kube.auth.config import load_config
from phalanx.kube.client import KubeClient
from phalanx.kube.errors import ApiError
from phalanx.kube.own_objects import default_lease, name_prefix
from phalanx.kube.paths import Resource
from phalanx_local.server import free_port
from tests.e2e.processes import Process
from tests.e2e.world import PODS, pod
from tests.install.helm import helm, run

DEPLOYMENTS = Resource("apps", "v1", "deployments", "Deployment")
DEFINITIONS = Resource("apiextensions.k8s.io", "v1", "customresourcedefinitions", "CRD", namespaced=False)
CLUSTER_ROLES = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
ACCOUNTS = Resource("", "v1", "serviceaccounts", "ServiceAccount")
MAJORS = pytest.mark.parametrize("major", ["3", "4"])
EVERYTHING = [
    f"--set={each}"
    for each in (
        "webhook.enabled=true",
        "dashboard.enabled=true",
        "accounting.enabled=true",
        "accounting.image=registry.example/phalanx-accounts:1",
        "admissionPolicies.enabled=true",
        "networkPolicy.enabled=true",
        "metrics.serviceMonitor=true",
        "metrics.prometheusRule=true",
        "metrics.dashboards=true",
        "metrics.secure.enabled=true",
        "policy=actions: allocate",
        "schedulerNames={phalanx,batch}",
    )
]


def test_generated_parts_of_the_chart_equal_the_code() -> None:
    """Else: python -m charts.generate --helm PATH."""
    for path, text in files().items():
        assert path.read_text("utf-8") == text, path.name


def test_every_part_runs_as_the_account_that_has_its_rights() -> None:
    """Deployments are named like the accounts that `phalanx install` makes."""
    rights = list(yaml.safe_load_all((CHART / "files" / "rights.yaml").read_text("utf-8")))
    accounts = {each["metadata"]["name"] for each in rights if each["kind"] == "ServiceAccount"}
    assert accounts == {f"phalanx-{part}" for part in ("scheduler", "controllers", "webhook")}
    assert all(each["kind"] != "Namespace" for each in rights)
    page = list(yaml.safe_load_all((CHART / "files" / "dashboard-rights.yaml").read_text("utf-8")))
    assert [each["metadata"]["name"] for each in page if each["kind"] == "ServiceAccount"] == ["phalanx-dashboard"]


@MAJORS
async def test_page_may_act_for_its_viewers_only_with_writes_enabled(major: str) -> None:
    async def documents(*flags: str) -> list[dict[str, Any]]:
        text = await run(major, "template", "phalanx", CHART, "--set=dashboard.enabled=true", *flags)
        return [each for each in yaml.safe_load_all(text) if each]

    def may_impersonate(found: list[dict[str, Any]]) -> list[str]:
        verbs = {
            each["metadata"]["name"]: {verb for rule in each["rules"] for verb in rule["verbs"]}
            for each in found
            if each["kind"] == "ClusterRole" and each.get("rules")
        }
        return [name for name, granted in verbs.items() if granted & {"impersonate", "*"}]

    def arguments(found: list[dict[str, Any]]) -> list[str]:
        (page,) = (
            each
            for each in found
            if (each["kind"], each["metadata"]["name"]) == ("Deployment", "phalanx-dashboard")
        )
        arguments: list[str] = page["spec"]["template"]["spec"]["containers"][0]["args"]
        return arguments

    silent, told = await documents(), await documents("--set=dashboard.writes=true")
    assert may_impersonate(silent) == []
    assert "--writes" not in arguments(silent)
    assert len(may_impersonate(told)) == 1
    assert "--writes" in arguments(told)
    (binding,) = (
        each
        for each in told
        if each["kind"] == "ClusterRoleBinding" and each["roleRef"]["name"] == may_impersonate(told)[0]
    )
    assert [(each["kind"], each["name"]) for each in binding["subjects"]] == [
        ("ServiceAccount", "phalanx-dashboard")
    ]


@MAJORS
async def test_chart_publishes_the_address_that_install_publishes(major: str) -> None:
    url = "https://phalanx.example:8443"
    flags = ("--set=dashboard.enabled=true", f"--set=dashboard.url={url}", "--set=dashboard.ca=PEM")
    text = await run(major, "template", "phalanx", CHART, *flags)
    made = {
        each["kind"]: each
        for each in yaml.safe_load_all(text)
        if each and each["metadata"].get("namespace") == "kube-public"
    }
    installed = {each["kind"]: each for each in address_manifests(url, "PEM")}
    assert made.keys() == installed.keys()
    for kind, fields in {"ConfigMap": ["data"], "Role": ["rules"], "RoleBinding": ["roleRef", "subjects"]}.items():
        assert made[kind]["metadata"]["name"] == installed[kind]["metadata"]["name"]
        assert [made[kind][field] for field in fields] == [installed[kind][field] for field in fields]
    assert "--allow-host=phalanx.example" in text
    assert "kube-public" not in await run(major, "template", "phalanx", CHART, "--set=dashboard.enabled=true")


def test_the_page_may_read_and_ask_and_nothing_else() -> None:
    page = list(yaml.safe_load_all((CHART / "files" / "dashboard-rights.yaml").read_text("utf-8")))
    for role in page:
        for rule in role.get("rules", ()):
            reviews = {"tokenreviews", "subjectaccessreviews"}
            wanted = {"create"} if set(rule["resources"]) <= reviews else {"get", "list", "watch"}
            assert set(rule["verbs"]) <= wanted, rule
            assert not {"secrets", "*"} & {*rule["resources"], *rule["apiGroups"], *rule["verbs"]}, rule


def test_no_right_is_a_wildcard() -> None:
    text = (CHART / "files" / "rights.yaml").read_text("utf-8")
    for each in yaml.safe_load_all(text):
        for rule in each.get("rules", ()):
            assert not any("*" in rule.get(field, ()) for field in ("verbs", "resources", "apiGroups")), rule


def test_plain_manifests_equal_the_output_of_kustomize() -> None:
    made = subprocess.run(["kubectl", "kustomize", str(ROOT / "deploy")], capture_output=True, check=True)
    kinds = [each["kind"] for each in yaml.safe_load_all(made.stdout)]
    assert kinds.count("Deployment") == 2
    assert kinds.count("CustomResourceDefinition") == 2  # our own: a foreign object stays


@pytest.mark.slow
@MAJORS
class TestTemplates:
    async def test_lint(self, major: str) -> None:
        assert "0 chart(s) failed" in await run(major, "lint", CHART, *EVERYTHING)

    async def test_the_plain_manifests_are_the_chart_with_its_defaults(self, major: str) -> None:
        text = await asyncio.to_thread(rendered, str(helm(major)))
        assert (ROOT / "deploy" / "phalanx.yaml").read_text("utf-8") == text

    @pytest.mark.parametrize(
        "value",
        [
            "replica=2",
            "scheduler.replicas=none",
            "webhook.failurePolicy=fail",
            "image.digest=abc",
            "schedulerNames={it's}",
            "schedulerNames={a,a}",
            "schedulerNames={a,default-scheduler}",
            "customActions=rest",
            "podDisruptionBudget.maxUnavailable=-1",
            "nodeSelector.zone=1",
            "podAnnotations.note=1",
            "image.pullSecrets={x}",
            "scheduler.resources.requests.cpu=x",
        ],
    )
    async def test_a_value_that_means_nothing_is_refused(self, major: str, value: str) -> None:
        told = await run(major, "template", "x", CHART, f"--set={value}", fails=True)
        assert value.partition("=")[0].rpartition(".")[2] in told

    async def test_every_pod_is_as_restricted_as_the_namespace_asks(self, major: str) -> None:
        for manifest in await _rendered(major, *EVERYTHING):
            if manifest["kind"] not in ("Deployment", "Job"):
                continue
            spec = manifest["spec"]["template"]["spec"]
            assert spec["securityContext"]["runAsNonRoot"] is True
            assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
            assert spec["schedulerName"] == "default-scheduler"
            for container in spec["containers"]:
                security = container["securityContext"]
                assert security["readOnlyRootFilesystem"] is True
                assert security["allowPrivilegeEscalation"] is False
                assert security["capabilities"] == {"drop": ["ALL"]}

    async def test_accounts_are_kept_on_a_volume_by_one_pod(self, major: str) -> None:
        made = await _rendered(major, *EVERYTHING)
        recorder, claim = _named(made, "Deployment", "phalanx-accounting"), "phalanx-accounting"
        spec = recorder["spec"]["template"]["spec"]
        (container,) = spec["containers"]
        assert (recorder["spec"]["replicas"], recorder["spec"]["strategy"]) == (1, {"type": "Recreate"})
        assert container["image"] == "registry.example/phalanx-accounts:1"
        assert container["args"][:3] == ["accounting", "run", "--scheduler-name=phalanx"]
        (where,) = container["env"]
        mounted = {each["mountPath"]: each["name"] for each in container["volumeMounts"]}
        assert where["value"].startswith("/var/lib/phalanx/")
        volumes = {each["name"]: each for each in spec["volumes"]}
        assert volumes[mounted["/var/lib/phalanx"]]["persistentVolumeClaim"] == {"claimName": claim}
        kept = _named(made, "PersistentVolumeClaim", claim)["metadata"]["annotations"]
        assert kept == {"helm.sh/resource-policy": "keep"}
        assert _named(made, "ServiceAccount", spec["serviceAccountName"])
        rules = _named(made, "ClusterRole", "phalanx-accounting")["rules"]
        assert {verb for rule in rules for verb in rule["verbs"]} == {"get", "list", "watch"}

    async def test_accounts_in_postgresql_are_named_by_a_secret_alone(self, major: str) -> None:
        secret = ("--set=accounting.database.existingSecret=accounts", "--set=dashboard.accounts=true")
        made = await _rendered(major, *EVERYTHING, *secret)
        assert not [each for each in made if each["kind"] == "PersistentVolumeClaim"]
        for part in ("accounting", "dashboard"):
            (container,) = _named(made, "Deployment", f"phalanx-{part}")["spec"]["template"]["spec"]["containers"]
            key = {"name": "accounts", "key": "url"}
            assert container["env"] == [{"name": "PHALANX_ACCOUNTING_DATABASE", "valueFrom": {"secretKeyRef": key}}]
            assert container["image"] == "registry.example/phalanx-accounts:1"

    async def test_two_given_policies_are_an_error(self, major: str) -> None:
        both = ("--set=policy=actions: allocate", "--set=existingPolicy=mine")
        told = await run(major, "template", "x", CHART, *both, fails=True)
        assert "policy and existingPolicy: one policy holds" in told
        for one in both:
            await run(major, "template", "x", CHART, one)

    async def test_a_policy_with_which_no_scheduler_would_start_is_refused(self, major: str) -> None:
        for policy, words in (
            ("actions: alocate", "alocate is none of allocate, backfill"),
            ("actions: [allocate]", "expected one string"),
            ("allocate", "no map in YAML"),
        ):
            told = await run(major, "template", "x", CHART, f"--set-json=policy={json.dumps(policy)}", fails=True)
            assert f"policy: {'actions: ' if 'actions' in policy else ''}{words}" in told
        text = 'tiers: []\nactions: "enqueue, allocate, rest, elect"'
        await _rendered(major, f"--set-json=policy={json.dumps(text)}", "--set=customActions={rest}")

    async def test_an_option_that_a_part_does_not_know_is_refused(self, major: str) -> None:
        for part in ("scheduler", "controllers", "webhook", "dashboard", "hub"):
            values = (*EVERYTHING, "--set=hub.enabled=true", f"--set={part}.extraArgs={{--nonsense=1}}")
            told = await run(major, "template", "x", CHART, *values, fails=True)
            assert f"{part}.extraArgs: phalanx {part} has no option --nonsense" in told
            # Another image may know it.
            await _rendered(major, *values, "--set=image.tag=mine")
        await _rendered(major, "--set=scheduler.extraArgs={--config,/policy.yaml,--log-level=debug}")

    async def test_accounts_that_could_not_work_are_refused(self, major: str) -> None:
        told = await run(major, "template", "x", CHART, "--set=accounting.enabled=true", fails=True)
        assert "accounting.image" in told
        page = ("--set=dashboard.enabled=true", "--set=dashboard.accounts=true")
        assert "existingSecret" in await run(major, "template", "x", CHART, *page, fails=True)

    async def test_single_replica_has_neither_a_lease_nor_a_budget(self, major: str) -> None:
        made = await _rendered(major, "--set=scheduler.replicas=1", "--set=scheduler.leaseName=turns")
        (scheduler,) = [
            each for each in made if (each["kind"], each["metadata"]["name"]) == ("Deployment", "phalanx-scheduler")
        ]
        arguments = scheduler["spec"]["template"]["spec"]["containers"][0]["args"]
        # A replica with a lease name and without leader election does not start.
        assert not {"--leader-elect", "--lease-name=turns"} & set(arguments)
        budgets = {each["metadata"]["name"] for each in made if each["kind"] == "PodDisruptionBudget"}
        assert budgets == {"phalanx-controllers"}

    @pytest.mark.parametrize("names", [("phalanx", "other"), ("gpu-a",), ("GPU Pool",), ("x" * 70,), ("_",)])
    async def test_rights_are_about_the_lease_and_the_memory_that_such_a_scheduler_takes(
        self, major: str, names: tuple[str, ...]
    ) -> None:
        made = await _rendered(major, f"--set=schedulerNames={{{','.join(names)}}}")
        # (The roles of people are shared by all releases, and name the records of a scheduler of the default
        # name.)
        own = [each for each in made if each["metadata"]["name"] not in PEOPLE]
        told = {name for each in own for rule in each.get("rules", ()) for name in rule.get("resourceNames", ())}
        assert default_lease(names) in told
        assert f"{name_prefix(names)}-usage-0" in told
        if names[0] != "phalanx":
            assert not told & {"phalanx-scheduler", "phalanx-usage-0"}

    async def test_a_lease_that_is_chosen_is_granted_and_taken(self, major: str) -> None:
        made = await _rendered(major, "--set=scheduler.leaseName=turns")
        told = {name for each in made for rule in each.get("rules", ()) for name in rule.get("resourceNames", ())}
        (scheduler,) = [
            each for each in made if (each["kind"], each["metadata"]["name"]) == ("Deployment", "phalanx-scheduler")
        ]
        assert "--lease-name=turns" in scheduler["spec"]["template"]["spec"]["containers"][0]["args"]
        assert "turns" in told
        assert "phalanx-scheduler" not in told

    async def test_every_part_that_selects_pods_knows_all_scheduler_names(self, major: str) -> None:
        made = await _rendered(major, *EVERYTHING)
        for part in ("scheduler", "controllers", "webhook", "dashboard", "accounting"):
            (container,) = _named(made, "Deployment", f"phalanx-{part}")["spec"]["template"]["spec"]["containers"]
            names = [each for each in container["args"] if each.startswith("--scheduler-name=")]
            assert names == ["--scheduler-name=phalanx", "--scheduler-name=batch"], part

    async def test_admission_policies_guard_the_pods_of_every_scheduler(self, major: str) -> None:
        names = ["phalanx", "GPU Pool"]
        made = await _rendered(
            major, "--set=admissionPolicies.enabled=true", f"--set=schedulerNames={{{','.join(names)}}}"
        )
        policies = [each for each in made if each["kind"] == "ValidatingAdmissionPolicy"]
        told = [guarded_schedulers(each) for each in policies]
        assert [each for each in told if each] == [names] * 4

    async def test_roles_of_people_can_be_left_out_and_kept_from_roles_of_the_cluster(self, major: str) -> None:
        text = str(await _rendered(major, "--set=rbac.aggregate=false"))
        assert "phalanx-viewer" in text
        assert "aggregate-to" not in text
        assert "phalanx-viewer" not in str(await _rendered(major, "--set=rbac.people=false"))

    async def test_reader_of_secured_metrics_gets_the_certificate_to_trust(self, major: str) -> None:
        made = await _rendered(
            major,
            "--set=metrics.secure.enabled=true,metrics.secure.secretName=theirs,metrics.serviceMonitor=true",
            "--set=metrics.secure.readers[0].kind=ServiceAccount",
            "--set=metrics.secure.readers[0].name=prometheus,metrics.secure.readers[0].namespace=monitoring",
        )
        by_kind = {each["kind"]: each for each in made}
        (endpoint,) = by_kind["ServiceMonitor"]["spec"]["endpoints"]
        assert endpoint["scheme"] == "https"
        assert endpoint["tlsConfig"] == {
            "serverName": f"phalanx-scheduler.{NAMESPACE}.svc",
            "ca": {"secret": {"name": "theirs", "key": "ca.crt"}},
        }
        assert not [each for each in made if each["metadata"]["name"] == "phalanx-metrics-tls"]
        (binding,) = [
            each
            for each in made
            if (each["kind"], each["metadata"]["name"]) == ("ClusterRoleBinding", "phalanx-metrics-reader")
        ]
        assert binding["subjects"] == [{"kind": "ServiceAccount", "name": "prometheus", "namespace": "monitoring"}]
        (scheduler,) = [
            each for each in made if (each["kind"], each["metadata"]["name"]) == ("Deployment", "phalanx-scheduler")
        ]
        (container,) = scheduler["spec"]["template"]["spec"]["containers"]
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            assert container[probe]["httpGet"]["scheme"] == "HTTPS"


def _named(made: list[Any], kind: str, name: str) -> Any:
    (found,) = [each for each in made if (each["kind"], each["metadata"]["name"]) == (kind, name)]
    return found


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.e2e
@MAJORS
class TestInstalled:
    async def test_chart_scheduler_works_with_its_rights_and_arguments(
        self, major: str, kubeconfig: Path, tmp_path: Path
    ) -> None:
        await self._definitions(major, kubeconfig, tmp_path)
        await self._helm(
            major, kubeconfig, "install", "--set=scheduler.replicas=1", "--set=controllers.enabled=false"
        )
        async with KubeClient(load_config(str(kubeconfig))) as client:
            deployment = await client.get(DEPLOYMENTS.path(NAMESPACE, "phalanx-scheduler"))
            arguments = deployment["spec"]["template"]["spec"]["containers"][0]["args"]
            arguments = [each.replace("0.0.0.0:10251", "127.0.0.1:0") for each in arguments]
            account = await _as_account(client, kubeconfig, "phalanx-scheduler", tmp_path)
            await client.create("/api/v1/nodes", _node())
            process = await Process.start(*arguments, "--kubeconfig", account)
            try:
                await process.says("ready")
                labels = {"pod-group/name": "g", "pod-group/min-available": "2"}
                for name in ("a", "b"):
                    await client.create(PODS.path("default"), pod(name, labels=labels, cpu="1"))
                async with asyncio.timeout(60):
                    while not await _all_bound(client):  # noqa: ASYNC110
                        await asyncio.sleep(0.1)
                assert "FORBIDDEN" not in process.output
            finally:
                assert await process.end() == 0

    async def test_secured_metrics_require_a_right_and_their_certificate_outlives_upgrades(
        self, major: str, kubeconfig: Path, tmp_path: Path
    ) -> None:
        await self._definitions(major, kubeconfig, tmp_path)
        wanted = (
            "--set=metrics.secure.enabled=true,scheduler.replicas=1,controllers.enabled=false",
            "--set=metrics.secure.readers[0].kind=ServiceAccount,metrics.secure.readers[0].name=phalanx-webhook",
            f"--set=metrics.secure.readers[0].namespace={NAMESPACE}",
        )
        port = free_port()
        await self._helm(major, kubeconfig, "install", *wanted)
        async with KubeClient(load_config(str(kubeconfig))) as client:
            secret = f"/api/v1/namespaces/{NAMESPACE}/secrets/phalanx-metrics-tls"
            kept = (await client.get(secret))["data"]
            await self._helm(major, kubeconfig, "upgrade", *wanted)
            assert (await client.get(secret))["data"] == kept
            for name, content in kept.items():
                (tmp_path / name).write_bytes(base64.b64decode(content))
            deployment = await client.get(DEPLOYMENTS.path(NAMESPACE, "phalanx-scheduler"))
            arguments = [
                each.replace("0.0.0.0:10251", f"127.0.0.1:{port}").replace("/etc/phalanx-metrics", str(tmp_path))
                for each in deployment["spec"]["template"]["spec"]["containers"][0]["args"]
            ]
            account = await _as_account(client, kubeconfig, "phalanx-scheduler", tmp_path)
            reader = await _as_account(client, kubeconfig, "phalanx-webhook", tmp_path)
            process = await Process.start(*arguments, "--kubeconfig", account)
            try:
                await process.says("ready")
                answers = {
                    who: await _metrics(port, tmp_path / "ca.crt", token)
                    for who, token in {
                        "nobody": "",
                        "scheduler": _token(account),
                        "reader": _token(reader),
                    }.items()
                }
                assert answers == {"nobody": 401, "scheduler": 403, "reader": 200}
            finally:
                assert await process.end() == 0

    async def test_viewer_role_may_run_why_and_queue(self, major: str, kubeconfig: Path, tmp_path: Path) -> None:
        await self._definitions(major, kubeconfig, tmp_path)
        await self._helm(major, kubeconfig, "install")
        async with KubeClient(load_config(str(kubeconfig))) as client:
            await client.create(ACCOUNTS.path(NAMESPACE), {"metadata": {"name": "viewer"}})
            role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "phalanx-viewer"}
            subjects = [{"kind": "ServiceAccount", "name": "viewer", "namespace": NAMESPACE}]
            await client.create(
                "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
                {"metadata": {"name": "viewer"}, "roleRef": role, "subjects": subjects},
            )
            await client.create("/api/v1/nodes", _node())
            await client.create(PODS.path("default"), pod("large", cpu="99"))
            account = await _as_account(client, kubeconfig, "viewer", tmp_path)
        for words in (["why", "pod/large", "-n", "default"], ["queue", "list"]):
            process = await Process.start(*words, "--kubeconfig", account)
            assert await process.ends(patience=100) == 0, process.output
            unread = [line for line in process.output.splitlines() if "not read" in line]
            assert all("configmap" in line for line in unread), unread

    async def test_upgrade_changes_only_the_requested_values_and_definitions_outlive_the_release(
        self, major: str, kubeconfig: Path, tmp_path: Path
    ) -> None:
        await self._definitions(major, kubeconfig, tmp_path)
        await self._helm(major, kubeconfig, "install")
        async with KubeClient(load_config(str(kubeconfig))) as client:
            secret = "/api/v1/namespaces/kube-system/secrets/phalanx-signing-keys"
            kept = await client.get(secret)
            kept["data"] = {"keys": "c2VjcmV0"}
            await client.replace(secret, kept)
            await self._helm(major, kubeconfig, "upgrade", "--set=scheduler.concurrency=7", *EVERYTHING[:2])
            deployment = await client.get(DEPLOYMENTS.path(NAMESPACE, "phalanx-scheduler"))
            arguments = deployment["spec"]["template"]["spec"]["containers"][0]["args"]
            assert "--concurrency=7" in arguments
            # Signatures of these keys must stay valid after an upgrade.
            assert (await client.get(secret))["data"] == {"keys": "c2VjcmV0"}
            definitions = len((await client.get(DEFINITIONS.path()))["items"])
            told = await run(
                major, "uninstall", "phalanx", "-n", NAMESPACE, "--kubeconfig", kubeconfig, "--no-hooks"
            )
            assert "uninstalled" in told
            assert len((await client.get(DEFINITIONS.path()))["items"]) == definitions > 20
            with pytest.raises(ApiError, match="404"):
                await client.get(DEPLOYMENTS.path(NAMESPACE, "phalanx-scheduler"))

    async def test_two_releases_coexist_and_share_the_roles_of_people(
        self, major: str, kubeconfig: Path, tmp_path: Path
    ) -> None:
        await self._definitions(major, kubeconfig, tmp_path)
        async with KubeClient(load_config(str(kubeconfig))) as client:
            for release, namespace, name in (("phalanx", NAMESPACE, "phalanx"), ("gpu", "research", "gpu")):
                where = ("-n", namespace, "--create-namespace", "--kubeconfig", kubeconfig, "--no-hooks")
                values = (*EVERYTHING[:2], "--set=metrics.secure.enabled=true", f"--set=schedulerNames={{{name}}}")
                for verb in ("install", "upgrade"):
                    await run(major, verb, release, CHART, *where, *values)
            roles = {each["metadata"]["name"]: each for each in (await client.get(CLUSTER_ROLES))["items"]}
            ours = {"phalanx-scheduler", "phalanx-controllers", "phalanx-webhook", "phalanx-dashboard"}
            theirs = {each.replace("phalanx", "research-gpu", 1) for each in ours}
            assert ours | theirs <= roles.keys()
            assert _release(roles["research-gpu-scheduler"]) == "gpu"
            assert {_release(roles[name]) for name in (*ours, "phalanx-viewer", "phalanx-podgroups-edit")} == {
                "phalanx"
            }
            secret = "/api/v1/namespaces/kube-system/secrets/phalanx-signing-keys"
            kept = await client.get(secret)
            await run(major, "uninstall", "phalanx", "-n", NAMESPACE, "--kubeconfig", kubeconfig, "--no-hooks")
            left = {each["metadata"]["name"] for each in (await client.get(CLUSTER_ROLES))["items"]}
            assert theirs <= left
            assert not ours & left
            # The other release's key outlives the release that created it.
            assert (await client.get(secret))["metadata"]["uid"] == kept["metadata"]["uid"]

    async def test_a_definition_of_another_project_stays_as_it_is(
        self, major: str, kubeconfig: Path, tmp_path: Path
    ) -> None:
        text = (ROOT / "deploy" / "foreign-crds.yaml").read_text("utf-8")
        name = "podgroups.scheduling.x-k8s.io"
        (foreign,) = [each for each in yaml.safe_load_all(text) if each["metadata"]["name"] == name]
        foreign["metadata"]["labels"] = {"app.kubernetes.io/managed-by": "somebody"}
        foreign["spec"]["names"]["shortNames"] = ["theirs"]
        async with KubeClient(load_config(str(kubeconfig))) as client:
            await client.create(DEFINITIONS.path(), foreign)
            await self._definitions(major, kubeconfig, tmp_path)
            await self._helm(major, kubeconfig, "install")
            now = await client.get(DEFINITIONS.path(name=name))
        assert now["spec"]["names"]["shortNames"] == ["theirs"]
        assert now["metadata"]["labels"] == {"app.kubernetes.io/managed-by": "somebody"}

    async def test_webhook_is_not_called_after_the_release_is_uninstalled(
        self, major: str, kubeconfig: Path, tmp_path: Path
    ) -> None:
        await self._definitions(major, kubeconfig, tmp_path)
        await self._helm(major, kubeconfig, "install", "--set=webhook.enabled=true")
        async with KubeClient(load_config(str(kubeconfig))) as client:
            for name in (WEBHOOK, "theirs"):
                for resource in (MUTATING, VALIDATING):
                    await client.create(resource.path(), {"metadata": {"name": name}, "webhooks": []})
            await run(major, "uninstall", "phalanx", "-n", NAMESPACE, "--kubeconfig", kubeconfig, "--no-hooks")
            await self._hook(major, kubeconfig, tmp_path, "post-delete")
            for resource in (MUTATING, VALIDATING):
                left = (await client.get(resource.path()))["items"]
                assert [each["metadata"]["name"] for each in left] == ["theirs"]

    @pytest.mark.parametrize("when", ["post-upgrade", "post-rollback", "post-delete"])
    async def test_the_webhook_of_an_earlier_revision_is_called_no_more(
        self, major: str, kubeconfig: Path, tmp_path: Path, when: str
    ) -> None:
        """This holds for any path to a revision without the webhook, and for its uninstallation; other releases
        retain theirs.
        """
        async with KubeClient(load_config(str(kubeconfig))) as client:
            await client.create("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
            for namespace, left in (("research", {WEBHOOK}), (NAMESPACE, set())):
                address = WebhookAddress(namespace=namespace, service="phalanx-webhook")
                await unregister(client)
                await register(client, RegistrationOptions(address=address, scheduler_names=("x",)), b"")
                await self._hook(major, kubeconfig, tmp_path, when, "--set=webhook.enabled=false")
                for resource in (MUTATING, VALIDATING):
                    found = (await client.get(resource.path()))["items"]
                    assert {each["metadata"]["name"] for each in found} == left
                await client.delete(ACCOUNTS.path(NAMESPACE, "phalanx-webhook-removal"))
                for kind in ("clusterroles", "clusterrolebindings"):
                    await client.delete(f"/apis/rbac.authorization.k8s.io/v1/{kind}/phalanx-webhook-removal")

    async def _definitions(self, major: str, kubeconfig: Path, tmp_path: Path) -> None:
        async with KubeClient(load_config(str(kubeconfig))) as client:
            await client.create("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
        await self._hook(major, kubeconfig, tmp_path, "pre-install")

    async def _hook(
        self, major: str, kubeconfig: Path, tmp_path: Path, when: str, value: str = "--set=webhook.enabled=true"
    ) -> None:
        """Play the hook's Job with its arguments and its rights: this cluster runs no containers."""
        made = await _rendered(major, value)
        by_kind = {
            each["kind"]: each
            for each in made
            if when in each["metadata"].get("annotations", {}).get("helm.sh/hook", "").split(",")
        }
        assert by_kind.keys() == {"ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Job"}
        async with KubeClient(load_config(str(kubeconfig))) as client:
            await client.create(ACCOUNTS.path(NAMESPACE), by_kind["ServiceAccount"])
            rights = "/apis/rbac.authorization.k8s.io/v1/clusterrole"
            await client.create(f"{rights}s", by_kind["ClusterRole"])
            await client.create(f"{rights}bindings", by_kind["ClusterRoleBinding"])
            name = by_kind["Job"]["spec"]["template"]["spec"]["serviceAccountName"]
            account = await _as_account(client, kubeconfig, name, tmp_path)
        arguments = by_kind["Job"]["spec"]["template"]["spec"]["containers"][0]["args"]
        process = await Process.start(*arguments, "--kubeconfig", account)
        assert await process.ends(patience=100) == 0, process.output

    async def _helm(self, major: str, kubeconfig: Path, verb: str, *arguments: str) -> None:
        where = ("-n", NAMESPACE, "--kubeconfig", kubeconfig, "--no-hooks")
        await run(major, verb, "phalanx", CHART, *where, *arguments)


async def _rendered(major: str, *arguments: str) -> list[dict[str, Any]]:
    text = await run(major, "template", "phalanx", CHART, "-n", NAMESPACE, *arguments)
    return [each for each in yaml.safe_load_all(text) if each]


async def _metrics(port: int, authority: Path, token: str) -> int:
    """Return the status of an answer, with the certificate trusted as a ServiceMonitor declares."""
    context = ssl.create_default_context(cafile=str(authority))
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    async with (
        aiohttp.ClientSession() as session,
        session.get(
            f"https://127.0.0.1:{port}/metrics",
            ssl=context,
            server_hostname=f"phalanx-scheduler.{NAMESPACE}.svc",
            headers=headers,
        ) as answer,
    ):
        return answer.status


def _release(manifest: dict[str, Any]) -> str:
    return str(manifest["metadata"].get("annotations", {}).get("meta.helm.sh/release-name", ""))


def _token(kubeconfig: Path) -> str:
    return str(yaml.safe_load(kubeconfig.read_text("utf-8"))["users"][0]["user"]["token"])


async def _as_account(client: KubeClient, kubeconfig: Path, name: str, folder: Path) -> Path:
    """A kubeconfig with a token of a service account of the release's namespace."""
    request = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"expirationSeconds": 3600},
    }
    token = (await client.create(f"{ACCOUNTS.path(NAMESPACE, name)}/token", request))["status"]["token"]
    document = yaml.safe_load(await asyncio.to_thread(kubeconfig.read_text, "utf-8"))
    document["users"][0]["user"] = {"token": token}
    path = folder / f"{name}.kubeconfig"
    await asyncio.to_thread(path.write_text, yaml.safe_dump(document), "utf-8")
    return path


async def _all_bound(client: KubeClient) -> bool:
    listed = (await client.get(PODS.path("default")))["items"]
    return all(each["spec"].get("nodeName") for each in listed)


def _node() -> dict[str, Any]:
    status = {
        "allocatable": {"cpu": "4", "memory": "8Gi", "pods": "10"},
        "conditions": [{"type": "Ready", "status": "True"}],
    }
    return {"metadata": {"name": "n"}, "status": status}


@pytest.mark.timeout(120)
async def test_one_apply_of_the_plain_manifests_installs_on_an_empty_cluster(kubeconfig: Path) -> None:
    apply = ("kubectl", "apply", "--server-side", "-k", str(ROOT / "deploy"), "--kubeconfig", str(kubeconfig))
    for _ in range(2):
        process = await asyncio.create_subprocess_exec(
            *apply, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
        )
        said, _ = await process.communicate()
        assert process.returncode == 0, said.decode()
