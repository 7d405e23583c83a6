"""Container images: images that a pod needs, and images that a node has cached."""

from __future__ import annotations

import sys

from phalanx.dialects.core import NodeStatus, PodSpec


def images_of(spec: PodSpec) -> tuple[str, ...]:
    """Return the sorted images of all containers and image volumes of a pod, with repetitions."""
    names = [container.image for container in (*spec.containers, *spec.init_containers)]
    names += [volume.image.reference for volume in spec.volumes if volume.image is not None]
    return tuple(sorted(normalised(name) for name in names if name))


def images_at(status: NodeStatus) -> tuple[tuple[str, int], ...]:
    """Return sorted (name, bytes) of all images that a node's kubelet reports, under each of their names."""
    sizes: dict[str, int] = {}
    for image in status.images:
        for name in image.names:
            # Nodes have the same images: each name is stored once.
            sizes[sys.intern(normalised(name))] = max(0, image.size_bytes)
    return tuple(sorted(sizes.items()))


def normalised(name: str) -> str:
    """Return an image name with the default tag that a container runtime adds (kube-scheduler,
    image_locality.go)."""
    return name if name.rfind(":") > name.rfind("/") else f"{name}:latest"
