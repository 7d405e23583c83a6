"""A transport with a few pods that behaves as an API server, and fails on request."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Callable
from typing import Any

import msgspec

from phalanx.kube.auth.config import ClusterConfig
from phalanx.kube.auth.credentials import ClientIdentity
from phalanx.kube.client import KubeClient
from phalanx.kube.http.transport import HttpRequest, HttpResponse

_POD = re.compile(r"/api/v1/namespaces/(?P<namespace>[^/]+)/pods/(?P<name>[^/]+)(?P<rest>/[a-z]+)?$")


class Fault:
    """Fault for the next `times` requests of a method and a path suffix.

    `error` is raised, else `status` is answered; `after_write` lets the request take effect first.
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
    """Pods by (namespace, name); `calls` lists the requests as `METHOD path`, `patches` the bodies of patches.

    A deleted pod terminates: it exists until `leave`. Evictions of the pods in `protected` are rejected by a
    disruption budget. `before` is called with each request before it is processed.
    """

    def __init__(self) -> None:
        self.pods: dict[tuple[str, str], dict[str, Any]] = {}
        self.calls: list[str] = []
        self.patches: list[dict[str, Any]] = []
        self.faults: list[Fault] = []
        self.protected: set[str] = set()
        self.before: Callable[[HttpRequest], None] = lambda call: None
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

    def terminates(self, name: str) -> bool:
        return "deletionTimestamp" in self.pods["ns", name]["metadata"]

    def leave(self, name: str) -> None:
        del self.pods["ns", name]

    def replace(self, name: str, **spec: Any) -> dict[str, Any]:
        """Replace the pod by another of the same name."""
        pod = self.add(name, **spec)
        pod["metadata"]["uid"] = f"uid-of-the-next-{name}"
        return pod

    def nominated(self, name: str) -> str:
        return str(self.pods["ns", name]["status"].get("nominatedNodeName", ""))

    def condition(self, name: str, kind: str) -> dict[str, Any]:
        conditions = self.pods["ns", name]["status"]["conditions"]
        return next((entry for entry in conditions if entry["type"] == kind), {})

    # the transport

    async def request(self, call: HttpRequest, identity: ClientIdentity) -> HttpResponse:
        path = call.target.partition("?")[0]
        self.calls.append(f"{call.method} {path.rsplit('/ns/pods/', 1)[-1]}")
        self.before(call)
        fault = self._fault(call.method, path)
        if fault is not None and not fault.after_write:
            return _strike(fault)
        answer = self._handle(call, path)
        return answer if fault is None else _strike(fault)

    def stream(
        self, target: str, identity: ClientIdentity, accept: str, read_timeout: float
    ) -> AsyncGenerator[HttpResponse, None]:
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

    def _handle(self, call: HttpRequest, path: str) -> HttpResponse:
        match = _POD.search(path)
        assert match is not None, path
        pod = self.pods.get((match["namespace"], match["name"]))
        if pod is None:
            return status(404, f'pods "{match["name"]}" not found')
        if call.method == "GET":
            return HttpResponse(200, msgspec.json.encode(pod))
        assert call.body is not None
        body = msgspec.json.decode(call.body)
        if call.method == "DELETE":
            return self._delete(pod, body)
        if match["rest"] == "/eviction":
            return self._evict(pod, body)
        return self._bind(pod, body) if match["rest"] == "/binding" else self._patch(pod, body)

    def _delete(self, pod: dict[str, Any], options: dict[str, Any]) -> HttpResponse:
        metadata = pod["metadata"]
        if options["preconditions"]["uid"] != metadata["uid"]:
            return status(409, "the UID in the precondition does not match the UID in record")
        if "deletionTimestamp" not in metadata:
            metadata["deletionTimestamp"] = "2030-01-01T00:00:30Z"
            self.change(pod)
        return HttpResponse(200, msgspec.json.encode(pod))

    def _evict(self, pod: dict[str, Any], eviction: dict[str, Any]) -> HttpResponse:
        """As upstream, the budget is checked before the uid is compared, and not for a terminating pod."""
        terminating = "deletionTimestamp" in pod["metadata"]
        if eviction["metadata"]["name"] in self.protected and not terminating:
            return status(429, "Cannot evict pod as it would violate the pod's disruption budget.")
        answer = self._delete(pod, eviction["deleteOptions"])
        return answer if answer.status != 200 else HttpResponse(201, b'{"kind":"Status","status":"Success"}')

    def _bind(self, pod: dict[str, Any], body: dict[str, Any]) -> HttpResponse:
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
        pod["status"].pop("nominatedNodeName", None)
        metadata.setdefault("annotations", {}).update(body["metadata"].get("annotations", {}))
        pod["status"]["conditions"] = [
            *(entry for entry in pod["status"]["conditions"] if entry["type"] != "PodScheduled"),
            {"type": "PodScheduled", "status": "True"},
        ]
        self.change(pod)
        return HttpResponse(201, b'{"kind":"Status","status":"Success"}')

    def _patch(self, pod: dict[str, Any], body: dict[str, Any]) -> HttpResponse:
        metadata = pod["metadata"]
        self.patches.append(body)
        for field, code in (("resourceVersion", 409), ("uid", 422)):
            if body["metadata"].get(field, metadata[field]) != metadata[field]:
                return status(code, "the object has been modified" if code == 409 else "field is immutable")
        before = msgspec.json.encode(pod["status"])
        conditions = {entry["type"]: entry for entry in pod["status"]["conditions"]}
        for entry in body["status"].get("conditions", []):
            conditions[entry["type"]] = {**conditions.get(entry["type"], {}), **entry}
        pod["status"]["conditions"] = list(conditions.values())
        if "nominatedNodeName" in body["status"]:
            pod["status"]["nominatedNodeName"] = body["status"]["nominatedNodeName"]
            if pod["status"]["nominatedNodeName"] is None:
                del pod["status"]["nominatedNodeName"]
        if msgspec.json.encode(pod["status"]) != before:
            self.change(pod)
        return HttpResponse(200, msgspec.json.encode(pod))

    def _next(self) -> str:
        self._version += 1
        return str(self._version)


def status(code: int, message: str) -> HttpResponse:
    reasons = {403: "Forbidden", 404: "NotFound", 409: "Conflict", 422: "Invalid", 429: "TooManyRequests"}
    body = {"kind": "Status", "code": code, "reason": reasons.get(code, "InternalError"), "message": message}
    return HttpResponse(code, msgspec.json.encode(body))


def _strike(fault: Fault) -> HttpResponse:
    if fault.error is not None:
        raise fault.error
    answer = status(fault.status, "injected")
    return HttpResponse(answer.status, answer.body if fault.body is None else fault.body, fault.retry_after)
