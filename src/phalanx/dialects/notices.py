"""Things to tell users about their objects: the material of Kubernetes events."""

from __future__ import annotations

from typing import Literal

import msgspec

from phalanx.model.gang import GroupRef


class ObjectRef(msgspec.Struct, frozen=True):
    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str


class Notice(msgspec.Struct, frozen=True):
    """`reason` is CamelCase and stable, `message` names object, field, value and what to write instead."""

    about: ObjectRef
    type: Literal["Normal", "Warning"]
    reason: str
    message: str


def pod_ref(namespace: str, name: str, uid: str) -> ObjectRef:
    return ObjectRef("v1", "Pod", namespace, name, uid)


def node_ref(name: str, uid: str) -> ObjectRef:
    return ObjectRef("v1", "Node", "", name, uid)


def group_ref(ref: GroupRef) -> ObjectRef:
    return ObjectRef(f"{ref.group}/{ref.version}", ref.kind, ref.namespace, ref.name, ref.uid)
