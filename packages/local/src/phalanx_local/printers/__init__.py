"""Columns and rows of `kubectl get` for each kind, like those of kube-apiserver."""

from __future__ import annotations

from phalanx_local.printers.base import Printer
from phalanx_local.printers.catalog import built_in_printer
from phalanx_local.printers.custom import custom_printer
from phalanx_local.registry.resources import Version

__all__ = ["Printer", "printer_of"]


def printer_of(version: Version) -> Printer:
    """Return the `kubectl get` printer of a resource version; every kind has at least the columns name and age."""
    if version.columns is not None:
        return custom_printer(version.columns)
    return built_in_printer(version)
