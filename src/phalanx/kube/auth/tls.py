"""TLS settings of a cluster, the SSL contexts for them, and the detection of replaced certificate files."""

from __future__ import annotations

import os
import ssl
import tempfile
from contextlib import suppress
from dataclasses import dataclass

from phalanx.kube.auth.credentials import ClientCertificate
from phalanx.kube.causes import cause_text
from phalanx.kube.errors import ConfigError

__all__ = ["TlsSettings", "certificate_fault"]

# OpenSSL's codes for a certificate without a chain to a trusted authority (openssl-verification-options).
_NOT_SIGNED = frozenset({2, 7, 18, 19, 20, 21})


@dataclass(frozen=True)
class TlsSettings:
    """Settings for the verification of the server, and the client certificate. Bytes are PEM and have priority over
    files.

    Without a certificate authority the system's are used. ``server_name`` replaces the URL's host both in
    SNI and in the verification of the server's certificate.
    """

    authority: bytes | None = None
    authority_file: str | None = None
    certificate: ClientCertificate | None = None
    certificate_file: str | None = None
    key_file: str | None = None
    server_name: str | None = None
    insecure: bool = False
    origin: str = "tls"

    @property
    def configured(self) -> bool:
        """Whether any setting requires TLS (this decides the scheme of a server address without one)."""
        return bool(
            self.authority
            or self.authority_file
            or self.certificate
            or self.certificate_file
            or self.insecure
            or self.server_name
        )

    @property
    def trusted(self) -> str:
        """Name of the authorities that can sign the server's certificate, for messages."""
        if self.authority:
            return f"the certificate authority of {self.origin}"
        if self.authority_file:
            return f"the certificate authority in {self.authority_file}"
        return f"any certificate authority of this system, and {self.origin} names none"

    def context(self, certificate: ClientCertificate | None = None) -> ssl.SSLContext:
        """Return a new SSL context. ``certificate`` (of an exec plugin) replaces the client certificate of the
        settings.

        Raises ConfigError that names the origin and the unloadable part. Reads files, so call it rarely.
        """
        try:
            context = self._verifying()
        except (OSError, ValueError) as error:
            source = f"file {self.authority_file}" if not self.authority else "data"
            raise ConfigError(
                f"{self.origin}: cannot load the certificate authority {source}: {cause_text(error)}"
            ) from error
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        # Verify certificates as kubectl does: any certificate in the authority file is an anchor, root or not.
        # Authorities without the extensions that Python 3.13 requires are in wide use.
        context.verify_flags |= ssl.VerifyFlags.VERIFY_X509_PARTIAL_CHAIN
        context.verify_flags &= ~ssl.VerifyFlags.VERIFY_X509_STRICT
        # No ALPN offer: both transports send one request at a time per connection.
        try:
            self._load_certificate(context, certificate or self.certificate)
        except (OSError, ValueError) as error:
            raise ConfigError(
                f"{self.origin}: cannot load the client certificate or key: {cause_text(error)}"
            ) from error
        return context

    def stamp(self) -> tuple[tuple[str, int, int, int], ...]:
        """Return a stamp that changes when a certificate file is replaced or rewritten; empty if all data is
        inline.

        The kubelet replaces mounted secrets and CAs by switching a symlink, so the inode is part of the value.
        """
        stamps = []
        for path in (
            None if self.authority else self.authority_file,
            None if self.certificate else self.certificate_file,
            None if self.certificate else self.key_file,
        ):
            if path:
                with suppress(OSError):
                    status = os.stat(path)
                    stamps.append((path, status.st_mtime_ns, status.st_size, status.st_ino))
        return tuple(stamps)

    def _verifying(self) -> ssl.SSLContext:
        if self.insecure:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
            return context
        if self.authority:
            return ssl.create_default_context(cadata=self.authority.decode("ascii", "ignore"))
        return ssl.create_default_context(cafile=self.authority_file or None)

    def _load_certificate(self, context: ssl.SSLContext, inline: ClientCertificate | None) -> None:
        if inline is not None:
            # The ssl module loads keys from files only. mkstemp creates the file with mode 0600, and it is
            # deleted before any other code runs.
            descriptor, path = tempfile.mkstemp(prefix="phalanx-", suffix=".pem")
            try:
                with os.fdopen(descriptor, "wb") as file:
                    file.write(inline.key.rstrip() + b"\n" + inline.certificate)
                context.load_cert_chain(path, password=_no_password)
            finally:
                os.unlink(path)
        elif self.certificate_file:
            context.load_cert_chain(self.certificate_file, self.key_file, password=_no_password)


def certificate_fault(error: ssl.SSLCertVerificationError, place: str, trusted: str) -> str:
    """Return a description of a rejected server certificate; `trusted` names the accepted authorities."""
    if error.verify_code in _NOT_SIGNED:
        return f"the certificate of {place} is not signed by {trusted} ({error.verify_message})"
    return f"the certificate of {place} is not accepted: {error.verify_message}"


def _no_password() -> str:
    # Without this callback OpenSSL prompts on the terminal and a daemon hangs.
    raise ValueError("the key is encrypted; give an unencrypted one")
