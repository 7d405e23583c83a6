"""metadata.managedFields of writes; phalanx_local.patches implements the field sets.

Fields are tracked on demand: from the first server-side apply of an object on, or when kubectl writes it. Until
then writes of schedulers and kubelets are not tracked. The real server handles an object without managers in the
same way (its fields belong to the manager before-first-apply).
"""

from __future__ import annotations

from typing import Any

from phalanx_local.errors import apply_conflict, bad_patch
from phalanx_local.objects import Json, metadata, sequence
from phalanx_local.registry.resources import Version
from phalanx_local.strategies.base import Write


def lists_of(version: Version) -> Any:
    """Return the merge rules of a kind's lists: as maps, sets or atomic values."""
    if version.lists is None:
        from phalanx_local.patches import builtin_lists, lists_from_schema

        if version.type.custom and version.openapi is not None:
            version.lists = lists_from_schema(version.openapi)
        else:
            version.lists = builtin_lists(version.type.group, version.type.kind)
    return version.lists


def applied(live: Json | None, body: Json, version: Version, write: Write, force: bool, subresource: str) -> Json:
    """Return the live object after a server-side apply of the body. Raise 409 with one cause per conflicting
    field."""
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
    """Restore the old times in managedFields if nothing else changed, so that an apply without changes writes
    nothing.

    Other writes need no such step: only an apply is merged before defaulting and therefore looks like a change.
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
    """Return the object after a write other than an apply, with updated managedFields."""
    managers = metadata(before).get("managedFields") if before is not None else None
    if metadata(after).get("managedFields") == [{}]:
        metadata(after).pop("managedFields")
        return after
    if not write.track_fields and not managers:
        metadata(after).pop("managedFields", None)
        return after
    from phalanx_local.patches import track_update

    if managers:
        metadata(after)["managedFields"] = managers
    return track_update(
        before,
        after,
        manager=write.manager,
        api_version=version.api_version,
        subresource=subresource,
        now=write.now,
        lists=lists_of(version),
    )
