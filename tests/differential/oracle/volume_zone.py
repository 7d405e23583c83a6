"""VolumeZone. Source: pkg/scheduler/framework/plugins/volumezone/volume_zone.go.

Only volumes that pods claim by name are looked at, not those of generic ephemeral volumes.
"""

from __future__ import annotations

from tests.differential.oracle.storage import claims_of, class_name, class_of, volume_of
from tests.differential.oracle.world import Wire, World, labels_of

_NEW_NAME = {
    "failure-domain.beta.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region": "topology.kubernetes.io/region",
}
_KEYS = (*_NEW_NAME, *_NEW_NAME.values())


def objection(world: World, pod: Wire, node: Wire) -> str:
    zones: list[tuple[str, set[str]]] = []
    for use in claims_of(world, pod):
        if use.ephemeral:
            continue
        if use.claim is None:
            return f'persistentvolumeclaim "{use.name}" not found'
        if not use.claim["spec"].get("volumeName"):
            storage_class = class_of(world, use.claim)
            if not class_name(use.claim) or storage_class is None:
                return "PersistentVolumeClaim had no pv name and storageClass name"
            if storage_class.get("volumeBindingMode") != "WaitForFirstConsumer":
                return "PersistentVolume had no name"
            continue
        volume = volume_of(world, use.claim)
        if volume is None:
            return f'persistentvolume "{use.claim["spec"]["volumeName"]}" not found'
        zones += [(key, values) for key in _KEYS if (values := _values(labels_of(volume).get(key)))]
    labels = labels_of(node)
    if not any(key in labels for key in _KEYS):
        return ""
    for key, values in zones:
        own = labels.get(key, labels.get(_NEW_NAME.get(key, key)))
        if own is None or own not in values:
            return "node(s) had no available volume zone"
    return ""


def _values(text: str | None) -> set[str]:
    """A set of zones is written with two underscores between them; one that is empty somewhere is no set."""
    parts = [] if text is None else [part.strip() for part in text.split("__")]
    return set(parts) if all(parts) else set()
