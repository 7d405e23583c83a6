"""Registry of job plugins, in a fixed order."""

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

# The order matters: hcclrank reads the variables of pytorch.
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
#: Plugins that a plugin needs.
NEEDED_PLUGINS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {"tensorflow": ("svc",), "pytorch": ("svc",), "ray": ("svc",), "mpi": ("svc", "ssh")}
)
# Plugins that upstream omits from the status.
_UNLISTED = frozenset({"hcclrank"})

PLUGIN_NAMES = tuple(_BUILDERS)


def plugin_arguments(job: Job) -> dict[str, tuple[str, ...]]:
    """Return the names and arguments of the plugins that a job names, and of the plugins that these need. Raise
    JobPluginError."""
    stated = job.spec.plugins
    for name in sorted(stated):
        if name not in _BUILDERS:
            raise JobPluginError(f"failed to get plugin {name}; expected one of {', '.join(PLUGIN_NAMES)}")
    needed = {needed_plugin for name in stated for needed_plugin in NEEDED_PLUGINS.get(name, ())}
    return {name: stated.get(name, ()) for name in _BUILDERS if name in stated or name in needed}


def plugins_of(job: Job) -> tuple[JobPlugin, ...]:
    """Return the configured plugins of a job. Raise JobPluginError for an invalid one."""
    return tuple(_BUILDERS[name](arguments) for name, arguments in plugin_arguments(job).items())


def shape(plugins: Sequence[JobPlugin], job: Job, task: TaskSpec, index: int, pod: Json) -> Json:
    """Add the volumes of the job and the additions of its plugins to a pod, and return it. Raise JobPluginError."""
    mount_volumes(job, pod)
    for plugin in plugins:
        plugin.shape_pod(job, task, index, pod)
    return pod


def desired_objects(job: Job, generate_key: Callable[[], SshKey]) -> tuple[DesiredObject, ...]:
    """Return the objects besides pods that the job's plugins need. Raise JobPluginError."""
    return tuple(desired for plugin in plugins_of(job) for desired in plugin.objects(job, generate_key))


def plugin_resources(job: Job) -> dict[str, str]:
    """Return the job's plugins as entries of `controlledResources` in its status. Raise JobPluginError."""
    return {f"plugin-{name}": name for name in plugin_arguments(job) if name not in _UNLISTED}
