"""TLS settings of Dask with the certificates of one gang."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from phalanx.sdk.gang.certificates import AUTHORITY_FILE, CLIENT, HUB, WORKER

if TYPE_CHECKING:
    from distributed import Security

    from phalanx.sdk.gang.certificates import GangKeys


def member_security(directory: Path) -> Security:
    """Return the settings of scheduler and workers, with the files of a directory."""
    from distributed import Security

    files: dict[str, Any] = {"tls_ca_file": str(directory / AUTHORITY_FILE)}
    for role, name in ((HUB, "scheduler"), (WORKER, "worker"), (WORKER, "client")):
        files |= {
            f"tls_{name}_cert": str(directory / f"{role}.crt"),
            f"tls_{name}_key": str(directory / f"{role}.key"),
        }
    return Security(require_encryption=True, **files)


def client_security(keys: GangKeys) -> Security:
    """Return the settings of the client; its key stays in memory."""
    from distributed import Security

    return Security(
        require_encryption=True,
        tls_ca_file=keys.files[AUTHORITY_FILE].decode(),
        tls_client_cert=keys.files[f"{CLIENT}.crt"].decode(),
        tls_client_key=keys.files[f"{CLIENT}.key"].decode(),
    )
