"""Container images: which a pod needs, and which a node has already."""

from __future__ import annotations

import sys

from phalanx.dialects.core import NodeStatus, PodSpec


def images_of(spec: PodSpec) -> tuple[str, ...]:
    """The images of all containers and volumes, repeats included, sorted."""
    names = [container.image for container in (*spec.containers, *spec.init_containers)]
    names += [volume.image.reference for volume in spec.volumes if volume.image is not None]
    return tuple(sorted(normalised(name) for name in names if name))


def images_at(status: NodeStatus) -> tuple[tuple[str, int], ...]:
    """(name, bytes) of everything that a kubelet reports, under each of its names; sorted."""
    sizes: dict[str, int] = {}
    for image in status.images:
        for name in image.names:
            # Nodes have the same images: one text for all of them.
            sizes[sys.intern(normalised(name))] = max(0, image.size_bytes)
    return tuple(sorted(sizes.items()))


def normalised(name: str) -> str:
    """The name with the tag that a runtime adds where there is none (kube-scheduler, image_locality.go)."""
    return name if name.rfind(":") > name.rfind("/") else f"{name}:latest"
