"""Settings of the chart per part: placement, variables, accounts, probes, monitors, the page's ingress."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from charts.generate import CHART

from tests.install.helm import run

MAJORS = pytest.mark.parametrize("major", ["3", "4"])
PARTS = ("scheduler", "controllers", "webhook", "dashboard", "accounting", "hub")
ALL = [
    *(f"--set={part}.enabled=true" for part in PARTS if part != "scheduler"),
    "--set=accounting.image=registry.example/accounts:1",
    "--set=metrics.serviceMonitor=true",
    "--set=metrics.prometheusRule=true",
]


async def documents(major: str, folder: Path, values: dict[str, Any], *flags: str) -> list[dict[str, Any]]:
    file = folder / "values.yaml"
    file.write_text(yaml.safe_dump(values), "utf-8")
    text = await run(major, "template", "phalanx", CHART, "-n", "phalanx-system", "-f", file, *ALL, *flags)
    return [document for document in yaml.safe_load_all(text) if document]


def named(found: list[dict[str, Any]], kind: str, name: str) -> dict[str, Any]:
    (document,) = (each for each in found if (each["kind"], each["metadata"]["name"]) == (kind, name))
    return document


def pod_of(found: list[dict[str, Any]], part: str) -> dict[str, Any]:
    template: dict[str, Any] = named(found, "Deployment", f"phalanx-{part}")["spec"]["template"]
    return template


@MAJORS
async def test_every_part_has_probes_and_a_monitored_port(major: str, tmp_path: Path) -> None:
    found = await documents(major, tmp_path, {})
    for part in PARTS:
        (container,) = pod_of(found, part)["spec"]["containers"]
        assert {"livenessProbe", "readinessProbe"} <= set(container), part
        assert part == "dashboard" or "metrics" in [port["name"] for port in container["ports"]], part
    monitor = named(found, "PodMonitor", "phalanx-parts")["spec"]
    (expression,) = monitor["selector"]["matchExpressions"]
    assert set(expression["values"]) == {"controllers", "hub", "accounting", "webhook"}
    assert monitor["podMetricsEndpoints"][0]["relabelings"] == [
        {"targetLabel": "job", "replacement": "phalanx-parts"}
    ]


@MAJORS
async def test_settings_of_a_part_add_to_or_replace_those_of_all(major: str, tmp_path: Path) -> None:
    own = {
        "nodeSelector": {"pool": "infra"},
        "tolerations": [{"key": "own", "operator": "Exists"}],
        "affinity": {"nodeAffinity": {}},
        "podLabels": {"own": "label"},
        "extraEnv": [{"name": "OWN", "value": "1"}],
        "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}],
        "serviceAccountAnnotations": {"example.com/role": "arn:x"},
    }
    every = {"podLabels": {"all": "label"}, "extraEnv": [{"name": "ALL", "value": "2"}], "nodeSelector": {"a": "b"}}
    for part in PARTS:
        found = await documents(major, tmp_path, {**every, part: own})
        pod = pod_of(found, part)
        assert {"own", "all"} <= set(pod["metadata"]["labels"]), part
        spec = pod["spec"]
        assert (spec["nodeSelector"], spec["tolerations"], spec["affinity"]) == (
            own["nodeSelector"],
            own["tolerations"],
            own["affinity"],
        )
        (constraint,) = spec["topologySpreadConstraints"]
        assert constraint["labelSelector"]["matchLabels"]["app.kubernetes.io/component"] == part
        environment = [variable["name"] for variable in spec["containers"][0]["env"]]
        assert environment[-2:] == ["ALL", "OWN"], part
        account = named(found, "ServiceAccount", f"phalanx-{part}")
        assert account["metadata"]["annotations"] == own["serviceAccountAnnotations"], part
        other = pod_of(found, "scheduler" if part != "scheduler" else "controllers")
        assert other["spec"]["nodeSelector"] == {"a": "b"}
        assert "podAntiAffinity" in other["spec"]["affinity"]


@MAJORS
async def test_monitors_and_rule_have_labels_namespace_and_absolute_runbooks(major: str, tmp_path: Path) -> None:
    metrics = {
        "monitorLabels": {"release": "prom"},
        "monitorNamespace": "monitoring",
        "runbooks": "https://wiki.example/x",
    }
    found = await documents(major, tmp_path, {"metrics": metrics})
    for kind, name in (
        ("ServiceMonitor", "phalanx-scheduler"),
        ("PodMonitor", "phalanx-parts"),
        ("PrometheusRule", "phalanx"),
    ):
        metadata = named(found, kind, name)["metadata"]
        assert (metadata["labels"]["release"], metadata["namespace"]) == ("prom", "monitoring")
    rules = [
        rule for group in named(found, "PrometheusRule", "phalanx")["spec"]["groups"] for rule in group["rules"]
    ]
    runbooks = {rule["annotations"]["runbook_url"].partition("#")[0] for rule in rules}
    assert runbooks == {"https://wiki.example/x"}
    default = named(await documents(major, tmp_path, {}), "PrometheusRule", "phalanx")
    assert "runbook_url: https://phalanx.dev/alerts.html#phalanxdown" in yaml.safe_dump(default)


@MAJORS
async def test_ingress_of_the_page_needs_host_names_and_tls(major: str, tmp_path: Path) -> None:
    ingress = {"enabled": True, "className": "nginx", "tlsSecret": "page-tls"}
    found = await documents(major, tmp_path, {"dashboard": {"hosts": ["page.example"], "ingress": ingress}})
    spec = named(found, "Ingress", "phalanx-dashboard")["spec"]
    assert spec["tls"] == [{"hosts": ["page.example"], "secretName": "page-tls"}]
    assert [rule["host"] for rule in spec["rules"]] == ["page.example"]
    for flags, message in (
        (["--set=dashboard.ingress.tlsSecret=t"], "dashboard.hosts"),
        (["--set=dashboard.hosts={a.example}"], "dashboard.ingress.tlsSecret"),
    ):
        enabled = ["--set=dashboard.enabled=true", "--set=dashboard.ingress.enabled=true"]
        assert message in await run(major, "template", "phalanx", CHART, *enabled, *flags, fails=True)


@MAJORS
async def test_notifications_are_read_from_their_secret(major: str, tmp_path: Path) -> None:
    found = await documents(major, tmp_path, {"accounting": {"notifications": {"existingSecret": "notes"}}})
    spec = pod_of(found, "accounting")["spec"]
    assert {"name": "notifications", "secret": {"secretName": "notes"}} in spec["volumes"]
    option = "--notifications=/etc/phalanx-notifications/notifications.yaml"
    assert option in spec["containers"][0]["args"]


@MAJORS
async def test_rights_on_secrets_are_granted_only_for_the_ssh_plugin(major: str, tmp_path: Path) -> None:
    for ssh in (True, False):
        found = await documents(major, tmp_path, {"controllers": {"ssh": ssh}})
        rules = named(found, "ClusterRole", "phalanx-controllers")["rules"]
        assert any("secrets" in rule["resources"] for rule in rules) is ssh
        assert any("pods" in rule["resources"] for rule in rules)
        for part in ("controllers", "webhook"):
            assert ("--no-ssh" in pod_of(found, part)["spec"]["containers"][0]["args"]) is not ssh
