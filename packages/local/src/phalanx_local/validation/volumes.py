"""Validation of a pod's volumes and of the containers' mounts."""

from __future__ import annotations

from typing import Any, Final

from phalanx_local.validation.errors import FieldError, duplicate, forbidden, invalid, not_supported, required
from phalanx_local.validation.names import config_key, dns_label, dns_subdomain
from phalanx_local.validation.resources import parsed

#: Volume sources in the order of the API server; the first one that is set counts.
SOURCES: Final = (
    "emptyDir",
    "hostPath",
    "gitRepo",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "secret",
    "nfs",
    "iscsi",
    "glusterfs",
    "flocker",
    "persistentVolumeClaim",
    "rbd",
    "cinder",
    "cephfs",
    "quobyte",
    "downwardAPI",
    "fc",
    "flexVolume",
    "configMap",
    "azureFile",
    "vsphereVolume",
    "photonPersistentDisk",
    "portworxVolume",
    "azureDisk",
    "storageos",
    "projected",
    "scaleIO",
    "csi",
    "ephemeral",
    "image",
)
_HOST_PATH_TYPES: Final = (
    "",
    "BlockDevice",
    "CharDevice",
    "Directory",
    "DirectoryOrCreate",
    "File",
    "FileOrCreate",
    "Socket",
)
#: Sources with a required reference, and the field of that reference.
_NAMED: Final = {
    "persistentVolumeClaim": "claimName",
    "secret": "secretName",
    "configMap": "name",
    "nfs": "server",
    "csi": "driver",
    "flexVolume": "driver",
    "gitRepo": "repository",
}


def check_volumes(errors: list[FieldError], volumes: Any, path: str, pod_name: str) -> dict[str, dict[str, Any]]:
    """Check the volumes of a pod spec; return the valid volumes by name."""
    usable: dict[str, dict[str, Any]] = {}
    made = {f"{pod_name}-{item.get('name')}" for item in volumes or () if item.get("ephemeral") and pod_name}
    for index, volume in enumerate(volumes or ()):
        here = f"{path}[{index}]"
        before = len(errors)
        _source(errors, volume, here)
        name = volume.get("name") or ""
        if not name:
            errors.append(required(f"{here}.name"))
        else:
            errors.extend(invalid(f"{here}.name", name, text) for text in dns_label(name))
        if name in usable:
            errors.append(duplicate(f"{here}.name", name))
        if len(errors) == before:
            usable[name] = volume
        claim = (volume.get("persistentVolumeClaim") or {}).get("claimName")
        if claim in made:
            detail = "must not reference a PVC that gets created for an ephemeral volume"
            errors.append(invalid(f"{here}.persistentVolumeClaim.claimName", claim, detail))
    return usable


def _source(errors: list[FieldError], volume: dict[str, Any], path: str) -> None:
    chosen = [name for name in SOURCES if volume.get(name) is not None]
    if not chosen:
        errors.append(required(path, "must specify a volume type"))
        return
    errors.extend(forbidden(f"{path}.{name}", "may not specify more than 1 volume type") for name in chosen[1:])
    name = chosen[0]
    source, here = volume[name], f"{path}.{name}"
    if name == "emptyDir":
        if source.get("sizeLimit") is not None:
            quantity = parsed(errors, source["sizeLimit"], f"{here}.sizeLimit")
            if quantity is not None and quantity.nano < 0:
                detail = "SizeLimit field must be a valid resource quantity"
                errors.append(forbidden(f"{here}.sizeLimit", detail))
    elif name == "hostPath":
        _host_path(errors, source, here)
    elif name == "projected":
        _projected(errors, source, here)
    elif name in _NAMED and not source.get(_NAMED[name]):
        errors.append(required(f"{here}.{_NAMED[name]}"))
    if name in ("secret", "configMap"):
        _items(errors, source, here)
    if name == "nfs":
        if not source.get("path"):
            errors.append(required(f"{here}.path"))
        elif not source["path"].startswith("/"):
            errors.append(invalid(f"{here}.path", source["path"], "must be an absolute path"))


def _host_path(errors: list[FieldError], source: dict[str, Any], path: str) -> None:
    if not source.get("path"):
        errors.append(required(f"{path}.path"))
        return
    if ".." in source["path"].split("/"):
        errors.append(invalid(f"{path}.path", source["path"], "must not contain '..'"))
    kind = source.get("type")
    if kind is not None and kind not in _HOST_PATH_TYPES:
        errors.append(not_supported(f"{path}.type", kind, _HOST_PATH_TYPES))


