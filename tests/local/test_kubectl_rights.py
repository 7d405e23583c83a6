"""A real kubectl asks what it may do, and acts as a tenant and as others."""

from __future__ import annotations

import json

import pytest

from tests.local.test_kubectl import KUBECTL, POD, Kubectl, kubectl, rows

__all__ = ["kubectl"]

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(KUBECTL is None, reason="kubectl is not installed"),
]

WITHOUT_RULES = """
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: reader, namespace: default}
rules: []
"""


async def test_a_tenant_works_in_his_namespace(kubectl: Kubectl) -> None:
    file = kubectl.home / "team.kubeconfig"
    kubectl.server.write_tenant_kubeconfig("team", file)
    tenant = ("--kubeconfig", str(file))
    assert await kubectl("apply -f -", *tenant, stdin=POD) == "pod/web created\n"
    assert await kubectl("get pods -o name", *tenant) == "pod/web\n"
    assert "team" in await kubectl("get namespace team", *tenant)
    refused = await kubectl.fails("get pods -A", *tenant)
    assert refused == (
        'Error from server (Forbidden): pods is forbidden: User "system:serviceaccount:team:tenant" cannot list '
        'resource "pods" in API group "" at the cluster scope\n'
    )
    assert "Forbidden" in await kubectl.fails("get nodes", *tenant)
    assert "is forbidden" in await kubectl.fails("create rolebinding me --clusterrole=admin --user=me", *tenant)
    assert "Forbidden" in await kubectl.fails("get pods --as=system:admin", *tenant)


async def test_can_i_tells_the_truth(kubectl: Kubectl) -> None:
    assert await kubectl("auth can-i * * --all-namespaces") == "yes\n"
    file = kubectl.home / "team.kubeconfig"
    kubectl.server.write_tenant_kubeconfig("team", file)
    for question, answer in (
        ("create pods", "yes"),
        ("create pods --subresource=binding", "no"),
        ("create pods -n default", "no"),
        ("patch pods --subresource=status", "no"),
        ("create resourcequotas", "no"),
        ("update deployments.apps --subresource=scale", "yes"),
        ("get /logs", "no"),
        ("get /version", "yes"),
    ):
        code, out, _ = await kubectl.run("auth", "can-i", *question.split(), "--kubeconfig", str(file))
        assert (out, code) == (f"{answer}\n", 0 if answer == "yes" else 1), question
    table = rows(await kubectl("auth can-i --list", "--kubeconfig", str(file)))
    listed = {row[0]: row for row in table[1:]}
    assert "create" in " ".join(listed["pods"])
    assert "create" not in " ".join(listed["pods/status"])
    assert "pods/binding" not in listed
    account = "--as=system:serviceaccount:team:tenant"
    assert await kubectl(f"auth can-i create pods -n team {account}") == "yes\n"
    code, out, _ = await kubectl.run("auth", "can-i", "create", "pods", "-n", "default", account)
    assert (out, code) == ("no\n", 1)
    who = json.loads(await kubectl(f"auth whoami -o json {account}"))
    assert who["status"]["userInfo"]["username"] == "system:serviceaccount:team:tenant"


async def test_roles_are_made_and_tokens_handed_out(kubectl: Kubectl) -> None:
    await kubectl("create serviceaccount robot")
    await kubectl("create role reader --verb=get,list --resource=pods,pods/log")
    await kubectl("create rolebinding robot --role=reader --serviceaccount=default:robot")
    await kubectl("create clusterrole nodes --verb=list --resource=nodes")
    await kubectl("create clusterrolebinding nodes --clusterrole=nodes --group=system:serviceaccounts")
    token = (await kubectl("create token robot --duration=1h")).strip()
    config = kubectl.server.kubeconfig()
    config["users"][0]["user"] = {"token": token}
    (kubectl.home / "robot").write_text(json.dumps(config))
    robot = ("--kubeconfig", str(kubectl.home / "robot"))
    assert await kubectl("get pods -o name", *robot) == ""
    assert await kubectl("get nodes -o name", *robot) == ""
    assert "Forbidden" in await kubectl.fails("get secrets", *robot)
    assert "reader" in await kubectl("describe role reader")
    await kubectl("auth reconcile --remove-extra-permissions -f -", stdin=WITHOUT_RULES)
    assert "Forbidden" in await kubectl.fails("get pods", *robot)
