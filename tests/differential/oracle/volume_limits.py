"""NodeVolumeLimits. Sources: pkg/scheduler/framework/plugins/nodevolumelimits/csi.go, utils.go,
staging/src/k8s.io/csi-translation-lib (which in-tree volume is which driver's).
"""

from __future__ import annotations

from tests.differential.oracle.storage import claims_of, class_name, class_of, volume_of, volumes_of
from tests.differential.oracle.world import Wire, World, named, namespace_of

# In-tree volumes that CSI drivers serve: (field, key of the volume's name) -> driver, and the in-tree
# provisioner.
_MIGRATED = {
    ("gcePersistentDisk", "pdName"): "pd.csi.storage.gke.io",
    ("awsElasticBlockStore", "volumeID"): "ebs.csi.aws.com",
    ("azureDisk", "diskURI"): "disk.csi.azure.com",
    ("cinder", "volumeID"): "cinder.csi.openstack.org",
    ("portworxVolume", "volumeID"): "pxd.portworx.com",
}
_PROVISIONERS = {
    "kubernetes.io/gce-pd": "pd.csi.storage.gke.io",
    "kubernetes.io/aws-ebs": "ebs.csi.aws.com",
    "kubernetes.io/azure-disk": "disk.csi.azure.com",
    "kubernetes.io/cinder": "cinder.csi.openstack.org",
    "kubernetes.io/portworx-volume": "pxd.portworx.com",
}

# (driver, handle): the identity of an attached volume.
Attached = set[tuple[str, str]]


def objection(world: World, pod: Wire, node: Wire) -> str:
    name = node["metadata"]["name"]
    csi_node = named(world.csi_nodes, name)
    for use in claims_of(world, pod):
        if use.claim is None:
            return f'persistentvolumeclaim "{use.name}" not found'
        if use.ephemeral and not use.is_owned_by(pod):
            return f'PVC "{use.name}" was not created for the pod'
    wanted = _attachable(world, pod, csi_node)
    for driver, _ in sorted(wanted):
        if _must_be_installed(world, driver) and driver not in _installed(csi_node):
            return f"{driver} CSI driver is not installed on the node"
    limits = _limits(csi_node)
    there: Attached = set()
    for tenant in world.tenants(name):
        there |= _attachable(world, tenant, csi_node)
    attached = there | _attachments(world, name)
    for driver, limit in limits.items():
        new = [volume for volume in wanted - there if volume[0] == driver]
        old = [volume for volume in attached if volume[0] == driver]
        if new and len(old) + len(new) > limit:
            return "node(s) exceed max volume count"
    return ""


def _must_be_installed(world: World, driver: str) -> bool:
    """Return whether the driver must be installed.

    The gate (VolumeLimitScaling) is off by default: where the API accepts the field, it is intended.
    """
    found = named(world.csi_drivers, driver)
    return found is not None and bool((found.get("spec") or {}).get("preventPodSchedulingIfMissing"))


def _installed(csi_node: Wire | None) -> set[str]:
    return {driver["name"] for driver in (csi_node or {}).get("spec", {}).get("drivers") or []}


def _limits(csi_node: Wire | None) -> dict[str, int]:
    limits = {}
    for driver in (csi_node or {}).get("spec", {}).get("drivers") or []:
        count = (driver.get("allocatable") or {}).get("count")
        if count is not None:
            limits[driver["name"]] = count
    return limits


def _attachable(world: World, pod: Wire, csi_node: Wire | None) -> Attached:
    """Unknown claims of pods that are there are passed over."""
    found: Attached = set()
    for volume in volumes_of(pod):
        for (kind, identity), driver in _MIGRATED.items():
            if volume.get(kind) is not None and csi_node is not None:
                found.add((driver, volume[kind][identity]))
    for use in claims_of(world, pod):
        if use.claim is not None:
            known = _of_claim(world, use.claim, csi_node)
            if known is not None:
                found.add(known)
    return found


def _of_claim(world: World, claim: Wire, csi_node: Wire | None) -> tuple[str, str] | None:
    volume = volume_of(world, claim)
    if volume is None:
        storage_class = class_of(world, claim) if class_name(claim) else None
        if storage_class is None:
            return None
        driver = storage_class.get("provisioner", "")
        if driver in _PROVISIONERS:
            if csi_node is None:
                return None
            driver = _PROVISIONERS[driver]
        # A future volume counts as one, shared by all users of the claim.
        return (
            (driver, f"to be provisioned for {namespace_of(claim)}/{claim['metadata']['name']}") if driver else None
        )
    if volume["spec"].get("csi") is not None:
        return volume["spec"]["csi"]["driver"], volume["spec"]["csi"]["volumeHandle"]
    for (kind, identity), driver in _MIGRATED.items():
        if volume["spec"].get(kind) is not None and csi_node is not None:
            return driver, volume["spec"][kind][identity]
    return None


def _attachments(world: World, node: str) -> Attached:
    """Return the volumes of VolumeAttachments: each must exist and be a CSI one."""
    found: Attached = set()
    for entry in world.attachments:
        spec = entry["spec"]
        volume = named(world.volumes, (spec.get("source") or {}).get("persistentVolumeName") or "")
        if spec.get("nodeName") == node and spec.get("attacher") and volume and volume["spec"].get("csi"):
            found.add((spec["attacher"], volume["spec"]["csi"]["volumeHandle"]))
    return found
