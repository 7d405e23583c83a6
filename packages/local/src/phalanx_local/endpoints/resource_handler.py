"""Requests for resources: dispatch of a parsed request to an API operation, and encoding of the result."""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from phalanx.model.text.decoding import parse_whole
from phalanx_local.admission.webhook_calls import WebhookAnswers
from phalanx_local.authentication.authenticator import User
from phalanx_local.authentication.tokens import AccountTokens
from phalanx_local.authorization import Attributes, Requester
from phalanx_local.endpoints import subresources as sub
from phalanx_local.endpoints import tables
from phalanx_local.endpoints.listing import Lister, ServedPage, list_document, parse_list_query, parse_selection
from phalanx_local.endpoints.negotiation import JSON, PLAIN, negotiate
from phalanx_local.endpoints.pod_logs import LogStream, open_log
from phalanx_local.endpoints.reviews import Reviewer
from phalanx_local.endpoints.routes import Target
from phalanx_local.endpoints.watching import Watch, parse_watch_query
from phalanx_local.errors import (
    StatusError,
    bad_request,
    invalid_options,
    method_not_allowed,
    no_such_resource,
    not_found,
    unsupported_media_type,
    unsupported_value,
)
from phalanx_local.objects import Json, encode
from phalanx_local.options import ServerOptions
from phalanx_local.registry.api import Api
from phalanx_local.registry.object_meta import without_nulls
from phalanx_local.registry.patching import APPLY_PATCH, patch_object, read_json, read_yaml
from phalanx_local.registry.resources import Version
from phalanx_local.storage.records import Record, render
from phalanx_local.strategies.base import Write
from phalanx_local.wire import CONTENT_TYPE, ProtobufError, read_protobuf

_BODY_TYPES: Final = ("application/json", "application/yaml", CONTENT_TYPE)
_OPTIONS: Final = {"PUT": "UpdateOptions", "PATCH": "PatchOptions", "DELETE": "DeleteOptions"}
# Bodies of POST requests to subresources.
_POSTED: Final = {
    "binding": ("Binding", "v1"),
    "eviction": ("Eviction", "policy/v1"),
    "token": ("TokenRequest", "authentication.k8s.io/v1"),
}
_REVIEW_GROUPS: Final = ("authentication.k8s.io", "authorization.k8s.io")


class RequestInfo(NamedTuple):
    """Parsed API request: target, verb, user, query and body."""

    target: Target
    method: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes
    user: User
    answers: WebhookAnswers


class EncodedResponse(NamedTuple):
    """Encoded API response: status, body and headers."""

    body: bytes
    status: int = 200
    content_type: str = JSON
    warnings: tuple[str, ...] = ()


