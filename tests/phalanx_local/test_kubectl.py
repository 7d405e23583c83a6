"""A real kubectl against the server, over TLS with the kubeconfig that it wrote."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from phalanx_local.server import ApiServer, ServerOptions
from tests.phalanx_local.client import binding

KUBECTL = shutil.which("kubectl")

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(KUBECTL is None, reason="kubectl is not installed"),
]

POD = """
apiVersion: v1
kind: Pod
metadata: {name: web, labels: {app: web}}
spec:
  containers:
  - {name: main, image: nginx, resources: {limits: {cpu: "1", memory: 1Gi}}}
"""
NODE = """
apiVersion: v1
kind: Node
metadata: {name: n1}
status:
  capacity: {cpu: "8", memory: 16Gi, pods: "110"}
  conditions: [{type: Ready, status: "True"}]
"""
DEFINITION = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: podgroups.scheduling.example.com}
spec:
  group: scheduling.example.com
  scope: Namespaced
  names: {plural: podgroups, kind: PodGroup, shortNames: [pgx]}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    additionalPrinterColumns:
    - {name: Min, type: integer, jsonPath: .spec.minMember}
    - {name: Phase, type: string, jsonPath: .status.phase}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            description: What the group asks for.
            properties:
              minMember: {type: integer, minimum: 1, description: How many pods start together.}
          status:
            type: object
            properties:
              phase: {type: string}
"""
GROUP = """
apiVersion: scheduling.example.com/v1
kind: PodGroup
metadata: {name: gang}
spec: {minMember: 3}
"""


class Kubectl:
    def __init__(self, server: ApiServer, home: Path) -> None:
        self.server = server
        self.home = home
        self.environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            "KUBECONFIG": str(home / "kubeconfig"),
            # A quarter of the time of a short command is garbage collection.
            "GOGC": "off",
        }
        server.write_kubeconfig(home / "kubeconfig")

    async def start(self, *arguments: str, **environment: str) -> asyncio.subprocess.Process:
        assert KUBECTL is not None
        return await asyncio.create_subprocess_exec(
            KUBECTL,
            *arguments,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=self.environment | environment,
        )

    async def run(self, *arguments: str, stdin: str = "", **environment: str) -> tuple[int, str, str]:
        process = await self.start(*arguments, **environment)
        async with asyncio.timeout(60):
            out, err = await process.communicate(stdin.encode())
        assert process.returncode is not None
        return process.returncode, out.decode(), err.decode()

    async def __call__(self, command: str, *more: str, stdin: str = "", **environment: str) -> str:
        """The output of a command that must succeed; words are split at spaces, `more` is taken whole."""
        code, out, err = await self.run(*command.split(), *more, stdin=stdin, **environment)
        assert code == 0, err
        return out

    async def fails(self, command: str, *more: str, stdin: str = "") -> str:
        """Run a command that must fail and return its message."""
        code, _, err = await self.run(*command.split(), *more, stdin=stdin)
        assert code != 0
        return err

    async def says(self, stream: asyncio.StreamReader | None, words: str) -> str:
        """Read the output of a running command, up to the line with these words."""
        assert stream is not None
        said = ""
        async with asyncio.timeout(60):
            while words not in said:
                line = (await stream.readline()).decode()
                assert line, said
                said += line
        return said

    async def watches(self, count: int) -> None:
        """Wait until `count` watches are open."""
        async with asyncio.timeout(60):
            while len(self.server._endpoint.watches) < count:  # noqa: ASYNC110 - the state is the server's
                await asyncio.sleep(0.005)

    def bind(self, name: str, node: str) -> None:
        """Binds and starts a pod, as a scheduler and a kubelet would."""
        from phalanx_local.endpoints.subresources import bind

        api = self.server.api
        pods = api.type("", "pods").preferred
        bind(api, pods, "default", name, binding(name, node), api.write())
        record = api.record(pods.type, "default", name)
        obj = record.load()
        obj["status"] |= {
            "phase": "Running",
            "conditions": [*obj["status"]["conditions"], {"type": "Ready", "status": "True"}],
        }
        api.save(pods.type, record, obj, record.load(), api.write())


@pytest_asyncio.fixture
async def kubectl(tmp_path: Path) -> AsyncIterator[Kubectl]:
    server = ApiServer(ServerOptions())
    await server.start()
    yield Kubectl(server, tmp_path)
    await server.stop()


