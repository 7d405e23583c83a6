"""A transport that holds a few pods as an API server would, and fails on request."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Callable
from typing import Any

import msgspec

from phalanx.kube.client import KubeClient
from phalanx.kube.config import ClusterConfig
from phalanx.kube.credentials import Identity
from phalanx.kube.transport import Answer, Call

_POD = re.compile(r"/api/v1/namespaces/(?P<namespace>[^/]+)/pods/(?P<name>[^/]+)(?P<rest>/[a-z]+)?$")


class Fault:
    """What happens to the next `times` requests of a method whose path ends so. `error` is raised, else `status`
    is answered; `after_write` lets the request take effect first.
    """

    def __init__(
        self,
        method: str,
        ending: str,
        *,
        status: int = 0,
        error: Exception | None = None,
        after_write: bool = False,
        times: int = 1,
        retry_after: str | None = None,
        body: bytes | None = None,
    ) -> None:
        self.method = method
        self.ending = ending
        self.status = status
        self.error = error
        self.after_write = after_write
        self.times = times
        self.retry_after = retry_after
        self.body = body


class PodServer:
    """Pods by (namespace, name); `calls` are the requests as `METHOD path`, `patches` the bodies of patches.

    `before` is called with each request before it is looked at.
    """

    def __init__(self) -> None:
        self.pods: dict[tuple[str, str], dict[str, Any]] = {}
        self.calls: list[str] = []
        self.patches: list[dict[str, Any]] = []
        self.faults: list[Fault] = []
        self.before: Callable[[Call], None] = lambda call: None
        self._version = 100

    def client(self) -> KubeClient:
        return KubeClient(ClusterConfig("http://pods.invalid"), transports=lambda *_, **__: self)

    def add(self, name: str, **spec: Any) -> dict[str, Any]:
        pod = {
            "metadata": {"name": name, "namespace": "ns", "uid": f"uid-{name}", "resourceVersion": self._next()},
            "spec": spec,
            "status": {"conditions": []},
        }
        self.pods["ns", name] = pod
        return pod

    def change(self, pod: dict[str, Any]) -> None:
        pod["metadata"]["resourceVersion"] = self._next()

    def fail(self, method: str, ending: str, **what: Any) -> None:
        self.faults.append(Fault(method, ending, **what))

    def node_of(self, name: str) -> str:
        return str(self.pods["ns", name]["spec"].get("nodeName", ""))

    def condition(self, name: str, kind: str) -> dict[str, Any]:
        conditions = self.pods["ns", name]["status"]["conditions"]
        return next((entry for entry in conditions if entry["type"] == kind), {})

    # the transport

    async def request(self, call: Call, identity: Identity) -> Answer:
        path = call.target.partition("?")[0]
        self.calls.append(f"{call.method} {path.rsplit('/ns/pods/', 1)[-1]}")
        self.before(call)
        fault = self._fault(call.method, path)
        if fault is not None and not fault.after_write:
            return _strike(fault)
        answer = self._handle(call, path)
        return answer if fault is None else _strike(fault)

    def stream(
        self, target: str, identity: Identity, accept: str, read_timeout: float
    ) -> AsyncGenerator[Answer, None]:
        raise NotImplementedError

    async def close(self) -> None:
        pass

    def _fault(self, method: str, path: str) -> Fault | None:
        for fault in self.faults:
            if fault.method == method and path.endswith(fault.ending):
                fault.times -= 1
                if fault.times <= 0:
                    self.faults.remove(fault)
                return fault
        return None

    def _handle(self, call: Call, path: str) -> Answer:
        match = _POD.search(path)
        assert match is not None, path
        pod = self.pods.get((match["namespace"], match["name"]))
        if pod is None:
            return status(404, f'pods "{match["name"]}" not found')
        if call.method == "GET":
            return Answer(200, msgspec.json.encode(pod))
        assert call.body is not None
        body = msgspec.json.decode(call.body)
        return self._bind(pod, body) if match["rest"] == "/binding" else self._patch(pod, body)

    def _bind(self, pod: dict[str, Any], body: dict[str, Any]) -> Answer:
        metadata, spec = pod["metadata"], pod["spec"]
        if body["metadata"]["uid"] != metadata["uid"]:
            return status(409, "Precondition failed: UID")
        if metadata.get("deletionTimestamp"):
            return status(409, "pod is being deleted, cannot be assigned to a host")
        if spec.get("schedulingGates"):
            return status(409, "pod has non-empty .spec.schedulingGates")
        if spec.get("nodeName"):
            return status(409, f"pod is already assigned to node {spec['nodeName']}")
        spec["nodeName"] = body["target"]["name"]
        metadata.setdefault("annotations", {}).update(body["metadata"].get("annotations", {}))
        pod["status"]["conditions"] = [
            *(entry for entry in pod["status"]["conditions"] if entry["type"] != "PodScheduled"),
            {"type": "PodScheduled", "status": "True"},
        ]
        self.change(pod)
        return Answer(201, b'{"kind":"Status","status":"Success"}')

    def _patch(self, pod: dict[str, Any], body: dict[str, Any]) -> Answer:
        metadata = pod["metadata"]
        self.patches.append(body)
        for field in ("uid", "resourceVersion"):
            if body["metadata"].get(field, metadata[field]) != metadata[field]:
                return status(409, "the object has been modified")
        conditions = {entry["type"]: entry for entry in pod["status"]["conditions"]}
        for entry in body["status"]["conditions"]:
            conditions[entry["type"]] = {**conditions.get(entry["type"], {}), **entry}
        if list(conditions.values()) != pod["status"]["conditions"]:
            pod["status"]["conditions"] = list(conditions.values())
            self.change(pod)
        return Answer(200, msgspec.json.encode(pod))

    def _next(self) -> str:
        self._version += 1
        return str(self._version)


def status(code: int, message: str) -> Answer:
    reasons = {403: "Forbidden", 404: "NotFound", 409: "Conflict", 422: "Invalid", 429: "TooManyRequests"}
    body = {"kind": "Status", "code": code, "reason": reasons.get(code, "InternalError"), "message": message}
    return Answer(code, msgspec.json.encode(body))


def _strike(fault: Fault) -> Answer:
    if fault.error is not None:
        raise fault.error
    answer = status(fault.status, "injected")
    return Answer(answer.status, answer.body if fault.body is None else fault.body, fault.retry_after)
