"""The plugins of a job, in an order that is always the same."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from phalanx.jobs.plugins.env import EnvPlugin
from phalanx.jobs.plugins.hcclrank import HcclrankPlugin
from phalanx.jobs.plugins.mpi import MpiPlugin
from phalanx.jobs.plugins.plugin import DesiredObject, JobPlugin, JobPluginError, Json, SshKey
from phalanx.jobs.plugins.pytorch import PytorchPlugin
from phalanx.jobs.plugins.ray import RayPlugin
from phalanx.jobs.plugins.ssh import SshPlugin
from phalanx.jobs.plugins.svc import SvcPlugin
from phalanx.jobs.plugins.tensorflow import TensorflowPlugin
from phalanx.jobs.spec import Job, TaskSpec
from phalanx.jobs.volumes import mount_volumes

# In this order; hcclrank reads what pytorch has written.
_BUILDERS: dict[str, Callable[[Sequence[str]], JobPlugin]] = {
    "svc": SvcPlugin,
    "env": EnvPlugin,
    "ssh": SshPlugin,
    "tensorflow": TensorflowPlugin,
    "pytorch": PytorchPlugin,
    "mpi": MpiPlugin,
    "ray": RayPlugin,
    "hcclrank": HcclrankPlugin,
}
#: What a plugin needs beside it.
NEEDED_PLUGINS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {"tensorflow": ("svc",), "pytorch": ("svc",), "ray": ("svc",), "mpi": ("svc", "ssh")}
)
# Upstream notes no others in the status.
_UNLISTED = frozenset({"hcclrank"})

PLUGIN_NAMES = tuple(_BUILDERS)


def plugin_arguments(job: Job) -> dict[str, tuple[str, ...]]:
    """The plugins that a job names and those that they need, with their arguments. Raises JobPluginError."""
    stated = job.spec.plugins
    for name in sorted(stated):
        if name not in _BUILDERS:
            raise JobPluginError(f"failed to get plugin {name}; there are {', '.join(PLUGIN_NAMES)}")
    needed = {other for name in stated for other in NEEDED_PLUGINS.get(name, ())}
    return {name: stated.get(name, ()) for name in _BUILDERS if name in stated or name in needed}


def plugins_of(job: Job) -> tuple[JobPlugin, ...]:
    """Raises JobPluginError."""
    return tuple(_BUILDERS[name](arguments) for name, arguments in plugin_arguments(job).items())


def shape(plugins: Sequence[JobPlugin], job: Job, task: TaskSpec, index: int, pod: Json) -> Json:
    """The pod, to which the job's volumes are added and what its plugins add. Raises JobPluginError."""
    mount_volumes(job, pod)
    for plugin in plugins:
        plugin.shape_pod(job, task, index, pod)
    return pod


def desired_objects(job: Job, generate_key: Callable[[], SshKey]) -> tuple[DesiredObject, ...]:
    """What the plugins need beside pods. Raises JobPluginError."""
    return tuple(each for plugin in plugins_of(job) for each in plugin.objects(job, generate_key))


def plugin_resources(job: Job) -> dict[str, str]:
    """The plugins as the job's status lists them. Raises JobPluginError."""
    return {f"plugin-{name}": name for name in plugin_arguments(job) if name not in _UNLISTED}
