"""Built-in kinds: their fields, as compact tables, one file per API group and version.

A line (indented lines continue it) is a type name, marked ``*`` when it is a kind, and its fields as
``name:type``. A ``!`` after the name: present in an empty object. Types:

==========  ================================================================================================
``s i l``   string, int32, int64; ``b f q x t u d y``: boolean, float, quantity, int-or-string, time, microtime,
            duration, base64 bytes; ``any``: untyped JSON
``T``       a type of this file, or ``file/T``
``[T]``     a list; ``{a,b=dflt}`` after it: a map list with these keys; ``{}``: a set; else atomic.
            ``~key`` / ``~``: strategic merge by that key / by the map key, or as a list of primitives
``<T>``     a map from string to T
``@``       before a map or struct: atomic (owned and replaced as a whole by server-side apply)
``^ #``     after a type: strategic merge strategy retainKeys, replace
==========  ================================================================================================

Source of the facts: the API types and markers of Kubernetes 1.36 (scheduling v1beta1 and v1alpha3: 1.37, v1alpha1
and `workloadRef` of pods: 1.35).
"""

from __future__ import annotations

import dataclasses
import re
from functools import cache
from importlib import resources
from typing import Final

from phalanx_local.validation.types import ABSENT, ANY, FieldType, StructField

SCALARS: Final = {
    "s": "string",
    "i": "int32",
    "l": "int64",
    "b": "bool",
    "f": "float",
    "q": "quantity",
    "x": "intOrString",
    "t": "time",
    "u": "microtime",
    "d": "duration",
    "y": "bytes",
}

#: Zero value of a scalar, for fields that are present in an empty object.
EMPTY_SCALARS: Final = {"string": "", "int32": 0, "int64": 0, "bool": False, "float": 0}

#: API group -> files with its kinds, preferred version first.
GROUPS: Final[dict[str, tuple[str, ...]]] = {
    "": ("core.v1",),
    "admissionregistration.k8s.io": ("admissionregistration.v1",),
    "apiextensions.k8s.io": ("apiextensions.v1",),
    "apps": ("apps.v1",),
    "authentication.k8s.io": ("authentication.v1",),
    "authorization.k8s.io": ("authorization.v1",),
    "autoscaling": ("autoscaling.v2", "autoscaling.v1"),
    "batch": ("batch.v1",),
    "certificates.k8s.io": ("certificates.v1",),
    "coordination.k8s.io": ("coordination.v1",),
    "discovery.k8s.io": ("discovery.v1",),
    "events.k8s.io": ("events.v1",),
    "flowcontrol.apiserver.k8s.io": ("flowcontrol.v1",),
    "networking.k8s.io": ("networking.v1",),
    "node.k8s.io": ("node.v1",),
    "policy": ("policy.v1",),
    "rbac.authorization.k8s.io": ("rbac.v1",),
    "resource.k8s.io": ("resource.v1",),
    "scheduling.k8s.io": (
        "scheduling.v1",
        "scheduling.v1beta1",
        "scheduling.v1alpha2",
        "scheduling.v1alpha3",
        "scheduling.v1alpha1",
    ),
    "storage.k8s.io": ("storage.v1",),
}

# Versions that a later release is planned to serve, with the served version of the same shape (KEP-4671).
_PLANNED = {("scheduling.k8s.io", "v1"): "v1beta1"}

_LIST = re.compile(r"\[(?P<element>.+)\](?P<keys>\{[^}]*\})?(?P<merge>~\w*)?")


@cache
def kind_type(group: str, kind: str, version: str = "") -> FieldType | None:
    """Return the type of a built-in kind; None if it is unknown.

    The default version is the preferred version that serves the kind.
    """
    catalogue = _catalogue()
    if (group, version) in _PLANNED and kind not in kinds_of(group, version):
        version = _PLANNED[group, version]
    for stem in GROUPS.get(group, ()):
        if version and stem.rpartition(".")[2] != version:
            continue
        if kind in catalogue.kinds(stem):
            return catalogue.struct(stem, kind)
    return None


def kinds_of(group: str, version: str) -> tuple[str, ...]:
    """Return the sorted names of the built-in kinds of a group and version."""
    for stem in GROUPS.get(group, ()):
        if stem.rpartition(".")[2] == version:
            return _catalogue().kinds(stem)
    return ()


@cache
def struct_type(stem: str, name: str) -> FieldType:
    """Return a type by the name of its file and its name, for example ``("core.v1", "PodSpec")``; raise KeyError if
    it is unknown."""
    return _catalogue().struct(stem, name)


class _Catalogue:
    """Catalogue that reads the files of types and builds types at first use; each type is built once and shared."""

    def __init__(self) -> None:
        self._lines: dict[str, dict[str, tuple[bool, list[str]]]] = {}
        self._structs: dict[tuple[str, str], FieldType] = {}

    def kinds(self, stem: str) -> tuple[str, ...]:
        return tuple(name for name, (is_kind, _) in self._table(stem).items() if is_kind)

    def struct(self, stem: str, name: str) -> FieldType:
        known = self._structs.get((stem, name))
        if known is not None:
            return known
        _, words = self._table(stem)[name]
        # Types can be recursive, so the shell is registered before its members are read.
        shell = self._structs[(stem, name)] = FieldType("struct")
        for word in words:
            field, _, notation = word.partition(":")
            shell.fields[field.rstrip("!")] = self._member(stem, notation, field.endswith("!"))
        return shell

    def _table(self, stem: str) -> dict[str, tuple[bool, list[str]]]:
        table = self._lines.get(stem)
        if table is None:
            table = self._lines[stem] = {}
            words: list[str] = []
            text = resources.files(__package__).joinpath(f"{stem}.txt").read_text("utf-8")
            for line in text.splitlines():
                if line.startswith(" "):
                    words.extend(line.split())
                else:
                    name, *words = line.split()
                    table[name.lstrip("*")] = (name.startswith("*"), words)
        return table

    def _member(self, stem: str, notation: str, present: bool) -> StructField:
        core = notation.rstrip("^#")
        kind = self._type(stem, core)
        empty: object = ABSENT
        if present:
            empty = {} if kind.form == "struct" else EMPTY_SCALARS.get(kind.scalar)
        return StructField(kind, empty, "#" in notation[len(core) :])

    def _type(self, stem: str, notation: str) -> FieldType:
        if notation in SCALARS:
            return _SCALAR_TYPES[notation]
        if notation == "any":
            return ANY
        if notation.startswith("@"):
            return dataclasses.replace(self._type(stem, notation[1:]), atomic=True)
        if notation.startswith("<"):
            return FieldType("map", element=self._type(stem, notation[1:-1]))
        match = _LIST.fullmatch(notation)
        if match is not None:
            keys: list[str] = []
            defaults: dict[str, str] = {}
            for key in filter(None, (match["keys"] or "").strip("{}").split(",")):
                name, _, default = key.partition("=")
                keys.append(name)
                if default:
                    defaults[name] = default
            return FieldType(
                "list",
                element=self._type(stem, match["element"]),
                atomic=match["keys"] is None,
                keys=tuple(keys),
                key_defaults=defaults,
                is_set=match["keys"] == "{}",
                patch_merge=match["merge"] is not None,
                patch_key=(match["merge"] or "")[1:] or (keys[0] if match["merge"] and keys else ""),
            )
        other, slash, name = notation.rpartition("/")
        return self.struct(other if slash else stem, name)


_SCALAR_TYPES: Final = {mark: FieldType("scalar", scalar=name) for mark, name in SCALARS.items()}


@cache
def _catalogue() -> _Catalogue:
    return _Catalogue()