class ResourceHandler:
    """Dispatcher of API requests by verb and subresource. `kubelet_identity` is the TLS context of requests to
    kubelets."""

    def __init__(
        self,
        api: Api,
        lister: Lister,
        reviewer: Reviewer,
        tokens: AccountTokens,
        options: ServerOptions,
        kubelet_identity: ssl.SSLContext | None = None,
    ) -> None:
        self._api = api
        self._lister = lister
        self._reviewer = reviewer
        self._tokens = tokens
        self._options = options
        self._kubelet_identity = kubelet_identity

    def handle(self, call: RequestInfo) -> EncodedResponse | Watch | LogStream | None:
        """Execute an API request. Return the response, a watch or log to stream, or None if the resource is not
        served."""
        target = call.target
        version = self._api.registry.version(target.group, target.version, target.plural)
        if version is None or (target.namespace and not version.type.namespaced):
            # Upstream, a built-in group serves all of its paths; the groups of custom resources do not.
            known = [item for item in self._api.registry if item.group == target.group and not item.custom]
            if known:
                raise no_such_resource()
            return None
        if target.subresource:
            return self._subresource(call, version)
        if not target.name:
            return self._handle_collection(call, version)
        if call.method == "GET":
            return self._get(call, version)
        if call.method == "PUT":
            return self._update(call, version)
        if call.method == "PATCH":
            return self._patch(call, version)
        if call.method == "DELETE":
            return self._delete(call, version)
        raise method_not_allowed()

    # --- collections

    def _handle_collection(self, call: RequestInfo, version: Version) -> EncodedResponse | Watch | None:
        verbs = version.type.verbs
        if version.type.namespaced and not call.target.namespace and "list" not in verbs:
            raise no_such_resource()
        if call.method == "GET" and "list" in verbs:
            if call.query.get("watch") in ("true", "1"):
                return self._watch(call, version)
            return self._list(call, version)
        if call.method == "POST" and "create" in verbs:
            return self._create(call, version)
        if call.method == "DELETE" and "deletecollection" in verbs:
            return self._delete_collection(call, version)
        raise method_not_allowed()

    def _list(self, call: RequestInfo, version: Version) -> EncodedResponse:
        form = negotiate(call.headers.get("Accept", ""))
        query = parse_list_query(version, call.target.namespace, call.query)
        page = self._lister.page(self._api.collection(version.type), query)
        warnings = (version.warning,) if version.warning else ()
        if form.shape == "table":
            include = tables.included(call.query)
            document = tables.table_of(page, version, form.version, include, self._api.clock.now())
            return EncodedResponse(encode(document), warnings=warnings)
        if form.shape == "partial":
            return EncodedResponse(tables.partial_list(page, version), warnings=warnings)
        return EncodedResponse(list_document(page, version), warnings=warnings)

    def _watch(self, call: RequestInfo, version: Version) -> Watch:
        form = negotiate(call.headers.get("Accept", ""))
        query = parse_watch_query(version, call.target.namespace, call.query)
        line = None
        if form.shape == "table":
            line = tables.TableLines(version, form.version, tables.included(call.query), self._api.clock).line
        elif form.shape == "partial":
            line = tables.partial_line
        return Watch(
            self._api.store,
            self._api.collection(version.type),
            version,
            query,
            bookmark_interval=self._options.bookmark_interval,
            line=line,
        )

    def _create(self, call: RequestInfo, version: Version) -> EncodedResponse:
        write = self._write(call)
        body = self._object(call, version, write)
        type_ = version.type
        if type_.group in _REVIEW_GROUPS:
            return EncodedResponse(
                encode(self._reviewer.review(body, version, call.target.namespace, call.user)), 201
            )
        if type_.storage == "/bindings":
            meta = body.get("metadata") or {}
            name = meta.get("name") if isinstance(meta, dict) else None
            pods = self._api.type("", "pods").preferred
            self._admit(call, version, "CREATE", {**body, "kind": "Binding", "apiVersion": "v1"}, write)
            return self._status(sub.bind(self._api, pods, call.target.namespace, str(name or ""), body, write))
        namespace = call.target.namespace
        if type_.namespaced and not namespace:
            raise method_not_allowed()
        record = self._api.create(version, namespace, body, write)
        return self._one(record, version, 201, write)

    def _delete_collection(self, call: RequestInfo, version: Version) -> EncodedResponse:
        write = self._write(call)
        options = self._delete_options(call, write)
        type_ = version.type
        if type_.namespaced and not call.target.namespace:
            raise method_not_allowed()
        selection = parse_selection(version, call.target.namespace, call.query)
        collection = self._api.collection(type_)
        chosen = [collection.records[key] for key in collection.keys(selection.namespace)]
        chosen = [record for record in chosen if selection.matches(record)]
        if self._api.webhooks is not None and self._api.webhooks.configured:
            # All webhooks must have answered before the first object is deleted.
            for record in chosen:
                with contextlib.suppress(StatusError):
                    self._admit_deletion(version, record, write)
            write.warnings.clear()
        for record in chosen:
            self._admit_deletion(version, record, write)
            self._api.delete(type_, record, options, write)
        page = ServedPage(chosen, self._api.store.revision, "", None)
        return EncodedResponse(list_document(page, version), warnings=tuple(write.warnings))

    # --- single objects

    def _get(self, call: RequestInfo, version: Version) -> EncodedResponse:
        if "get" not in version.type.verbs:
            raise method_not_allowed()
        target = call.target
        record = self._api.record(version.type, target.namespace, target.name)
        warnings = (version.warning,) if version.warning else ()
        accept = call.headers.get("Accept", "")
        form = negotiate(accept) if accept else PLAIN
        if form.shape == "table":
            include = tables.included(call.query)
            document = tables.table_of_one(record, version, form.version, include, self._api.clock.now())
            return EncodedResponse(encode(document), warnings=warnings)
        if form.shape == "partial":
            return EncodedResponse(tables.partial(record), warnings=warnings)
        return EncodedResponse(render(record, version), warnings=warnings)

    def _update(self, call: RequestInfo, version: Version) -> EncodedResponse:
        target, write = call.target, self._write(call)
        body = self._object(call, version, write)
        if version.type.strategy.create_on_update:
            self._check_create(call, version, write)
        record, created = self._api.update(version, target.namespace, target.name, body, write, target.subresource)
        return self._one(record, version, 201 if created else 200, write)

    def _patch(self, call: RequestInfo, version: Version) -> EncodedResponse:
        target, write = call.target, self._write(call)
        if version.warning:
            write.warnings.append(version.warning)
        content_type = call.headers.get("Content-Type", "").partition(";")[0].strip()
        if content_type == APPLY_PATCH:
            self._check_create(call, version, write)
        record, created = patch_object(
            self._api,
            version,
            (target.namespace, target.name, target.subresource),
            content_type,
            call.body,
            write,
            call.query,
        )
        if target.subresource == "scale":
            return EncodedResponse(encode(sub.scale_of(record, version)), warnings=tuple(write.warnings))
        return self._one(record, version, 201 if created else 200, write)

    def _delete(self, call: RequestInfo, version: Version) -> EncodedResponse:
        target, write = call.target, self._write(call)
        type_ = version.type
        if "delete" not in type_.verbs:
            raise method_not_allowed()
        options = self._delete_options(call, write)
        record = self._api.record(type_, target.namespace, target.name)
        self._admit_deletion(version, record, write)
        last, gone = self._api.delete(type_, record, options, write)
        if gone and not type_.strategy.returns_deleted:
            document = {
                "kind": "Status",
                "apiVersion": "v1",
                "metadata": {},
                "status": "Success",
                "details": {**_status_details(version, record.name), "uid": record.uid},
            }
            return EncodedResponse(encode(document), warnings=tuple(write.warnings))
        return self._one(last, version, 200, write)

    # --- subresources

    def _subresource(self, call: RequestInfo, version: Version) -> EncodedResponse | LogStream | None:
        target = call.target
        name = target.subresource
        if name not in version.subresources:
            if version.type.custom:
                # Upstream returns the error for a missing object, even if the object exists.
                raise not_found(version.type, target.name)
            raise no_such_resource()
        if name == "log":
            record = self._api.record(version.type, target.namespace, target.name)
            return open_log(self._api, record, call.query, self._kubelet_identity)
        if name in _POSTED and call.method == "POST":
            return self._post_subresource(call, version)
        if name == "scale":
            return self._scale(call, version)
        if name == "finalize" and call.method == "PUT":
            write = self._write(call)
            body = self._object(call, version, write)
            record = sub.finalize_namespace(self._api, version, target.name, body, write)
            return self._one(record, version, 200, write)
        if name in ("status", "ephemeralcontainers", "resize"):
            if call.method == "GET":
                return self._get(call, version)
            if call.method == "PUT":
                return self._update(call, version)
            if call.method == "PATCH":
                return self._patch(call, version)
        raise method_not_allowed()

    def _post_subresource(self, call: RequestInfo, version: Version) -> EncodedResponse:
        target, write = call.target, self._write(call)
        body = self._body(call, _POSTED[target.subresource][0])
        kind, api_version = _POSTED[target.subresource]
        self._admit(call, version, "CREATE", {**body, "kind": kind, "apiVersion": api_version}, write)
        if target.subresource == "binding":
            status = sub.bind(self._api, version, target.namespace, target.name, body, write)
            return self._status(status)
        if target.subresource == "eviction":
            status = sub.evict(self._api, version, target.namespace, target.name, body, write)
            return self._status(status)
        record = self._api.record(version.type, target.namespace, target.name)
        return EncodedResponse(encode(self._tokens.issue(record, body, write)), 201)

    def _scale(self, call: RequestInfo, version: Version) -> EncodedResponse:
        target = call.target
        if call.method == "PATCH":
            return self._patch(call, version)
        record = self._api.record(version.type, target.namespace, target.name)
        if call.method == "PUT":
            write = self._write(call)
            record = sub.rescale(self._api, version, record, self._body(call, "Scale"), write)
        elif call.method != "GET":
            raise method_not_allowed()
        return EncodedResponse(encode(sub.scale_of(record, version)))

    # --- shared

    def _check_create(self, call: RequestInfo, version: Version, write: Write) -> None:
        """Raise 403 if a PUT or apply would create the object and the user has no create right."""
        target, type_ = call.target, version.type
        if target.subresource or (target.namespace, target.name) in self._api.collection(type_).records:
            return
        assert write.requester is not None
        write.requester.require(Attributes("create", type_.group, type_.plural, "", target.namespace, target.name))

    def _admit(self, call: RequestInfo, version: Version, operation: str, obj: Json, write: Write) -> None:
        """Call policies and webhooks for a write to a subresource such as pods/binding."""
        target = call.target
        of = (target.namespace, target.name, target.subresource)
        self._api.admit(operation, version, obj, None, write, of=of)

    def _admit_deletion(self, version: Version, record: Record, write: Write) -> None:
        of = (record.namespace, record.name, "")
        self._api.admit("DELETE", version, None, record.load(), write, of=of)

    def _write(self, call: RequestInfo) -> Write:
        query = call.query
        options = _OPTIONS.get(call.method, "CreateOptions")
        dry_run = query.get("dryRun", "")
        if dry_run and dry_run != "All":
            raise invalid_options(options, unsupported_value("dryRun", [dry_run], ("All",)))
        validation = query.get("fieldValidation") or "Warn"
        if validation not in ("Strict", "Warn", "Ignore"):
            supported = ("", "Ignore", "Strict", "Warn")
            raise invalid_options(options, unsupported_value("fieldValidation", validation, supported))
        agent = call.headers.get("User-Agent", "").partition("/")[0]
        manager = query.get("fieldManager") or agent or "unknown"
        tracked = self._options.managed_fields == "all" or manager.startswith("kubectl")
        return Write(
            now=self._api.now(),
            cluster=self._api,
            user=call.user.name,
            manager=manager,
            dry_run=bool(dry_run),
            field_validation=validation,
            track_fields=tracked,
            requester=Requester(call.user, self._reviewer.rbac),
            answers=call.answers,
        )

    def _body(self, call: RequestInfo, kind: str) -> Json:
        media = call.headers.get("Content-Type", JSON).partition(";")[0].strip()
        if media not in _BODY_TYPES and media not in ("", "*/*"):
            raise unsupported_media_type(_BODY_TYPES)
        if media == CONTENT_TYPE:
            try:
                return read_protobuf(call.body)
            except ProtobufError as problem:
                raise bad_request(str(problem)) from None
        what = f"the object provided is unrecognized (must be of type {kind}): couldn't get version/kind"
        if media == "application/yaml":
            read: Any = read_yaml(call.body)
        else:
            read = read_json(call.body, f"{what}; json parse error")
        if not isinstance(read, dict):
            raise bad_request(f"{what}; json parse error: the body is not an object")
        return read

    def _object(self, call: RequestInfo, version: Version, write: Write) -> Json:
        body = self._body(call, version.type.kind)
        custom = version.type.custom
        if b"null" in call.body:
            body = without_nulls(body, custom=custom)
        if custom and not (body.get("kind") and body.get("apiVersion")):
            missing = "apiVersion" if body.get("kind") else "Kind"
            raise bad_request(
                f"the object provided is unrecognized (must be of type {version.type.kind}): "
                f"Object '{missing}' is missing in '{call.body.decode(errors='replace')}'"
            )
        if version.warning:
            write.warnings.append(version.warning)
        return body

    def _delete_options(self, call: RequestInfo, write: Write) -> Any:
        body = self._body(call, "DeleteOptions") if call.body.strip() else {}
        query = call.query
        if "gracePeriodSeconds" in query and "gracePeriodSeconds" not in body:
            seconds = parse_whole(query["gracePeriodSeconds"])
            if seconds is None:
                raise bad_request("gracePeriodSeconds must be an integer")
            body["gracePeriodSeconds"] = seconds
        if query.get("propagationPolicy") and "propagationPolicy" not in body:
            body["propagationPolicy"] = query["propagationPolicy"]
        return sub.parse_delete_options(body, write)

    def _one(self, record: Record, version: Version, status: int, write: Write) -> EncodedResponse:
        return EncodedResponse(render(record, version), status, warnings=tuple(write.warnings))

    def _status(self, status: Json) -> EncodedResponse:
        return EncodedResponse(encode(status), 201)


def _status_details(version: Version, name: str) -> Json:
    details: Json = {}
    if name:
        details["name"] = name
    if version.type.group:
        details["group"] = version.type.group
    details["kind"] = version.type.plural
    return details
