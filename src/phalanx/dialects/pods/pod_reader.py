"""Fast decoding of pods from the wire: pods with identically written specs share one decoded spec."""

from __future__ import annotations

from sys import intern

import msgspec
from msgspec.structs import replace

from phalanx.dialects.core import Named, OwnerReference, PodObject, PodSpec, PodStatus, SharedSpec, decode_pod
from phalanx.dialects.pods.decoder import spec_template
from phalanx.dialects.shared_values import SharedValues

# The differences between the specs of one workload's pods: the node, and the admission-added volume for the service
# account token, with five random characters in its name.
_NODE = b'"nodeName":"'
_TOKEN = b'{"name":"kube-api-access-'
_TOKEN_LENGTH = len(_TOKEN) + 5
_TOKEN_PLACES = (b'","projected":', b'","readOnly":true,"mountPath":')
# JSON never contains this byte, so a placeholder cannot collide with any written spec.
_LEFT_OUT = b"\0"

# Total bytes of the cached specs; a larger cache is cleared.
_CACHE_SIZE = 4 * 2**20


class PodForm(Named):
    """A pod with an undecoded spec."""

    spec: msgspec.Raw = msgspec.Raw(b"{}")
    status: PodStatus = msgspec.field(default_factory=PodStatus)


class PodReader:
    """Decodes pods with the same result as `decode_pod`."""

    def __init__(self) -> None:
        self._specs: dict[bytes, SharedSpec | None] = {}
        # By decoded spec: a spec is written in two ways, with a node and without.
        self._decoded: dict[bytes, SharedSpec] = {}
        self._cached_bytes = 0
        # The pods of a job share the object of their owner, and so its strings.
        self._owners = SharedValues[OwnerReference]()
        self._form = msgspec.json.Decoder(PodForm)
        self._spec = msgspec.json.Decoder(PodSpec)

    def __len__(self) -> int:
        """Return the number of distinct pod specs in the cache."""
        return len(self._specs)

    def pod(self, raw: bytes) -> PodObject:
        """Decode a pod. Raise the errors of `decode_pod`."""
        try:
            pod = self.of_form(self._form.decode(raw))
        except (msgspec.DecodeError, RecursionError, UnicodeError):
            pod = None
        return pod if pod is not None else decode_pod(raw)

    def of_form(self, form: PodForm) -> PodObject | None:
        """Return the pod, or None if it must be decoded as a whole, also after msgspec.DecodeError for its spec."""
        metadata = form.metadata
        if not metadata.name:
            return None
        metadata.namespace = intern(metadata.namespace)
        if metadata.owner_references:
            owners = self._owners
            metadata.owner_references = [owners[owner] for owner in metadata.owner_references]
        raw = bytes(form.spec)
        key, node = _without_node(raw)
        token = _token_in(key)
        if token:
            key = key.replace(token, _LEFT_OUT)
        shared = self._specs.get(key)
        if shared is None:
            if key not in self._specs:
                shared = self._read(raw, key, node, token)
            if shared is None:
                return PodObject(metadata, self._spec.decode(raw), form.status)
        spec = replace(shared.spec, node_name=node)
        return PodObject(metadata, spec, form.status, (), b"", shared)

    def _read(self, raw: bytes, key: bytes, node: str, token: bytes) -> SharedSpec | None:
        """Decode and cache a spec. Return None if the assumed node or token is something else; this is then equally
        so for all identically written specs."""
        spec = self._spec.decode(raw)
        shared = None
        places = raw.split(token)[1:] if token else []
        if spec.node_name == node and all(place.startswith(_TOKEN_PLACES) for place in places):
            spec.node_name = ""
            content = msgspec.json.encode(spec)
            content = content.replace(token, _LEFT_OUT) if token else content
            shared = self._decoded.get(content)
            if shared is None:
                shared = self._decoded[content] = SharedSpec(spec, spec_template(spec))
        self._cached_bytes += 2 * len(key)
        if self._cached_bytes > _CACHE_SIZE:
            self._specs.clear()
            self._decoded.clear()
            self._cached_bytes = 2 * len(key)
        self._specs[key] = shared
        return shared


def _without_node(raw: bytes) -> tuple[bytes, str]:
    """Return a pod spec's JSON without the first candidate for the node's name, and that candidate ("" for
    none)."""
    before, _, tail = raw.partition(_NODE)
    value, _, after = tail.partition(b'"')
    if not value or b"\\" in value:
        return raw, ""
    # Thousands of pods name the same nodes and namespaces: each name is stored once.
    return before + _LEFT_OUT + after, intern(value.decode())


def _token_in(raw: bytes) -> bytes:
    """Return the name of the service account token's volume in a pod spec's JSON; empty if there is none."""
    begin = raw.find(_TOKEN)
    if begin < 0:
        return b""
    name = raw[begin : begin + _TOKEN_LENGTH]
    return b"" if b'"' in name[len(_TOKEN) :] else name
