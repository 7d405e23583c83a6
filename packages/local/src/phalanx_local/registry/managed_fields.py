"""metadata.managedFields around writes; the algebra itself is phalanx_local.patches.

Fields are tracked once someone asks for it: an object has managers from its first server-side apply on, or
when kubectl writes it. Traffic of schedulers and kubelets stays free of it until then; the real server
treats an object without managers likewise (its fields go to the manager before-first-apply).
"""

from __future__ import annotations

from typing import Any

from phalanx_local.errors import apply_conflict, bad_patch
from phalanx_local.objects import Json, metadata, sequence
from phalanx_local.registry.resources import Version
from phalanx_local.strategies.base import Write


def lists_of(version: Version) -> Any:
    """Which lists of a kind are maps, sets or atoms."""
    if version.lists is None:
        from phalanx_local.patches import builtin_lists, lists_from_schema

        if version.type.custom and version.openapi is not None:
            version.lists = lists_from_schema(version.openapi)
        else:
            version.lists = builtin_lists(version.type.group, version.type.kind)
    return version.lists


def applied(live: Json | None, body: Json, version: Version, write: Write, force: bool, subresource: str) -> Json:
    """The live object after a server-side apply. Raises 409 with one cause per conflicting field."""
    from phalanx_local.patches import ApplyConflict, PatchError, server_side_apply

    try:
        return server_side_apply(
            live,
            body,
            manager=write.manager,
            force=force,
            api_version=version.api_version,
            subresource=subresource,
            now=write.now,
            lists=lists_of(version),
        )
    except ApplyConflict as problem:
        raise apply_conflict(problem.message, problem.causes) from None
    except PatchError as problem:
        raise bad_patch(problem.message, problem.code) from None


def keep_times(new: Json, old: Json) -> None:
    """Takes the managers' old times where nothing else is new, so that a write that says nothing changes nothing.

    Only here, because an apply has no defaults yet, and so looks like a change when it is merged.
    """
    managers, before = metadata(new).get("managedFields"), metadata(old).get("managedFields")
    if managers == before or _timeless(managers) != _timeless(before):
        return
    if {**new, "metadata": None} == {**old, "metadata": None} and (
        {**metadata(new), "managedFields": None} == {**metadata(old), "managedFields": None}
    ):
        metadata(new)["managedFields"] = before


def _timeless(managers: Any) -> list[Json]:
    return [{**item, "time": None} for item in sequence(managers)]


def tracked(before: Json | None, after: Json, version: Version, write: Write, subresource: str) -> Json:
    """The object after a write that is not an apply, with its managers brought up to date."""
    held = metadata(before).get("managedFields") if before is not None else None
    if metadata(after).get("managedFields") == [{}]:
        metadata(after).pop("managedFields")
        return after
    if not write.track_fields and not held:
        metadata(after).pop("managedFields", None)
        return after
    from phalanx_local.patches import track_update

    if held:
        metadata(after)["managedFields"] = held
    return track_update(
        before,
        after,
        manager=write.manager,
        api_version=version.api_version,
        subresource=subresource,
        now=write.now,
        lists=lists_of(version),
    )
