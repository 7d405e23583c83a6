"""`phalanx nodes`: pools of nodes, what is free on them, and why one is not used."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

import click
import msgspec

from phalanx.cli.connection import lease_namespace_option, policy_option
from phalanx.cli.invocation import Invocation, pass_invocation
from phalanx.cli.listing.options import ListArguments, list_options, parse_requirements

if TYPE_CHECKING:
    from collections.abc import Sequence

    from phalanx.cli.listing.table import Column
    from phalanx.kube.client import KubeClient
    from phalanx.reports.nodes.entries import NodeEntry

E = TypeVar("E", bound=msgspec.Struct)


@dataclass(frozen=True, kw_only=True)
class NodesArguments(ListArguments):
    """Arguments of `phalanx nodes`."""

    summarize: bool
    node_oriented: bool
    list_reasons: bool
    pools: tuple[str, ...]
    states: tuple[str, ...]
    pool_label: str
    selector: str


@click.command("nodes", short_help="Pools of nodes, what is free, and why one is not used.")
@click.option("-s", "--summarize", is_flag=True, help="One line a pool: allocated/idle/other/total.")
@click.option("-N", "--node-oriented", is_flag=True, help="One line a node.")
@click.option("-R", "--list-reasons", is_flag=True, help="Why nodes are not used, or not by all, and since when.")
@click.option("-p", "--pool", "pools", multiple=True, metavar="POOL", help="Only those in it; may be repeated.")
@click.option(
    "-t", "--state", "states", multiple=True, metavar="STATE", help="Only those in it, such as idle,drain."
)
@click.option(
    "--pool-label", default="", metavar="KEY", help="The label that names a node's pool; by default the usual ones."
)
@pass_invocation(NodesArguments, list_options(namespaced=False), policy_option, lease_namespace_option)
def nodes(invocation: Invocation, arguments: NodesArguments) -> None:
    """The nodes by pool and state, as sinfo shows them.

    STATE is idle, mixed, alloc (no GPU is free, or no CPU where it has none), drain (cordoned, with pods), drained
    or down (not ready). Pods of DaemonSets and static pods do not count. FREE is what is free on all of them,
    BIGGEST-FREE on the node with most. A pool is what the label volcano.sh/nodegroup-name says, or that of the
    cloud or autoscaler.

    \b
    phalanx nodes
    phalanx nodes -N -t idle,mixed --sort-by -gpu
    phalanx nodes -R
    """
    from phalanx.reports.nodes import entries as made

    # The API server selects the nodes; a selector that it would refuse is refused before.
    parse_requirements(arguments.selector)
    if arguments.summarize + arguments.node_oriented + arguments.list_reasons > 1:
        raise click.UsageError("-s, -N and -R exclude each other")
    shown = _NodeQuestion(invocation, arguments)
    from phalanx.cli.nodes import node_columns

    if arguments.summarize:
        shown.show(node_columns.SUMMARIES, lambda each: each.pool, made.by_pool)
    elif arguments.node_oriented:
        shown.show(node_columns.NODES, lambda each: f"node/{each.name}", list)
    elif arguments.list_reasons:
        shown.show(node_columns.REASONS, lambda each: each.reason, made.by_reason)
    else:
        shown.show(node_columns.GROUPS, lambda each: f"{each.pool}/{each.state}", made.by_state)


def _states(texts: tuple[str, ...]) -> set[str]:
    """Raises click.UsageError."""
    from phalanx.reports.nodes.entries import NodeState

    known = [str(state) for state in NodeState]
    words = {word.lower() for text in texts for word in text.split(",") if word}
    for word in sorted(words):
        if word not in known:
            raise click.UsageError(f"--state {word!r}: write one of {', '.join(known)}")
    return words


class _NodeQuestion:
    """Nodes that match the arguments, read anew for each look."""

    def __init__(self, invocation: Invocation, arguments: NodesArguments) -> None:
        self._invocation = invocation
        self._arguments = arguments
        self._pools = set(arguments.pools)
        self._states = _states(arguments.states)
        # Only the names of labels are read from the policy; whose pods they are on does not matter.
        self._read_policy = replace(invocation, scheduler_names=("phalanx",)).policy_reader(names_only=True)

    def show(
        self,
        columns: Sequence[Column[E]],
        name: Callable[[E], str],
        arranged: Callable[[list[NodeEntry]], list[E]],
    ) -> None:
        """Print the nodes as `arranged` in entries, each of which `name` tells from the others."""
        from phalanx.cli.listing.listing import Found, Listing, show
        from phalanx.cli.nodes.node_columns import document

        async def read(client: KubeClient) -> Found[E]:
            return Found(arranged(await self._read(client)))

        # What is not there any more leaves no row: the others of its pool have changed.
        listing = Listing(columns=columns, key=name, name=name, document=document)
        show(self._invocation, listing, read, self._arguments)

    async def _read(self, client: KubeClient) -> list[NodeEntry]:
        from phalanx.cli.listing.progress import Progress
        from phalanx.daemon.policy_file import dialect_options
        from phalanx.reports.nodes.node_list import read_nodes

        policy, _ = await self._read_policy(client)
        asked = self._arguments
        with Progress() as progress:
            found = await read_nodes(
                client, asked.selector, asked.pool_label, dialect_options(policy), progress.advanced
            )
        return [
            node
            for node in found
            if (not self._pools or node.pool in self._pools) and (not self._states or node.state in self._states)
        ]
