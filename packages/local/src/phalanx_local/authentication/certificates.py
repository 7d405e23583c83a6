"""Certificate authority, and the certificates that it signs."""

from __future__ import annotations

import ipaddress
import ssl
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_VALID_DAYS = 3650


class KeyPair(NamedTuple):
    """Certificate and its private key, both in PEM."""

    certificate: bytes
    key: bytes


class Authority:
    """Self-signed CA: new with a common `name`, or restored from `kept`. Private keys are only in memory, except in
    returned pairs.

    Raises ValueError for an invalid `kept` pair.
    """

    def __init__(self, kept: KeyPair | None = None, name: str = "phalanx-apiserver-ca") -> None:
        if kept is not None:
            key = serialization.load_pem_private_key(kept.key, password=None)
            if not isinstance(key, ec.EllipticCurvePrivateKey):
                raise ValueError("the key of the certificate authority is not an elliptic curve key")
            self._key = key
            self._certificate = x509.load_pem_x509_certificate(kept.certificate)
            self._name = self._certificate.subject
            return
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        builder = self._builder(self._name, self._key.public_key())
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        usage = x509.KeyUsage(
            digital_signature=True,
            content_commitment=False,
            key_encipherment=False,
            data_encipherment=False,
            key_agreement=False,
            key_cert_sign=True,
            crl_sign=True,
            encipher_only=False,
            decipher_only=False,
        )
        builder = builder.add_extension(usage, critical=True)
        key_id = x509.SubjectKeyIdentifier.from_public_key(self._key.public_key())
        self._certificate = builder.add_extension(key_id, critical=False).sign(self._key, hashes.SHA256())

    @property
    def certificate(self) -> bytes:
        """CA certificate, PEM."""
        return self._certificate.public_bytes(serialization.Encoding.PEM)

    @property
    def pair(self) -> KeyPair:
        """Key pair of the CA, to store it."""
        return KeyPair(self.certificate, _private(self._key))

    def server_pair(self, host: str) -> KeyPair:
        """Return a server certificate for loopback, `host` and the names by which pods call the API server."""
        names: list[x509.GeneralName] = [
            x509.DNSName(name)
            for name in (
                "localhost",
                "kubernetes",
                "kubernetes.default",
                "kubernetes.default.svc",
                "kubernetes.default.svc.cluster.local",
            )
        ]
        addresses = {"127.0.0.1", "::1", "10.96.0.1"}
        try:
            addresses.add(str(ipaddress.ip_address(host)))
        except ValueError:
            names.append(x509.DNSName(host))
        names.extend(x509.IPAddress(ipaddress.ip_address(item)) for item in sorted(addresses))
        return self._pair("phalanx-apiserver", (), names, ExtendedKeyUsageOID.SERVER_AUTH)

    def client_pair(self, user: str, groups: tuple[str, ...] = ()) -> KeyPair:
        """Return a client certificate: the user is its common name, the groups are its organizations."""
        return self._pair(user, groups, [], ExtendedKeyUsageOID.CLIENT_AUTH)

    def server_context(self, host: str) -> ssl.SSLContext:
        """Return the server's TLS context with the certificate of `server_pair`; it accepts client certificates of
        this CA."""
        pair = self.server_pair(host)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(["http/1.1"])
        load_pair(context, pair)
        context.load_verify_locations(cadata=self.certificate.decode())
        context.verify_mode = ssl.CERT_OPTIONAL
        return context

    def kubelet_client_context(self) -> ssl.SSLContext:
        """Return the TLS context for requests to kubelets, with a certificate of the API server.

        The certificates of kubelets are self-made, so they are not verified, as in kube-apiserver without
        --kubelet-certificate-authority.
        """
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        load_pair(context, self.client_pair("kube-apiserver-kubelet-client", ("system:masters",)))
        return context

    def _pair(
        self,
        name: str,
        groups: tuple[str, ...],
        alternatives: list[x509.GeneralName],
        usage: x509.ObjectIdentifier,
    ) -> KeyPair:
        key = ec.generate_private_key(ec.SECP256R1())
        attributes = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
        subject = x509.Name([*attributes, x509.NameAttribute(NameOID.COMMON_NAME, name)])
        builder = self._builder(subject, key.public_key())
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        builder = builder.add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        builder = builder.add_extension(issuer, critical=False)
        if alternatives:
            builder = builder.add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        certificate = builder.sign(self._key, hashes.SHA256())
        return KeyPair(
            certificate.public_bytes(serialization.Encoding.PEM),
            _private(key),
        )

    def _builder(self, subject: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
        # Clients check validity with the machine's clock, whatever clock the server uses; one day of slack for
        # skew.
        now = datetime.now(UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=1))
            .not_valid_after(now + timedelta(days=_VALID_DAYS))
        )


def load_pair(context: ssl.SSLContext, pair: KeyPair) -> None:
    """Let a TLS context present a certificate."""
    with tempfile.NamedTemporaryFile(prefix="phalanx-", suffix=".pem") as file:  # created with mode 0600
        file.write(pair.certificate + pair.key)
        file.flush()
        context.load_cert_chain(Path(file.name))


def _private(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
