"""Custom resource definitions: what an API server serves, whether or not its discovery says so yet."""

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

# Seconds for which the first look waits for the definitions, in case they cannot be had.
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
    """A CustomResourceDefinition, as far as it says what is served."""

    metadata: _Metadata
    spec: _Spec
    status: _Status = msgspec.field(default_factory=_Status)

    @property
    def served(self) -> list[ServedResource]:
        """Nothing before the server has accepted its names."""
        if not any(each.type == "Established" and each.status == "True" for each in self.status.conditions):
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
    """Raises msgspec.DecodeError."""
    return decoded(_DECODER.decode, raw)


class Definitions:
    """Follows a watch of definitions (`take_in`).

    A server that has just started says nothing of custom kinds in its discovery, and refuses to list them, until it
    has read their definitions. To take such a kind for one that nobody has would be to forget all its objects.
    """

    def __init__(self) -> None:
        self._served: dict[str, list[ServedResource]] = {}
        self._known: set[str] = set()

    def take_in(self, change: Change[Definition]) -> None:
        # (What cannot be read stands for what it stood for before.)
        match change:
            case Upsert(definition, _, (_, name)):
                self._served[name] = definition.served
                self._known.add(name)
            case Delete((_, name)):
                self._served.pop(name, None)

    def added_to(self, served: Discovery) -> Discovery:
        """What discovery says, and what it does not say yet."""
        told = {entry.resource for entry in served.served}
        more = [entry for entries in self._served.values() for entry in entries if entry.resource not in told]
        return Discovery((*served.served, *more), served.degraded) if more else served

    def withdrawn(self, group: str, plural: str) -> bool:
        """Whether the kind had a definition, and has none now."""
        name = f"{plural}.{group}"
        return name in self._known and name not in self._served


class DefinitionWatch:
    """Follows the definitions of an API server, where they may be read; `changed` is set at each change."""

    def __init__(self, client: KubeClient, failures: Failures) -> None:
        self._client = client
        self._definitions = Definitions()
        self.changed = asyncio.Event()
        self.reflector = Reflector(
            client, DEFINITIONS, decode_definition, self._take_in, optional=True, failures=failures
        )

    async def first_list(self) -> None:
        """Returns when all definitions have been seen once, or cannot be had."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_PATIENCE):
                await self.reflector.synced.wait()

    async def discovered(self) -> Discovery:
        """What is served, whether or not discovery says so yet. Raises as `discover` does."""
        return self._definitions.added_to(await discover(self._client))

    def withdrawn(self, group: str, plural: str) -> bool:
        """Whether the kind had a definition, and has none now."""
        return self._definitions.withdrawn(group, plural)

    def _take_in(self, change: Change[Definition]) -> None:
        self._definitions.take_in(change)
        self.changed.set()
