"""Construction of the whole scheduler process, group by group."""

from __future__ import annotations

import msgspec

from phalanx.daemon.assembly.controllers import (
    Controllers,
    StoredState,
    build_controllers,
    build_stored_state,
)
from phalanx.daemon.assembly.core import Core, build_core
from phalanx.daemon.assembly.execution import Execution, build_execution
from phalanx.daemon.assembly.observation import Observation, build_observation
from phalanx.daemon.assembly.status import Publishers, build_status
from phalanx.daemon.assembly.writes import Writes, build_writes
from phalanx.daemon.scheduler_options import SchedulerOptions
from phalanx.daemon.telemetry import Telemetry
from phalanx.kube.client import KubeClient


class Assembly(msgspec.Struct, frozen=True, eq=False):
    """All groups of parts of the scheduler process; a group knows only the groups above it."""

    core: Core
    writes: Writes
    status: Publishers
    execution: Execution
    observation: Observation
    stored: StoredState
    controllers: Controllers


def assemble(client: KubeClient, options: SchedulerOptions, telemetry: Telemetry) -> Assembly:
    """Build all parts of the scheduler process; nothing runs yet. Raises PolicyError."""
    core = build_core(options, telemetry)
    writes = build_writes(core, client)
    status = build_status(core, writes)
    execution = build_execution(core, writes, status)
    observation = build_observation(core, writes, status)
    stored = build_stored_state(core, writes, observation)
    controllers = build_controllers(core, writes, status, execution, observation, stored)
    return Assembly(core, writes, status, execution, observation, stored, controllers)
