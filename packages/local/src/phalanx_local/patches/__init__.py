"""Patches of every kind in the Kubernetes API, and managedFields, which record the manager that owns each field.

All functions are pure and work on decoded JSON; they never change their inputs.
"""

from phalanx_local.patches.apply import server_side_apply
from phalanx_local.patches.errors import ApplyConflict, PatchError
from phalanx_local.patches.json_patch import json_patch, merge_patch
from phalanx_local.patches.lists import ListSchema, builtin_lists, lists_from_schema
from phalanx_local.patches.ownership import track_update
from phalanx_local.patches.strategic import strategic_merge_patch

__all__ = [
    "ApplyConflict",
    "ListSchema",
    "PatchError",
    "builtin_lists",
    "json_patch",
    "lists_from_schema",
    "merge_patch",
    "server_side_apply",
    "strategic_merge_patch",
    "track_update",
]