def rows(output: str) -> list[list[str]]:
    return [line.split() for line in output.splitlines()]


async def test_get_prints_tables(kubectl: Kubectl) -> None:
    await kubectl("create -f -", stdin=NODE)
    await kubectl("create -f -", stdin=POD)
    kubectl.bind("web", "n1")
    assert rows(await kubectl("get pods"))[0] == ["NAME", "READY", "STATUS", "RESTARTS", "AGE"]
    assert rows(await kubectl("get po -A --no-headers"))[0][:4] == ["default", "web", "0/1", "Running"]
    wide = rows(await kubectl("get pods -o wide"))
    assert "NOMINATED" in wide[0]
    assert wide[1][6] == "n1"
    assert rows(await kubectl("get nodes"))[1][:3] == ["n1", "Ready", "<none>"]
    listed = await kubectl("get ns,pc,sa")
    assert "namespace/kube-system" in listed
    assert "priorityclass.scheduling.k8s.io/system-node-critical" in listed
    assert "web" in await kubectl("get pods -l app=web,!tier -o name")
    assert await kubectl("get pods --field-selector=spec.nodeName=n1 -o name") == "pod/web\n"
    assert "nginx" in await kubectl("get pod web -o yaml")
    assert await kubectl("get pods -o jsonpath={.items[*].spec.nodeName}") == "n1"
    assert "pods" in await kubectl("api-resources --api-group=")
    assert "scheduling.k8s.io/v1alpha2" in await kubectl("api-versions")
    assert "NotFound" in await kubectl.fails("get pod none")


async def test_describe(kubectl: Kubectl) -> None:
    await kubectl("create -f -", stdin=NODE)
    await kubectl("create -f -", stdin=POD)
    kubectl.bind("web", "n1")
    api = kubectl.server.api
    event = {
        "metadata": {"name": "web.1"},
        "involvedObject": {
            "apiVersion": "v1",
            "kind": "Pod",
            "namespace": "default",
            "name": "web",
            "uid": api.record(api.type("", "pods"), "default", "web").uid,
        },
        "reason": "Scheduled",
        "type": "Normal",
        "message": "Successfully assigned default/web to n1",
    }
    api.create(api.type("", "events").preferred, "default", event, api.write())
    pod = await kubectl("describe pod web")
    assert "Successfully assigned default/web to n1" in pod
    assert ["QoS", "Class:", "Guaranteed"] in rows(pod)
    node = await kubectl("describe node n1")
    assert ["default", "web", "1", "(12%)", "1", "(12%)", "1Gi", "(6%)", "1Gi", "(6%)"] in [
        row[:-1] for row in rows(node)
    ]
    assert "Successfully assigned" in await kubectl("events --for pod/web")
    assert "Scheduled" in await kubectl("get events")


async def test_apply_on_the_client_s_side(kubectl: Kubectl) -> None:
    assert await kubectl("apply -f -", stdin=POD) == "pod/web created\n"
    assert await kubectl("apply -f -", stdin=POD) == "pod/web unchanged\n"
    changed = POD.replace("nginx", "nginx:2").replace("app: web", "app: site")
    assert await kubectl("apply -f -", stdin=changed) == "pod/web configured\n"
    assert await kubectl("get pod web -o jsonpath={.spec.containers[0].image}") == "nginx:2"
    assert "app=site" in await kubectl("get pod web --show-labels")
    assert await kubectl("diff -f -", stdin=changed) == ""
    refused = await kubectl.fails("apply -f -", stdin=changed.replace("spec:", "spec:\n  nodeName: x"))
    assert "pod updates may not change fields" in refused


async def test_apply_of_a_list_creates_its_items_and_checks_their_fields(kubectl: Kubectl) -> None:
    config_maps = "kind: List\napiVersion: v1\nitems:\n" + "".join(
        f"- {{apiVersion: v1, kind: ConfigMap, metadata: {{name: {name}}}, data: {{x: '1'}}}}\n"
        for name in ("a", "b")
    )
    assert await kubectl("apply -f -", stdin=config_maps) == "configmap/a created\nconfigmap/b created\n"
    assert await kubectl("apply -f -", stdin=config_maps) == "configmap/a unchanged\nconfigmap/b unchanged\n"
    printed = await kubectl("get configmap a b -o yaml")
    assert rows(await kubectl("apply -f -", stdin=printed)) == [
        [f"configmap/{name}", "configured"] for name in "ab"
    ]
    refused = await kubectl.fails("apply -f -", stdin=config_maps.replace(" data:", " dato:"))
    assert 'unknown field "dato"' in refused


