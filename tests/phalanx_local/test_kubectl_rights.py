"""A real kubectl that queries its rights, and acts as a tenant and under impersonation."""

from __future__ import annotations

import json

import pytest

from tests.phalanx_local.test_kubectl import KUBECTL, POD, Kubectl, kubectl, rows

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


async def test_tenant_works_in_its_namespace(kubectl: Kubectl) -> None:
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


async def test_can_i_agrees_with_the_authorizer(kubectl: Kubectl) -> None:
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


async def test_roles_and_quotas_are_shown_as_on_a_real_cluster(kubectl: Kubectl) -> None:
    kubectl.server.write_tenant_kubeconfig("team", kubectl.home / "team")
    wide = rows(await kubectl("get rolebindings -n team -o wide"))
    assert wide[0] == ["NAME", "ROLE", "AGE", "USERS", "GROUPS", "SERVICEACCOUNTS"]
    assert (wide[1][:2], wide[1][-1]) == (["tenant", "ClusterRole/edit"], "team/tenant")
    assert rows(await kubectl("get clusterroles"))[0] == ["NAME", "CREATED", "AT"]
    await kubectl("create quota small -n team --hard=pods=3,requests.cpu=2,limits.cpu=4")
    await kubectl("wait quota/small -n team --for=jsonpath={.status.used.pods}=0 --timeout=10s")
    shown = await kubectl("get quota -n team --no-headers")
    assert "pods: 0/3, requests.cpu: 0/2" in shown
    assert "limits.cpu: 0/4" in shown
    pods = ["run", "one", "--image=x", "-n", "team", "--overrides"]
    resources = {"requests": {"cpu": "1"}, "limits": {"cpu": "5"}}
    body = {"spec": {"containers": [{"name": "one", "image": "x", "resources": resources}]}}
    refused = (await kubectl.run(*pods, json.dumps(body)))[2]
    assert "exceeded quota: small, requested: limits.cpu=5, used: limits.cpu=0, limited: limits.cpu=4" in refused
