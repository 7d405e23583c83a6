"""The installed objects are valid for the oldest Kubernetes that we support, and for the newest."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
import yaml
from charts.generate import CHART, NAMESPACE, ROOT

from phalanx.cli.installation import admission
from phalanx.kube.own_objects import LABELS
from tests.install.helm import run
from tests.install.schemas import validated
from tests.install.test_chart import EVERYTHING

OLDEST = "1.30"
VERSIONS = pytest.mark.parametrize("version", [OLDEST, "1.37"])
#: Of custom resource definitions: ours, and of the Prometheus operator.
CUSTOM = {"Queue", "PodMonitor", "ServiceMonitor", "PrometheusRule"}

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def test_the_oldest_is_the_one_that_the_chart_and_the_documents_name() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text("utf-8"))
    assert chart["kubeVersion"] == f">={OLDEST}-0"
    assert f"Kubernetes {OLDEST} or later" in (ROOT / "docs" / "install.md").read_text("utf-8")


@VERSIONS
@pytest.mark.parametrize("name", ["phalanx.yaml", "crds.yaml", "foreign-crds.yaml"])
def test_the_plain_manifests_are_taken(name: str, version: str) -> None:
    faults, unknown = validated(ROOT / "deploy" / name, version)
    assert faults == []
    assert unknown <= CUSTOM


@VERSIONS
def test_the_chart_with_all_that_can_be_switched_on_is_taken(version: str, tmp_path: Path) -> None:
    path = tmp_path / "rendered.yaml"
    path.write_text(_rendered(version), "utf-8")
    faults, unknown = validated(path, version)
    assert faults == []
    assert unknown == CUSTOM - {"Queue"}


@VERSIONS
def test_the_admission_policies_are_taken(version: str, tmp_path: Path) -> None:
    path = tmp_path / "policies.yaml"
    path.write_text(yaml.safe_dump_all(admission.policies(["phalanx"], LABELS)), "utf-8")
    assert validated(path, version) == ([], set())


def test_a_field_that_an_old_version_does_not_know_is_found(tmp_path: Path) -> None:
    path = tmp_path / "new.yaml"
    spec = {"containers": [{"name": "c"}], "schedulingGroup": {"podGroupName": "g"}}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec}
    path.write_text(yaml.safe_dump(pod), "utf-8")
    faults, _ = validated(path, OLDEST)
    assert len(faults) == 1
    assert "schedulingGroup" in faults[0]


def _rendered(version: str) -> str:
    where = ("template", "phalanx", CHART, "-n", NAMESPACE, "--kube-version", f"{version}.0")
    return asyncio.run(run("4", *where, *EVERYTHING))