async def test_apply_on_the_server_s_side(kubectl: Kubectl) -> None:
    assert "serverside-applied" in await kubectl("apply --server-side -f -", stdin=POD)
    changed = POD.replace("nginx", "nginx:2")
    conflict = await kubectl.fails("apply --server-side --field-manager=other -f -", stdin=changed)
    assert "conflict with" in conflict
    assert "containers[name=" in conflict
    await kubectl("apply --server-side --field-manager=other --force-conflicts -f -", stdin=changed)
    assert await kubectl("get pod web -o jsonpath={.spec.containers[0].image}") == "nginx:2"
    assert "manager: other" in await kubectl("get pod web -o yaml --show-managed-fields")


async def test_apply_can_move_from_the_client_s_to_the_server_s_side(kubectl: Kubectl) -> None:
    await kubectl("apply -f -", stdin=POD)
    await kubectl("apply --server-side -f -", stdin=POD.replace("nginx", "nginx:2"))
    assert await kubectl("get pod web -o jsonpath={.spec.containers[0].image}") == "nginx:2"


async def test_edit_patch_label_annotate(kubectl: Kubectl) -> None:
    await kubectl("create -f -", stdin=POD)
    assert "edited" in await kubectl("edit pod web", EDITOR="sed -i s/nginx/caddy/")
    assert "patched" in await kubectl("patch pod web -p", '{"metadata":{"labels":{"a":"1"}}}')
    assert "patched" in await kubectl(
        "patch pod web --type=json -p", '[{"op":"add","path":"/metadata/labels/b","value":"2"}]'
    )
    assert "patched" in await kubectl("patch pod web --type=merge -p", '{"metadata":{"labels":{"c":"3"}}}')
    assert "patched" in await kubectl(
        "patch pod web --subresource=status -p", '{"status":{"nominatedNodeName":"n9"}}'
    )
    assert "labeled" in await kubectl("label pod web d=4 a-")
    assert "annotated" in await kubectl("annotate pod web note=hello")
    assert await kubectl("get pod web -o jsonpath={.metadata.labels}") == ('{"app":"web","b":"2","c":"3","d":"4"}')
    assert await kubectl("get pod web -o jsonpath={.spec.containers[0].image}") == "caddy"
    assert "n9" in await kubectl("get pod web -o wide")


async def test_wait_watch_and_delete(kubectl: Kubectl) -> None:
    await kubectl("create -f -", stdin=NODE)
    await kubectl("create -f -", stdin=POD)
    waiting = asyncio.create_task(kubectl("wait --for=condition=Ready pod/web --timeout=60s"))
    watching = await kubectl.start("get", "pods", "-w")
    await kubectl.watches(2)
    kubectl.bind("web", "n1")
    assert await waiting == "pod/web condition met\n"
    gone = asyncio.create_task(kubectl("wait --for=delete pod/web --timeout=60s"))
    await kubectl.watches(2)
    assert "deleted" in await kubectl("delete pod web --grace-period=0 --force")
    await gone
    shown = await kubectl.says(watching.stdout, "Running")
    watching.terminate()
    await watching.communicate()
    statuses = [row[2] for row in rows(shown)[1:]]
    assert statuses[0] == "Pending"
    assert statuses[-1] == "Running"


async def test_generated_names_and_dry_runs(kubectl: Kubectl) -> None:
    body = POD.replace("name: web, ", "generateName: web-, ", 1)
    first, second = await kubectl("create -f -", stdin=body), await kubectl("create -f -", stdin=body)
    assert first.startswith("pod/web-")
    assert first != second
    assert "dry run" in await kubectl("create --dry-run=server -f -", stdin=POD)
    assert len(rows(await kubectl("get pods --no-headers"))) == 2
    strict = await kubectl.fails("create -f -", stdin=POD.replace("image:", "imago: x, image:"))
    assert 'unknown field "spec.containers[0].imago"' in strict


