"""An API server in memory, reduced to the needs of the controllers, with late watches and failing clients."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from urllib.parse import unquote

import msgspec

from phalanx.controllers.controller import ControllerContext, Reconciler
from phalanx.kube.changes import Delete, Synced, Upsert
from phalanx.kube.client import PatchType
from phalanx.kube.errors import ApiError
from phalanx.kube.events import ObjectReference
from phalanx.kube.failures import Failures

Json = dict[str, Any]


class Killed(BaseException):
    """The process died."""


def _split(path: str) -> tuple[str, str, str, str]:
    """Collection (group/version/plural), namespace, name and subresource of a URL path."""
    parts = [unquote(part) for part in path.strip("/").split("/")]
    parts = parts[1:]
    head = parts[:1] if path.startswith("/api/") else parts[:2]
    rest = parts[len(head) :]
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2:
        namespace, rest = rest[1], rest[2:]
    name = rest[1] if len(rest) > 1 else ""
    return "/".join((*head, rest[0])), namespace, name, rest[2] if len(rest) > 2 else ""


def _merge(target: Any, patch: Any) -> Any:
    """RFC 7386."""
    if not isinstance(patch, Mapping):
        return copy.deepcopy(patch)
    result = dict(target) if isinstance(target, Mapping) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = _merge(result.get(key), value)
    return result


class MemoryApi:
    """`objects` by (collection, namespace, name). `refuse` may raise ApiError for a creation."""

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str, str], Json] = {}
        self.writes: list[tuple[str, str]] = []
        self.events: list[tuple[str, str, str]] = []
        self.now = 1_700_000_000
        self.refuse: Callable[[str, Json], None] = lambda collection, body: None
        self._version = itertools.count(1)
        self._uid = itertools.count(1)
        self._news: list[tuple[str, tuple[str, str, str], Json]] = []
        #: The write after which (True) or before which (False) the process dies.
        self.dies_at: tuple[int, bool] | None = None

    # -- as kubectl and the cluster use it ---------------------------------------------------------------

    def get_object(self, collection: str, name: str, namespace: str = "default") -> Json:
        return self.objects[collection, namespace, name]

    def all(self, collection: str) -> list[Json]:
        return [each for (kind, _, _), each in sorted(self.objects.items()) if kind == collection]

    def apply(self, collection: str, body: Json, namespace: str = "default") -> Json:
        """Creates or replaces, without a precondition."""
        name = body["metadata"]["name"]
        key = (collection, namespace, name)
        old = self.objects.get(key)
        body = copy.deepcopy(body)
        metadata = body["metadata"]
        metadata["namespace"] = namespace
        metadata.setdefault("uid", old["metadata"]["uid"] if old else f"uid-{next(self._uid)}")
        metadata.setdefault("creationTimestamp", _time(self.now))
        if old is None:
            metadata.setdefault("generation", 1)
        elif body.get("spec") != old.get("spec"):
            metadata["generation"] = old["metadata"].get("generation", 1) + 1
        return self._store(key, body)

    def update(
        self, collection: str, name: str, change: Callable[[Json], None], namespace: str = "default"
    ) -> None:
        body = copy.deepcopy(self.objects[collection, namespace, name])
        change(body)
        self.apply(collection, body, namespace)

    def erase(self, collection: str, name: str, namespace: str = "default") -> None:
        """Delete an object without finalizers or preconditions."""
        key = (collection, namespace, name)
        body = self.objects.pop(key, None)
        if body is not None:
            self._news.append(("DELETED", key, body))

    def _store(self, key: tuple[str, str, str], body: Json) -> Json:
        body["metadata"]["resourceVersion"] = str(next(self._version))
        self.objects[key] = body
        self._news.append(("MODIFIED", key, copy.deepcopy(body)))
        return body

    # -- as a controller's client --------------------------------------------------------------------------

    def _write(self, verb: str, path: str, do: Callable[[], Json]) -> Json:
        number = len(self.writes) + 1
        if self.dies_at == (number, False):
            raise Killed
        self.writes.append((verb, path))
        answer = copy.deepcopy(do())
        if self.dies_at == (number, True):
            raise Killed
        return answer

    async def create(self, path: str, obj: Any) -> Json:
        collection, namespace, _, _ = _split(path)

        def do() -> Json:
            body = msgspec.json.decode(msgspec.json.encode(obj))
            key = (collection, namespace, body["metadata"]["name"])
            if key in self.objects:
                raise ApiError(409, "AlreadyExists", f"{key[2]} already exists")
            self.refuse(collection, body)
            if collection == "v1/pods":
                body["status"] = {"phase": "Pending"}
            body["metadata"].pop("uid", None)
            return self.apply(collection, body, namespace)

        return self._write("create", path, do)

    async def replace(self, path: str, obj: Any) -> Json:
        collection, namespace, name, part = _split(path)

        def do() -> Json:
            old = self._known(collection, namespace, name)
            body = msgspec.json.decode(msgspec.json.encode(obj))
            if body["metadata"].get("resourceVersion") not in (None, old["metadata"]["resourceVersion"]):
                raise ApiError(409, "Conflict", "the object has been modified")
            new = {**old, "status": body.get("status", {})} if part == "status" else {**body}
            new["metadata"] = {**(old if part == "status" else body)["metadata"]}
            return self._store((collection, namespace, name), new)

        return self._write("replace", path, do)

    async def patch(
        self, path: str, patch: Any, patch_type: PatchType, *, field_manager: str | None = None
    ) -> Json:
        collection, namespace, name, part = _split(path)
        if patch_type is PatchType.JSON:
            return self._write("patch", path, lambda: self._json_patch((collection, namespace, name), patch))
        assert patch_type in (PatchType.MERGE, PatchType.STRATEGIC)

        def do() -> Json:
            old = self._known(collection, namespace, name)
            if patch.get("metadata", {}).get("uid", old["metadata"]["uid"]) != old["metadata"]["uid"]:
                raise ApiError(409, "Conflict", "uid mismatch")
            version = old["metadata"]["resourceVersion"]
            if patch.get("metadata", {}).get("resourceVersion", version) != version:
                raise ApiError(409, "Conflict", "the object has been modified")
            wanted = {"status": patch.get("status", {})} if part == "status" else patch
            return self._store((collection, namespace, name), _merge(old, wanted))

        return self._write("patch", path, do)

    def _json_patch(self, key: tuple[str, str, str], patch: list[Json]) -> Json:
        """RFC 6902, reduced to `test` and `add` of fields."""
        body = copy.deepcopy(self._known(*key))
        for step in patch:
            *parents, last = step["path"].strip("/").split("/")
            place: Any = body
            for parent in parents:
                place = place[int(parent)] if isinstance(place, list) else place[parent]
            if step["op"] == "test":
                assert place.get(last) == step["value"], step
            else:
                assert step["op"] == "add"
                place[last] = step["value"]
        return self.apply(key[0], body, key[1])

    async def delete(self, path: str, *, uid: str | None = None, propagation: str | None = None) -> Json:
        collection, namespace, name, _ = _split(path)

        def do() -> Json:
            old = self._known(collection, namespace, name)
            if uid not in (None, old["metadata"]["uid"]):
                raise ApiError(409, "Conflict", "uid mismatch")
            if collection == "v1/pods" and old.get("spec", {}).get("nodeName"):
                return self._terminate((collection, namespace, name), old)
            self.erase(collection, name, namespace)
            return {"kind": "Status", "status": "Success"}

        return self._write("delete", path, do)

    def _terminate(self, key: tuple[str, str, str], old: Json) -> Json:
        if "deletionTimestamp" in old["metadata"]:
            return old
        body = copy.deepcopy(old)
        body["metadata"]["deletionTimestamp"] = _time(self.now)
        return self._store(key, body)

    async def get(self, path: str) -> Json:
        collection, namespace, name, _ = _split(path)
        return copy.deepcopy(self._known(collection, namespace, name))

    async def list_all(self, path: str, params: Json | None = None) -> Json:
        collection, namespace, _, _ = _split(path)
        found = [
            body
            for (kind, where, _), body in sorted(self.objects.items())
            if kind == collection and namespace in ("", where)
        ]
        return {"items": copy.deepcopy(found)}

    def _known(self, collection: str, namespace: str, name: str) -> Json:
        found = self.objects.get((collection, namespace, name))
        if found is None:
            raise ApiError(404, "NotFound", f"{name} not found")
        return found

    # -- as its watches ------------------------------------------------------------------------------------

    def list_into(self, controller: Reconciler) -> None:
        """Pass the state to a starting controller."""
        self._news.clear()
        for watch in controller.watches:
            collection = f"{watch.resource.api_version}/{watch.resource.plural}"
            for (kind, namespace, name), body in list(self.objects.items()):
                if kind == collection and _selected(body, watch.label_selector):
                    raw = msgspec.json.encode(body)
                    watch.sink(Upsert(raw, raw, (namespace, name), body["metadata"]["uid"]))
            watch.sink(Synced())

    def deliver(self, controller: Reconciler) -> bool:
        """The next piece of news; False if there is none."""
        if not self._news:
            return False
        verb, (kind, namespace, name), body = self._news.pop(0)
        for watch in controller.watches:
            if f"{watch.resource.api_version}/{watch.resource.plural}" != kind:
                continue
            if not _selected(body, watch.label_selector):
                verb = "DELETED"  # for this watch, as the real server has it
            raw, uid = msgspec.json.encode(body), body["metadata"]["uid"]
            watch.sink(
                Delete((namespace, name), uid, raw)
                if verb == "DELETED"
                else Upsert(raw, raw, (namespace, name), uid)
            )
        return True


def _selected(body: Json, selector: str | None) -> bool:
    labels = body["metadata"].get("labels") or {}
    for part in selector.split(",") if selector else ():
        key, equals, value = part.partition("=")
        if key not in labels or (equals and labels[key] != value):
            return False
    return True


def _time(seconds: int) -> str:
    from phalanx.dialects.times import format_time

    return format_time(seconds)


class _Recorder:
    def __init__(self, api: MemoryApi) -> None:
        self._api = api

    def record(self, regarding: ObjectReference, *, reason: str, action: str, note: str, **more: Any) -> bool:
        self._api.events.append((regarding.name, reason, note))
        return True


def context(
    api: MemoryApi, scheduler_names: tuple[str, ...] = ("phalanx",), *, ssh: bool = True
) -> ControllerContext:
    """Return the context of a controller over this server."""
    return ControllerContext(
        client=api,  # type: ignore[arg-type]
        writer=api,
        recorder=_Recorder(api),  # type: ignore[arg-type]
        failures=Failures(),
        clock=lambda: float(api.now),
        scheduler_names=scheduler_names,
        ssh=ssh,
    )


def uids(objects: list[Json]) -> Iterator[str]:
    for each in objects:
        yield each["metadata"]["uid"]
