"""Command `phalanx nodes`: node pools with free resources, and the reasons of unusable nodes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

import click
import msgspec

from phalanx.cli.connection import lease_namespace_option, policy_option
from phalanx.cli.invocation import Invocation, pass_invocation
from phalanx.cli.listing.options import ListArguments, list_options, parse_requirements
from phalanx.cli.server.options import server_options
from phalanx.cli.server.rights import by_rights
from phalanx.model.text.decoding import quoted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from phalanx.cli.listing.table import Column
    from phalanx.cli.server.requests import Server
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


@click.command("nodes", short_help="List node pools with free resources and the reasons of unusable nodes.")
@click.option("-s", "--summarize", is_flag=True, help="Print one line per pool: allocated/idle/other/total.")
@click.option("-N", "--node-oriented", is_flag=True, help="Print one line per node.")
@click.option(
    "-R",
    "--list-reasons",
    is_flag=True,
    help="Print the reasons of nodes that are unusable (fully or partly), with their age.",
)
@click.option("-p", "--pool", "pools", multiple=True, metavar="POOL", help="Only nodes in this pool; repeatable.")
@click.option(
    "-t",
    "--state",
    "states",
    multiple=True,
    metavar="STATE",
    help="Only nodes in these states, such as idle,drain; repeatable.",
)
@click.option(
    "--pool-label",
    default="",
    metavar="KEY",
    help="Node label with the pool name. Default: volcano.sh/nodegroup-name, else the label of the cloud or "
    "autoscaler.",
)
@pass_invocation(
    NodesArguments, list_options(namespaced=False), server_options, policy_option, lease_namespace_option
)
def nodes(invocation: Invocation, arguments: NodesArguments) -> None:
    """List nodes by pool and state, like sinfo.

    STATE is idle, mixed, alloc (no free GPU, or no free CPU on nodes without GPUs), drain (cordoned, with
    pods), drained or down (not ready). Pods of DaemonSets and static pods do not count. FREE is the total of
    the pool, BIGGEST-FREE the node with the most free resources. The pool comes from the label
    volcano.sh/nodegroup-name, or from the label of the cloud or autoscaler.

    \b
    phalanx nodes
    phalanx nodes -N -t idle,mixed --sort-by -gpu
    phalanx nodes -R
    """
    from phalanx.reports.nodes import entries as groupings

    # The API server evaluates the selector; parsing it first reports a mistake without a request.
    parse_requirements(arguments.selector)
    if arguments.summarize + arguments.node_oriented + arguments.list_reasons > 1:
        raise click.UsageError("-s, -N and -R exclude each other")
    question = _NodeQuestion(invocation, arguments)
    from phalanx.cli.nodes import node_columns

    if arguments.summarize:
        question.show(node_columns.SUMMARIES, lambda entry: entry.pool, groupings.by_pool)
    elif arguments.node_oriented:
        question.show(node_columns.NODES, lambda entry: f"node/{entry.name}", list)
    elif arguments.list_reasons:
        question.show(node_columns.REASONS, lambda entry: entry.reason, groupings.by_reason)
    else:
        question.show(node_columns.GROUPS, lambda entry: f"{entry.pool}/{entry.state}", groupings.by_state)


def _states(texts: tuple[str, ...]) -> set[str]:
    """Return the node states that --state names, in lower case. Raises click.UsageError for an unknown state."""
    from phalanx.reports.nodes.entries import NodeState

    known = [str(state) for state in NodeState]
    words = {word.lower() for text in texts for word in text.split(",") if word}
    for word in sorted(words):
        if word not in known:
            raise click.UsageError(f"unknown --state {quoted(word)}; expected one of {', '.join(known)}")
    return words


class _NodeQuestion:
    """Query for nodes that match the command's arguments; it reads the cluster again for each refresh."""

    def __init__(self, invocation: Invocation, arguments: NodesArguments) -> None:
        self._invocation = invocation
        self._arguments = arguments
        self._pools = set(arguments.pools)
        self._states = _states(arguments.states)
        # Only label names are read from the policy, so any scheduler name will do.
        self._settings = replace(invocation, scheduler_names=("phalanx",)).list_settings

    def show(
        self,
        columns: Sequence[Column[E]],
        name: Callable[[E], str],
        arrange: Callable[[list[NodeEntry]], list[E]],
    ) -> None:
        """Print the entries (nodes or pools) that `arrange` makes of the nodes; `name` returns the unique name of
        an entry."""
        from phalanx.cli.listing.listing import Found, Listing, show
        from phalanx.cli.nodes.node_columns import document

        async def read(client: KubeClient) -> Found[E]:
            return Found(arrange(await self._read(client)))

        # A removed node needs no row of its own: the row of its pool changes.
        listing = Listing(columns=columns, key=name, name=name, document=document)
        show(self._invocation, listing, read, self._arguments)

    async def _read(self, client: KubeClient) -> list[NodeEntry]:
        all_nodes = await by_rights(self._invocation, self._read_all, self._asked(client))(client)
        return [
            node
            for node in all_nodes
            if (not self._pools or node.pool in self._pools) and (not self._states or node.state in self._states)
        ]

    def _asked(self, client: KubeClient) -> Callable[[Server], Awaitable[list[NodeEntry]]]:
        """Return the question to the server. Without the right to list nodes it answers without their names."""
        arguments = self._arguments

        async def ask(server: Server) -> list[NodeEntry]:
            from phalanx.reports.nodes.entries import NodesAnswer

            question = {
                "own": client.namespace,
                "pool-label": arguments.pool_label,
                "selector": arguments.selector,
            }
            answer = await server.get("commands/nodes", NodesAnswer, question)
            if not answer.named and (arguments.node_oriented or arguments.list_reasons):
                raise click.ClickException(
                    "-N and -R need the right to list nodes; `phalanx nodes` and -s show the free room by pool"
                )
            return answer.nodes

        return ask

    async def _read_all(self, client: KubeClient) -> list[NodeEntry]:
        from phalanx.cli.listing.progress import Progress
        from phalanx.reports.nodes.node_list import read_nodes
        from phalanx.reports.stored_history import read_backoffs

        settings = await self._settings(client)
        arguments, invocation = self._arguments, self._invocation
        backoffs = await read_backoffs(client, invocation.lease_namespace, invocation.scheduler_names)
        with Progress() as progress:
            return await read_nodes(
                client,
                arguments.selector,
                arguments.pool_label,
                settings.dialects,
                progress.advanced,
                backoffs.entries,
            )