@pytest.mark.slow
async def test_nodes_are_tainted_cordoned_and_drained(kubectl: Kubectl) -> None:
    await kubectl("create -f -", stdin=NODE)
    await kubectl("create -f -", stdin=POD)
    kubectl.bind("web", "n1")
    assert "tainted" in await kubectl("taint node n1 gpu=yes:NoSchedule")
    assert "untainted" in await kubectl("taint node n1 gpu-")
    assert "cordoned" in await kubectl("cordon n1")
    assert "SchedulingDisabled" in await kubectl("get nodes")
    assert "uncordoned" in await kubectl("uncordon n1")
    await kubectl("create pdb web --selector=app=web --min-available=1")
    await kubectl("wait --for=jsonpath={.status.currentHealthy}=1 pdb/web --timeout=10s")
    assert rows(await kubectl("get pdb"))[1][:4] == ["web", "1", "N/A", "0"]
    blocked = await kubectl.start("drain", "n1", "--force")
    await kubectl.says(blocked.stderr, "disruption budget")
    blocked.terminate()
    await blocked.communicate()
    await kubectl("delete pdb web")
    drain = asyncio.create_task(kubectl("drain n1 --force --timeout=60s"))
    api = kubectl.server.api
    pods = api.type("", "pods")
    async with asyncio.timeout(60):
        while not api.record(pods, "default", "web").terminating:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    await kubectl("delete pod web --grace-period=0 --force")  # the part of its kubelet
    assert "drained" in await drain


async def test_imperative_commands(kubectl: Kubectl) -> None:
    for command in (
        "create namespace team",
        "create deployment web --image=nginx --replicas=2",
        "create job once --image=busybox",
        "create configmap settings --from-literal=a=b",
        "create secret generic keys --from-literal=a=b",
        "create serviceaccount robot",
        "create priorityclass high --value=1000",
        "create quota small --hard=pods=30",
        "create role reader --verb=get --resource=pods",
        "create service clusterip web --tcp=80",
        "run one --image=busybox --restart=Never",
        "expose deployment web --port=80 --name=front",
    ):
        assert await kubectl(command)
    assert await kubectl("auth can-i create pods") == "yes\n"
    assert "kubernetes-admin" in await kubectl("auth whoami")
    assert "scaled" in await kubectl("scale deployment web --replicas=5")
    assert rows(await kubectl("get deployments"))[1][:2] == ["web", "0/5"]
    assert "0/1" in await kubectl("get jobs")
    assert await kubectl("create token robot")
    assert await kubectl("delete namespace team") == 'namespace "team" deleted\n'
    assert "deleted" in await kubectl("delete deployment,job,service --all")


async def test_custom_resources_are_first_class(kubectl: Kubectl) -> None:
    await kubectl("apply -f -", stdin=DEFINITION)
    await kubectl("wait --for=condition=Established crd/podgroups.scheduling.example.com --timeout=10s")
    assert "created" in await kubectl("apply -f -", stdin=GROUP)
    assert "serverside-applied" in await kubectl(
        "apply --server-side --force-conflicts -f -", stdin=GROUP.replace("3", "4")
    )
    assert rows(await kubectl("get pgx")) == [["NAME", "MIN", "PHASE"], ["gang", "4"]]
    await kubectl("patch pgx gang --subresource=status --type=merge -p", '{"status":{"phase":"Running"}}')
    assert "Running" in await kubectl("get pgx")
    assert "Min Member:  4" in await kubectl("describe pgx gang")
    explained = await kubectl("explain pgx.spec.minMember")
    assert "How many pods start together." in explained
    refused = await kubectl.fails("apply -f -", stdin=GROUP.replace("3", "0"))
    assert "spec.minMember" in refused
    await kubectl("wait --for=jsonpath={.status.phase}=Running pgx/gang --timeout=10s")
    assert "deleted" in await kubectl("delete pgx gang")
    assert "deleted" in await kubectl("delete crd podgroups.scheduling.example.com")


async def test_explain_knows_the_fields_of_built_in_kinds(kubectl: Kubectl) -> None:
    explained = await kubectl("explain pod.spec.containers.resources")
    assert "limits" in explained
    assert "requests" in explained
    assert "minCount" in await kubectl("explain podgroups.spec.schedulingPolicy.gang")


async def test_wrong_token_is_distinguished_from_a_missing_right(kubectl: Kubectl) -> None:
    assert "logged in" in await kubectl.fails("get pods --token=wrong")
