"""What-if questions of commands. Viewers of one namespace ask about its objects; answers name no other object."""

from __future__ import annotations

import asyncio

import msgspec
import yaml

from phalanx.dashboard.access import ViewerAccessError
from phalanx.dashboard.commands.lists import viewer_redaction
from phalanx.dashboard.redaction import Redaction
from phalanx.dashboard.scope import Scope
from phalanx.dashboard.watch import ClusterWatch
from phalanx.dashboard.what_if import WhatIfError, WhatIfQuestions
from phalanx.model.text.decoding import quoted
from phalanx.reports.whatif.answer import FreeRoom, WhatIfAnswer
from phalanx.reports.whatif.remote import WhatIfCommand, WhatIfResult
from phalanx.simulation.documents import read_documents
from phalanx.simulation.errors import InputError
from phalanx.views.gang_names import AmbiguousGangError, gangs_named

#: Kinds that a viewer of one namespace can suppose: each is an object of that namespace.
_OWN_KINDS = frozenset({"Pod", "Job", "Deployment", "ReplicaSet", "StatefulSet", "PodGroup"})
# The text of an error can name any object of the cluster.
_ERROR = "the question has no answer: check its names, amounts and times"


async def answer_command(
    questions: WhatIfQuestions, watch: ClusterWatch, scope: Scope, command: WhatIfCommand
) -> WhatIfResult:
    """Return the redacted answer to a question. Raises ViewerAccessError, WhatIfError, ApiError, ConnectionLost."""
    redaction = Redaction(scope)
    _refuse_without_rights(scope, watch, command)
    if not scope.everything:
        command = await _in_namespace(scope.namespace, command)
        _refuse_other_gangs(watch, scope.namespace, command.gang)
    try:
        output = await questions.output(command.options(), command.manifest)
    except WhatIfError as error:
        if error.status != 400 or redaction.idle:
            raise
        raise WhatIfError(400, _ERROR) from error
    if command.free:
        room = msgspec.json.decode(output, type=FreeRoom)
        return WhatIfResult(room=room if redaction.idle else msgspec.structs.replace(room, missing=[]))
    answer = msgspec.json.decode(output, type=WhatIfAnswer)
    return WhatIfResult(answer=redaction.prediction(answer))


def _refuse_without_rights(scope: Scope, watch: ClusterWatch, command: WhatIfCommand) -> None:
    """Raise ViewerAccessError for a question about nodes or a queue that the viewer cannot see, before any of them
    is looked up. A change of a queue needs the right to get it, a question about its free room does not."""
    if command.changes_nodes and not scope.nodes:
        raise ViewerAccessError(403, "changes of nodes need the right to list nodes")
    readable = scope.queues is None or command.queue in scope.queues
    of_room = command.free and viewer_redaction(scope, watch).sees_queue(command.queue)
    if command.queue and not (readable or of_room):
        raise ViewerAccessError(403, f"you lack the right to get queues/{command.queue}")


async def _in_namespace(namespace: str, command: WhatIfCommand) -> WhatIfCommand:
    """Return the question of a viewer of one namespace. Raises ViewerAccessError if it supposes objects of another
    namespace or of the cluster."""
    if command.manifest:
        await asyncio.to_thread(_refuse_foreign_objects, command.manifest, namespace)
    gang = command.gang.removeprefix(f"{namespace}/")
    return msgspec.structs.replace(command, namespace=namespace, gang=f"{namespace}/{gang}" if gang else "")


def _refuse_other_gangs(watch: ClusterWatch, namespace: str, gang: str) -> None:
    """Raise ViewerAccessError if no waiting gang of the namespace has this name (NAMESPACE/NAME, "" for none)."""
    if not gang:
        return
    name = gang.removeprefix(f"{namespace}/")
    try:
        keys = gangs_named(watch.state.gangs, namespace, name)
    except AmbiguousGangError as error:
        raise ViewerAccessError(400, str(error)) from error
    if not keys:
        raise ViewerAccessError(404, f"unknown gang {quoted(name)} in namespace {quoted(namespace)}")
    if not any(watch.state.gangs[key].counts().pending for key in keys):
        raise ViewerAccessError(400, f"gang {quoted(name)} has no pending pods")


def _refuse_foreign_objects(manifest: str, namespace: str) -> None:
    try:
        entries = read_documents(manifest, "-")
    except (InputError, yaml.YAMLError, ValueError, RecursionError) as error:
        raise ViewerAccessError(400, f"invalid manifest: {str(error)[:500]}") from error
    for entry in entries:
        if entry.kind not in _OWN_KINDS:
            raise ViewerAccessError(
                403, f"{entry.kind} {entry.document['metadata']['name']}: only workloads of your namespace"
            )
        if entry.document["metadata"].get("namespace", namespace) != namespace:
            raise ViewerAccessError(403, f"an object of the manifest is not in namespace {namespace}")
