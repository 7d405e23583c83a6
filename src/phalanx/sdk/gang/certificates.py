"""Certificates of one gang, signed by an authority of its own whose key is dropped at once."""

from __future__ import annotations

import datetime
import os
import ssl
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.x509 import Certificate

#: Name in the hub's certificate, verified by clients and workers.
HUB_NAME = "hub.gang.phalanx.dev"
CLIENT, WORKER, HUB = "client", "worker", "hub"
AUTHORITY_FILE = "authority.crt"
_LIFETIME = datetime.timedelta(days=365)
# Clocks of client and nodes differ.
_EARLIER = datetime.timedelta(hours=1)


class GangKeys:
    """Certificates and keys of a gang in PEM: of the authority (no key), the hub, the workers and the client."""

    def __init__(self, files: dict[str, bytes]) -> None:
        self.files = files

    @property
    def of_members(self) -> dict[str, bytes]:
        """Files for the pods of the gang; the client's key is not among them."""
        return {name: content for name, content in self.files.items() if not name.startswith(CLIENT)}


def make_keys(*, between_workers: bool = False) -> GangKeys:
    """Make the authority of a gang and one certificate per role; with `between_workers` hub and workers accept
    connections and open them."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

    now = datetime.datetime.now(datetime.UTC)
    authority_key = ec.generate_private_key(ec.SECP256R1())
    authority_name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"gang {os.urandom(8).hex()}")])

    def certificate(role: str, key: EllipticCurvePrivateKey) -> Certificate:
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, role)]) if role else authority_name
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(authority_name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - _EARLIER)
            .not_valid_after(now + _LIFETIME)
            .add_extension(x509.BasicConstraints(ca=not role, path_length=0 if not role else None), critical=True)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key()), critical=False
            )
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        )
        if role:
            both = between_workers and role != CLIENT
            usages = [ExtendedKeyUsageOID.SERVER_AUTH] if both or role == HUB else []
            usages += [ExtendedKeyUsageOID.CLIENT_AUTH] if both or role != HUB else []
            builder = builder.add_extension(x509.ExtendedKeyUsage(usages), critical=True)
        else:
            builder = builder.add_extension(
                x509.KeyUsage(False, False, False, False, False, True, True, False, False), critical=True
            )
        if role == HUB:
            builder = builder.add_extension(x509.SubjectAlternativeName([x509.DNSName(HUB_NAME)]), critical=False)
        return builder.sign(authority_key, hashes.SHA256())

    files = {AUTHORITY_FILE: certificate("", authority_key).public_bytes(serialization.Encoding.PEM)}
    for role in (HUB, WORKER, CLIENT):
        key = ec.generate_private_key(ec.SECP256R1())
        files[f"{role}.crt"] = certificate(role, key).public_bytes(serialization.Encoding.PEM)
        files[f"{role}.key"] = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    return GangKeys(files)


def context_of(directory: Path, role: str) -> ssl.SSLContext:
    """Return the TLS settings of a role with the files of a directory: both sides must have certificates of this
    gang. Raises OSError and ssl.SSLError for missing or invalid files."""
    side = ssl.PROTOCOL_TLS_SERVER if role == HUB else ssl.PROTOCOL_TLS_CLIENT
    context = ssl.SSLContext(side)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    # Only this authority is trusted; those of the system are not loaded.
    context.load_verify_locations(directory / AUTHORITY_FILE)
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_cert_chain(directory / f"{role}.crt", directory / f"{role}.key")
    return context


def client_context(keys: GangKeys) -> ssl.SSLContext:
    """Return the TLS settings of the client. Its key is on disk only while it is read, readable by its owner."""
    with tempfile.TemporaryDirectory(prefix="phalanx-gang-") as folder:
        directory = Path(folder)
        for name in (AUTHORITY_FILE, f"{CLIENT}.crt", f"{CLIENT}.key"):
            descriptor = os.open(directory / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(keys.files[name])
        return context_of(directory, CLIENT)


def role_of(peer: ssl.SSLObject | ssl.SSLSocket) -> str:
    """Return the role in the verified certificate of a peer; "" without one."""
    certificate: Any = peer.getpeercert() or {}
    names = [value for part in certificate.get("subject", ()) for key, value in part if key == "commonName"]
    return str(names[0]) if names else ""
