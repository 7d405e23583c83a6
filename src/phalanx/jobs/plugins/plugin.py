"""What a plugin of jobs is, and the objects that it makes beside pods."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, Protocol

import msgspec

from phalanx.jobs.naming import owned_metadata
from phalanx.jobs.spec import Job, TaskSpec
from phalanx.model.pod_quota import mapping, sequence

Json = dict[str, Any]


class JobPluginError(Exception):
    """A plugin that a job cannot have as it asks for it. The text names the plugin and what is wrong."""


class SshKey(msgspec.Struct, frozen=True):
    """An ssh key: the private one as PEM, the public one as a line of `authorized_keys`."""

    private: str
    public: str


class DesiredObject(msgspec.Struct, frozen=True):
    """An object that a job needs. `content` makes up what it holds; it may be costly (a key), so it is asked for
    only if the object is missing or kept in step. The fields in `owned`, such as `data` or `spec.selector`, follow
    the job; without any the object is made once and never touched."""

    api_version: str
    kind: str
    name: str
    job: Job
    content: Callable[[], Json]
    owned: tuple[str, ...] = ()

    @property
    def kept_in_step(self) -> bool:
        return bool(self.owned)

    def manifest(self) -> Json:
        metadata = owned_metadata(self.job, self.name)
        return {
            "apiVersion": self.api_version,
            "kind": self.kind,
            "metadata": metadata,
            **copy.deepcopy(self.content()),
        }

    def belongs_to_job(self, existing: Json) -> bool:
        """Whether one of this name was made for this job, not by a user or for an earlier job of its name."""
        owners = sequence(mapping(existing.get("metadata")).get("ownerReferences"))
        return any(mapping(owner).get("uid") == self.job.metadata.uid for owner in owners)

    def changed(self, existing: Json) -> Json | None:
        """A merge patch that brings one that exists into step; None if it is."""
        if not self.owned:
            return None
        patch: Json = {}
        content = self.content()
        for path in self.owned:
            *parents, field = path.split(".")
            here, there, target = content, existing, patch
            for parent in parents:
                here, there = mapping(here.get(parent)), mapping(there.get(parent))
            difference = _difference(there.get(field), here.get(field))
            if difference is _SAME:
                continue
            for parent in parents:
                target = target.setdefault(parent, {})
            target[field] = difference
        return patch or None


_SAME = object()


def _difference(old: object, new: object) -> object:
    """What a merge patch says for one field. What is empty and what is absent are the same."""
    if old == new or (not old and not new):
        return _SAME
    if not isinstance(old, dict) or not isinstance(new, dict):
        return new
    entries = {key: _difference(old.get(key), value) for key, value in new.items()}
    entries |= {key: None for key, value in old.items() if key not in new and value is not None}
    entries = {key: value for key, value in entries.items() if value is not _SAME}
    return entries or _SAME


class JobPlugin(Protocol):
    """Made for one job, from its arguments."""

    name: str

    def shape_pod(self, job: Job, task: TaskSpec, index: int, pod: Json) -> None:
        """Adds to the manifest of a pod. Raises JobPluginError."""

    def objects(self, job: Job, generate_key: Callable[[], SshKey]) -> tuple[DesiredObject, ...]:
        """What must exist before the pods do."""


class PodPlugin:
    """A plugin that needs no objects."""

    def objects(self, job: Job, generate_key: Callable[[], SshKey]) -> tuple[DesiredObject, ...]:
        return ()