def _items(errors: list[FieldError], source: dict[str, Any], path: str) -> None:
    mode = source.get("defaultMode")
    if mode is not None and not 0 <= mode <= 0o777:
        errors.append(
            invalid(f"{path}.defaultMode", mode, "must be a number between 0 and 0777 (octal), both inclusive")
        )
    for index, item in enumerate(source.get("items") or ()):
        here = f"{path}.items[{index}]"
        key, target = item.get("key") or "", item.get("path") or ""
        if not key:
            errors.append(required(f"{here}.key"))
        else:
            errors.extend(invalid(f"{here}.key", key, text) for text in config_key(key))
        if not target:
            errors.append(required(f"{here}.path"))
        else:
            check_inner_path(errors, target, f"{here}.path")


def check_inner_path(errors: list[FieldError], target: str, path: str) -> None:
    """Check a path within a volume: relative, and without ``..``."""
    if target.startswith("/"):
        errors.append(invalid(path, target, "must be a relative path"))
    if ".." in target.split("/"):
        errors.append(invalid(path, target, "must not contain '..'"))


def _projected(errors: list[FieldError], source: dict[str, Any], path: str) -> None:
    for index, part in enumerate(source.get("sources") or ()):
        here = f"{path}.sources[{index}]"
        chosen = [name for name, item in part.items() if item is not None]
        if not chosen:
            errors.append(required(here, "must specify at least one projection"))
        if len(chosen) > 1:
            errors.append(forbidden(here, "may not specify more than 1 volume type per source"))
        for name in ("secret", "configMap"):
            if part.get(name) is not None:
                if not part[name].get("name"):
                    errors.append(required(f"{here}.{name}.name"))
                _items(errors, part[name], f"{here}.{name}")
        token = part.get("serviceAccountToken")
        if token is not None and not token.get("path"):
            errors.append(required(f"{here}.serviceAccountToken.path"))


def check_mounts(
    errors: list[FieldError], container: dict[str, Any], volumes: dict[str, dict[str, Any]], path: str
) -> None:
    """Check ``volumeMounts`` and ``volumeDevices`` of a container."""
    devices = container.get("volumeDevices") or []
    device_names = {item.get("name") for item in devices}
    device_paths = {item.get("devicePath") for item in devices}
    seen: set[str] = set()
    for index, mount in enumerate(container.get("volumeMounts") or ()):
        here = f"{path}.volumeMounts[{index}]"
        name, target = mount.get("name") or "", mount.get("mountPath") or ""
        if not name:
            errors.append(required(f"{here}.name"))
        if name not in volumes:
            errors.append(FieldError(f"{here}.name", "FieldValueNotFound", f'Not found: "{name}"'))
        if not target:
            errors.append(required(f"{here}.mountPath"))
        if target in seen:
            errors.append(invalid(f"{here}.mountPath", target, "must be unique"))
        seen.add(target)
        if name in device_names:
            errors.append(invalid(f"{here}.name", name, "must not already exist in volumeDevices"))
        if target in device_paths:
            detail = "must not already exist as a path in volumeDevices"
            errors.append(invalid(f"{here}.mountPath", target, detail))
        sub, expression = mount.get("subPath") or "", mount.get("subPathExpr") or ""
        if sub:
            check_inner_path(errors, sub, f"{path}.volumeMounts.subPath")
        if expression:
            if sub:
                detail = "subPathExpr and subPath are mutually exclusive"
                errors.append(invalid(f"{here}.subPathExpr", expression, detail))
            check_inner_path(errors, expression, f"{path}.volumeMounts.subPathExpr")
        if mount.get("mountPropagation") not in (None, "None", "HostToContainer", "Bidirectional"):
            allowed = ("Bidirectional", "HostToContainer", "None")
            where = f"{path}.volumeMounts.mountPropagation"
            errors.append(not_supported(where, mount["mountPropagation"], allowed))
    names: set[str] = set()
    paths: set[str] = set()
    for index, device in enumerate(devices):
        here = f"{path}.volumeDevices[{index}]"
        name, target = device.get("name") or "", device.get("devicePath") or ""
        if not name:
            errors.append(required(f"{here}.name"))
        if name in names:
            errors.append(invalid(f"{here}.name", name, "must be unique"))
        volume = volumes.get(name)
        if volume is None:
            errors.append(FieldError(f"{here}.name", "FieldValueNotFound", f'Not found: "{name}"'))
        elif not (volume.get("persistentVolumeClaim") or volume.get("ephemeral")):
            detail = "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode"
            errors.append(invalid(f"{here}.name", name, detail))
        if not target:
            errors.append(required(f"{here}.devicePath"))
        if target in paths:
            errors.append(invalid(f"{here}.devicePath", target, "must be unique"))
        names.add(name)
        paths.add(target)


def check_names(errors: list[FieldError], value: Any, path: str) -> None:
    """Check an optional field that refers to another object by name."""
    if value:
        errors.extend(invalid(path, value, text) for text in dns_subdomain(value))
