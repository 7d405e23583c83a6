"""Which plugins there are: ours, and those that installed packages offer."""

from __future__ import annotations

from importlib.metadata import entry_points

from phalanx.scheduling.errors import PolicyError
from phalanx.scheduling.plugin import Plugin
from phalanx.scheduling.plugins.binpack import Binpack
from phalanx.scheduling.plugins.budgets import Budgets
from phalanx.scheduling.plugins.capacity import Capacity
from phalanx.scheduling.plugins.cdp import Cdp
from phalanx.scheduling.plugins.conformance import Conformance
from phalanx.scheduling.plugins.deviceshare import DeviceShare
from phalanx.scheduling.plugins.drf import Drf
from phalanx.scheduling.plugins.extender import Extender
from phalanx.scheduling.plugins.fairshare import Fairshare
from phalanx.scheduling.plugins.gang import GangPlugin
from phalanx.scheduling.plugins.guarantees import Guarantees
from phalanx.scheduling.plugins.network_topology_aware import NetworkTopologyAware
from phalanx.scheduling.plugins.nodegroup import NodeGroup
from phalanx.scheduling.plugins.nodeorder import NodeOrder
from phalanx.scheduling.plugins.numa_aware import NumaAware
from phalanx.scheduling.plugins.overcommit import Overcommit
from phalanx.scheduling.plugins.pdb import Pdb
from phalanx.scheduling.plugins.predicates import Predicates
from phalanx.scheduling.plugins.priority import Priority
from phalanx.scheduling.plugins.proportion import Proportion
from phalanx.scheduling.plugins.protection import Protection
from phalanx.scheduling.plugins.quotas import Quotas
from phalanx.scheduling.plugins.rescheduling import Rescheduling
from phalanx.scheduling.plugins.resource_strategy_fit import ResourceStrategyFit
from phalanx.scheduling.plugins.resourcequota import ResourceQuotaPlugin
from phalanx.scheduling.plugins.rest import Rest
from phalanx.scheduling.plugins.selfprotection import SelfProtectionPlugin
from phalanx.scheduling.plugins.sla import Sla
from phalanx.scheduling.plugins.task_topology import TaskTopologyPlugin
from phalanx.scheduling.plugins.tdm import Tdm
from phalanx.scheduling.plugins.usage import Usage

ENTRY_POINT_GROUP = "phalanx.plugins"


def builtin_plugins() -> dict[str, type[Plugin]]:
    ours: tuple[type[Plugin], ...] = (
        Binpack,
        Capacity,
        Cdp,
        Conformance,
        DeviceShare,
        Drf,
        Extender,
        Fairshare,
        GangPlugin,
        NetworkTopologyAware,
        NodeGroup,
        NodeOrder,
        NumaAware,
        Overcommit,
        Pdb,
        Predicates,
        Priority,
        Proportion,
        Rescheduling,
        ResourceQuotaPlugin,
        ResourceStrategyFit,
        Sla,
        TaskTopologyPlugin,
        Tdm,
        Usage,
    )
    return {plugin.name: plugin for plugin in ours}


def standing() -> tuple[type[Plugin], ...]:
    """The plugins that are part of every policy without being named."""
    return (Budgets, Quotas, Guarantees, Protection, SelfProtectionPlugin, Rest)


def available_plugins() -> dict[str, type[Plugin]]:
    """Ours and those that installed packages offer.

    Raises PolicyError for an entry point that cannot be loaded, is no plugin, or takes a name that is taken.
    """
    plugins = builtin_plugins()
    for entry in sorted(entry_points(group=ENTRY_POINT_GROUP), key=lambda entry: entry.name):
        where = f"entry point {entry.name} ({entry.value})"
        try:
            plugin = entry.load()
        except Exception as error:
            raise PolicyError(f"{where} cannot be loaded: {error}") from error
        if not (isinstance(plugin, type) and issubclass(plugin, Plugin)):
            raise PolicyError(f"{where} is not a phalanx Plugin class")
        if plugin.name in plugins:
            raise PolicyError(f"{where}: there is a plugin {plugin.name!r} already")
        plugins[plugin.name] = plugin
    return plugins
