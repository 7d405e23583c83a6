"""CustomResourceDefinitions: the kinds that an API server serves, even before its discovery lists them."""

from __future__ import annotations

import asyncio
import contextlib

import msgspec

from phalanx.kube.changes import Change, Delete, Upsert
from phalanx.kube.client import KubeClient
from phalanx.kube.core_resources import DEFINITIONS
from phalanx.kube.discovery import Discovery, ServedResource, discover
from phalanx.kube.failures import Failures
from phalanx.kube.paths import Resource
from phalanx.kube.reflector import Reflector
from phalanx.model.text.decoding import decoded

__all__ = ["Definition", "DefinitionWatch", "Definitions", "decode_definition"]

# Seconds for which the first discovery waits for the list of definitions.
_PATIENCE = 10.0

_VERBS = frozenset({"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"})


class _Metadata(msgspec.Struct, rename={"resource_version": "resourceVersion"}):
    name: str
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""


class _Names(msgspec.Struct, rename="camel"):
    plural: str
    kind: str
    singular: str = ""
    short_names: list[str] = []


class _Version(msgspec.Struct):
    name: str
    served: bool = False
    subresources: dict[str, msgspec.Raw] = {}


class _Spec(msgspec.Struct):
    group: str
    names: _Names
    scope: str
    versions: list[_Version] = []


class _Condition(msgspec.Struct):
    type: str
    status: str


class _Status(msgspec.Struct):
    conditions: list[_Condition] = []


class Definition(msgspec.Struct):
    """CustomResourceDefinition, reduced to the fields about served resources."""

    metadata: _Metadata
    spec: _Spec
    status: _Status = msgspec.field(default_factory=_Status)

    @property
    def served(self) -> list[ServedResource]:
        """Resources that the definition makes the server serve; none until the server has accepted its names."""
        if not any(
            condition.type == "Established" and condition.status == "True" for condition in self.status.conditions
        ):
            return []
        spec, names = self.spec, self.spec.names
        return [
            ServedResource(
                Resource(spec.group, version.name, names.plural, names.kind, spec.scope == "Namespaced"),
                names.singular,
                tuple(names.short_names),
                _VERBS,
                frozenset(version.subresources),
            )
            for version in spec.versions
            if version.served
        ]


_DECODER = msgspec.json.Decoder(Definition)


def decode_definition(raw: bytes) -> Definition:
    """Decode a CustomResourceDefinition. Raises msgspec.DecodeError."""
    return decoded(_DECODER.decode, raw)


class Definitions:
    """CustomResourceDefinitions of an API server, updated from a watch (`take_in`).

    A server that has just started does not list custom kinds in its discovery, and does not serve them, until it
    has read their definitions. If such a kind counted as absent, all its objects would be dropped.
    """

    def __init__(self) -> None:
        self._served: dict[str, list[ServedResource]] = {}
        self._known: set[str] = set()

    def take_in(self, change: Change[Definition]) -> None:
        # An unreadable definition is Malformed, which is ignored: its last readable version counts.
        match change:
            case Upsert(definition, _, (_, name)):
                self._served[name] = definition.served
                self._known.add(name)
            case Delete((_, name)):
                self._served.pop(name, None)

    def added_to(self, served: Discovery) -> Discovery:
        """Return the discovery together with the custom resources that it does not list yet."""
        listed = {entry.resource for entry in served.served}
        missing = [entry for entries in self._served.values() for entry in entries if entry.resource not in listed]
        return Discovery((*served.served, *missing), served.degraded) if missing else served

    def withdrawn(self, group: str, plural: str) -> bool:
        """Return whether the CustomResourceDefinition of a kind was deleted."""
        name = f"{plural}.{group}"
        return name in self._known and name not in self._served


class DefinitionWatch:
    """Watch of an API server's CustomResourceDefinitions, if they are readable; `changed` is set at each change."""

    def __init__(self, client: KubeClient, failures: Failures) -> None:
        self._client = client
        self._definitions = Definitions()
        self.changed = asyncio.Event()
        self.reflector = Reflector(
            client, DEFINITIONS, decode_definition, self._take_in, optional=True, failures=failures
        )

    async def first_list(self) -> None:
        """Wait until all CustomResourceDefinitions have been listed once, or cannot be read."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_PATIENCE):
                await self.reflector.synced.wait()

    async def discovered(self) -> Discovery:
        """Return all served resources, also custom resources that discovery does not list yet. Raises as `discover`
        does."""
        return self._definitions.added_to(await discover(self._client))

    def withdrawn(self, group: str, plural: str) -> bool:
        """Return whether the CustomResourceDefinition of a kind was deleted."""
        return self._definitions.withdrawn(group, plural)

    def _take_in(self, change: Change[Definition]) -> None:
        self._definitions.take_in(change)
        self.changed.set()
