"""Job plugin ssh: the pods of a job can log in to each other with a key of the job."""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence

from phalanx.jobs.naming import has_one_host, host, volume_name
from phalanx.jobs.plugins.flags import Flags
from phalanx.jobs.plugins.plugin import DesiredObject, Json, SshKey
from phalanx.jobs.pod_template import ALL_CONTAINERS, add_mount, add_volume, containers
from phalanx.jobs.spec import Job, TaskSpec

_PATH, _DIRECTORY = "/root/.ssh", ".ssh"
_FILES = ("id_rsa", "id_rsa.pub", "authorized_keys", "config")
_PORT = 22
_KEY_BITS = 2048


class SshPlugin:
    name = "ssh"

    def __init__(self, arguments: Sequence[str]) -> None:
        flags = Flags(
            self.name,
            arguments,
            {
                "ssh-key-file-path": _PATH,
                "ssh-private-key": "",
                "ssh-public-key": "",
                "ssh-port": _PORT,
                # Flag of early releases that is still common in jobs; it has no effect.
                "no-root": False,
            },
        )
        self._path = flags.text("ssh-key-file-path")
        self._private, self._public = flags.text("ssh-private-key"), flags.text("ssh-public-key")
        port = flags.number("ssh-port")
        self._port = port if 0 < port < 2**16 else _PORT

    def shape_pod(self, job: Job, task: TaskSpec, index: int, pod: Json) -> None:
        secret = _secret(job)
        volume = volume_name(secret)
        # The ssh of root requires private files; for other users the files must be readable.
        mode = 0o600 if self._path == _PATH else 0o644
        items = [{"key": file, "path": f"{_DIRECTORY}/{file}"} for file in _FILES]
        add_volume(pod, {"name": volume, "secret": {"secretName": secret, "items": items, "defaultMode": mode}})
        for container in containers(pod, ALL_CONTAINERS):
            add_mount(container, {"name": volume, "mountPath": self._path, "subPath": _DIRECTORY})

    def objects(self, job: Job, generate_key: Callable[[], SshKey]) -> tuple[DesiredObject, ...]:
        def content() -> Json:
            own = SshKey(self._private, self._public) if self._private else generate_key()
            files = (own.private, own.public, own.public, self._config(job))
            data = {
                name: base64.b64encode(text.encode()).decode() for name, text in zip(_FILES, files, strict=True)
            }
            return {"data": data}

        return (DesiredObject("v1", "Secret", _secret(job), job, content),)

    def _config(self, job: Job) -> str:
        lines = ["StrictHostKeyChecking no", "UserKnownHostsFile /dev/null"]
        for task in job.spec.named_tasks():
            for index in range(min(task.replicas, 1) if has_one_host(task) else task.replicas):
                address = host(job, task, index)
                lines += [f"Host {address.partition('.')[0]}", f"  HostName {address}", f"  Port {self._port}"]
        return "\n".join(lines) + "\n"


def generate_rsa_key() -> SshKey:
    """Generate an RSA key in forms that every ssh client reads. It takes a moment."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import rsa

    key = rsa.generate_private_key(public_exponent=65537, key_size=_KEY_BITS)
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    )
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    return SshKey(private.decode(), f"{public.decode()}\n")


def _secret(job: Job) -> str:
    return f"{job.metadata.name}-ssh"
