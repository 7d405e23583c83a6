"""Pods off the wire, faster than one by one: those whose specs are written alike share what is read of them."""

from __future__ import annotations

from sys import intern

import msgspec
from msgspec.structs import replace

from phalanx.dialects.core import Named, PodObject, PodSpec, PodStatus, decode_pod
from phalanx.dialects.pods.decoder import spec_template

# What differs between the specs of one workload's pods: the node, and the volume that admission adds for the token
# of the service account, which has five random characters in its name.
_NODE = b'"nodeName":"'
_TOKEN = b'{"name":"kube-api-access-'
_TOKEN_LENGTH = len(_TOKEN) + 5
_TOKEN_PLACES = (b'","projected":', b'","readOnly":true,"mountPath":')
# No JSON has this byte: what is left out looks like nothing that anybody could write.
_LEFT_OUT = b"\0"

# Bytes of the specs that are kept; beyond them the cache starts anew.
_CACHE_SIZE = 4 * 2**20


class PodForm(Named):
    """A pod whose spec is not read yet."""

    spec: msgspec.Raw = msgspec.Raw(b"{}")
    status: PodStatus = msgspec.field(default_factory=PodStatus)


class _Shared(msgspec.Struct, frozen=True, gc=False):
    """A spec without its node, and what the template of its pods has of it."""

    spec: PodSpec
    template: bytes


class PodReader:
    """Reads what `decode_pod` reads, with the same result."""

    def __init__(self) -> None:
        self._specs: dict[bytes, _Shared | None] = {}
        self._kept = 0
        self._form = msgspec.json.Decoder(PodForm)
        self._spec = msgspec.json.Decoder(PodSpec)

    def __len__(self) -> int:
        """How many ways to write a spec are known."""
        return len(self._specs)

    def pod(self, raw: bytes) -> PodObject:
        """Raises what `decode_pod` raises."""
        try:
            pod = self.of_form(self._form.decode(raw))
        except (msgspec.DecodeError, RecursionError, UnicodeError):
            pod = None
        return pod if pod is not None else decode_pod(raw)

    def of_form(self, form: PodForm) -> PodObject | None:
        """None for a pod that has to be read as a whole; so has one whose spec raises msgspec.DecodeError."""
        metadata = form.metadata
        if not metadata.name:
            return None
        metadata.namespace = intern(metadata.namespace)
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
        return PodObject(metadata, spec, form.status, (), shared.template)

    def _read(self, raw: bytes, key: bytes, node: str, token: bytes) -> _Shared | None:
        """None where what was taken for the node or the token is something else, as in all specs that are
        written alike."""
        spec = self._spec.decode(raw)
        shared = None
        places = raw.split(token)[1:] if token else []
        if spec.node_name == node and all(place.startswith(_TOKEN_PLACES) for place in places):
            spec.node_name = ""
            shared = _Shared(spec, spec_template(spec))
        self._kept += len(key)
        if self._kept > _CACHE_SIZE:
            self._specs.clear()
            self._kept = len(key)
        self._specs[key] = shared
        return shared


def _without_node(raw: bytes) -> tuple[bytes, str]:
    """The text without the first value that may be the node's name, and that value ("" where there is none)."""
    before, _, rest = raw.partition(_NODE)
    value, _, after = rest.partition(b'"')
    if not value or b"\\" in value:
        return raw, ""
    # (Thousands of pods name the same nodes and namespaces: each name is kept once.)
    return before + _LEFT_OUT + after, intern(value.decode())


def _token_in(raw: bytes) -> bytes:
    """How the token's volume is named wherever it stands; empty where there is none."""
    begin = raw.find(_TOKEN)
    if begin < 0:
        return b""
    name = raw[begin : begin + _TOKEN_LENGTH]
    return b"" if b'"' in name[len(_TOKEN) :] else name
