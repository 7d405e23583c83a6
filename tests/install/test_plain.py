"""The plain manifests with kubectl, as in docs/install.md: created, preserved, and remaining objects."""

from __future__ import annotations

import asyncio
import os
import re
from pathlib import Path

import pytest
import yaml

from phalanx.kube.auth.config import load_config
from phalanx.kube.client import KubeClient
from phalanx.kube.paths import Resource

ROOT = Path(__file__).parents[2]
DEFINITIONS = Resource("apiextensions.k8s.io", "v1", "customresourcedefinitions", "CRD", namespaced=False)
THEIRS = "podgroups.scheduling.x-k8s.io"
FOREIGN = "kubectl create -f deploy/foreign-crds.yaml"
OURS = "kubectl apply --server-side -k deploy"
# Kinds of which something of ours may be anywhere in a cluster.
KINDS = (
    "namespaces,clusterroles,clusterrolebindings,flowschemas,validatingadmissionpolicies,"
    "validatingadmissionpolicybindings"
)

pytestmark = [pytest.mark.slow, pytest.mark.e2e, pytest.mark.timeout(300)]


async def shell(kubeconfig: Path, text: str) -> tuple[int, str]:
    process = await asyncio.create_subprocess_exec(
        *("bash", "-c", text),
        cwd=ROOT,
        env={**os.environ, "KUBECONFIG": str(kubeconfig)},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await process.communicate()
    return process.returncode or 0, output.decode()


def commands(heading: str) -> str:
    """The commands that the documentation has under a heading."""
    text = (ROOT / "docs" / "install.md").read_text("utf-8")
    section = text.split(f"## {heading}\n", 1)[1].split("\n## ", 1)[0]
    (found,) = re.findall(r"^```\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
    return str(found)


async def test_definitions_of_another_project_stay_as_they_are(kubeconfig: Path) -> None:
    documented = (ROOT / "docs" / "install.md").read_text("utf-8")
    assert f"`{FOREIGN}`, then `{OURS}`" in documented
    every = list(yaml.safe_load_all((ROOT / "deploy" / "foreign-crds.yaml").read_text("utf-8")))
    (foreign,) = [each for each in every if each["metadata"]["name"] == THEIRS]
    foreign["metadata"]["labels"] = {"app.kubernetes.io/managed-by": "somebody"}
    foreign["spec"]["names"]["shortNames"] = ["theirs"]
    async with KubeClient(load_config(str(kubeconfig))) as client:
        made = await client.create(DEFINITIONS.path(), foreign)
        code, output = await shell(kubeconfig, FOREIGN)
        assert (code, output.count("AlreadyExists")) == (1, 1), output
        code, output = await shell(kubeconfig, OURS)
        assert code == 0, output
        code, output = await shell(kubeconfig, OURS)
        assert code == 0, output
        now = await client.get(DEFINITIONS.path(name=THEIRS))
        assert (now["spec"], now["metadata"]["labels"]) == (made["spec"], made["metadata"]["labels"])
        there = {each["metadata"]["name"] for each in (await client.get(DEFINITIONS.path()))["items"]}
    assert {each["metadata"]["name"] for each in every} < there


async def test_deletion_of_the_manifests_preserves_definitions(kubeconfig: Path) -> None:
    await shell(kubeconfig, FOREIGN)
    code, output = await shell(kubeconfig, OURS)
    assert code == 0, output
    _, before = await shell(kubeconfig, "kubectl get crds -o name")
    code, output = await shell(kubeconfig, commands("Uninstall"))
    assert code == 0, output
    _, left = await shell(kubeconfig, f"kubectl get {KINDS} -o name | grep phalanx")
    assert left == ""
    _, left = await shell(kubeconfig, "kubectl get role,rolebinding,configmap,secret -n kube-system -o name")
    assert "phalanx" not in left
    _, after = await shell(kubeconfig, "kubectl get crds -o name")
    assert after == before
