"""Interface of job plugins, and the objects besides pods that they create."""

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
    """Error for a job plugin that cannot be configured as the job requests. The text names the plugin and the
    error."""


class SshKey(msgspec.Struct, frozen=True):
    """SSH key: the private key as PEM, the public key as a line of `authorized_keys`."""

    private: str
    public: str


class DesiredObject(msgspec.Struct, frozen=True):
    """Object that a job needs besides its pods.

    `content` returns its fields; it can be expensive (a key), so it is called only if the object is missing or
    follows the job. The fields in `owned`, such as `data` or `spec.selector`, follow the job; without any, the
    object is created once and never updated.
    """

    api_version: str
    kind: str
    name: str
    job: Job
    content: Callable[[], Json]
    owned: tuple[str, ...] = ()

    @property
    def follows_job(self) -> bool:
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
        """Return whether the existing object was created for this job, not by a user or for an earlier job of the
        same name."""
        owners = sequence(mapping(existing.get("metadata")).get("ownerReferences"))
        return any(mapping(owner).get("uid") == self.job.metadata.uid for owner in owners)

    def changed(self, existing: Json) -> Json | None:
        """Return the merge patch that updates an existing object to the job; None if it is up to date."""
        if not self.owned:
            return None
        patch: Json = {}
        content = self.content()
        for path in self.owned:
            *parents, field = path.split(".")
            desired_part, existing_part, target = content, existing, patch
            for parent in parents:
                desired_part, existing_part = mapping(desired_part.get(parent)), mapping(existing_part.get(parent))
            difference = _difference(existing_part.get(field), desired_part.get(field))
            if difference is _SAME:
                continue
            for parent in parents:
                target = target.setdefault(parent, {})
            target[field] = difference
        return patch or None


_SAME = object()


def _difference(old: object, new: object) -> object:
    """Return the merge patch value of one field. Empty and absent values are equal."""
    if old == new or (not old and not new):
        return _SAME
    if not isinstance(old, dict) or not isinstance(new, dict):
        return new
    entries = {key: _difference(old.get(key), value) for key, value in new.items()}
    entries |= {key: None for key, value in old.items() if key not in new and value is not None}
    entries = {key: value for key, value in entries.items() if value is not _SAME}
    return entries or _SAME


class JobPlugin(Protocol):
    """Interface of a job plugin, created for one job from its arguments."""

    name: str

    def shape_pod(self, job: Job, task: TaskSpec, index: int, pod: Json) -> None:
        """Add the plugin's variables, ports, volumes and so on to a pod's manifest. Raise JobPluginError."""

    def objects(self, job: Job, generate_key: Callable[[], SshKey]) -> tuple[DesiredObject, ...]:
        """Return the plugin's objects that must exist before the job's pods."""


class PodPlugin:
    """Base of job plugins without objects besides pods."""

    def objects(self, job: Job, generate_key: Callable[[], SshKey]) -> tuple[DesiredObject, ...]:
        return ()
