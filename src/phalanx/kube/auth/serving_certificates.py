"""Certificate authorities and serving certificate of a server that the API server calls, as stored in a Secret.

All decisions depend only on the Secret and the time, so replicas that read the same Secret decide the same.
An authority's name has the second of its creation. A new one is published for a while before it signs,
so that the API server trusts it by then; the old one is published until it expires.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

CERTIFICATE, KEY = "tls.crt", "tls.key"
#: Lifetimes in seconds of authorities and serving certificates; they are replaced in the last third.
AUTHORITY_SECONDS: Final = 730 * 86400
SERVING_SECONDS: Final = 90 * 86400
#: Seconds for which a new authority is published before it signs.
PUBLISHED_SECONDS: Final = 86400
# Tolerance for clocks that differ.
_SKEW: Final = timedelta(hours=1)
_AUTHORITY = re.compile(r"ca-([0-9]{1,12})\.crt")

Data = Mapping[str, bytes]


def renewed(data: Data, names: Iterable[str], now: int, owner: str) -> dict[str, bytes] | None:
    """Return the new content of the certificate Secret, None if it needs no change. `names` are DNS names and IPs,
    `owner` is the common name of the certificates.

    Unreadable parts are replaced; names in the present certificate stay, because another replica can use them.
    """
    authorities = _authorities(data, now)
    newest = max(authorities, default=None)
    if newest is None or _remaining(authorities[newest][0], now) * 3 < AUTHORITY_SECONDS:
        authorities[now] = _new_authority(now, owner)
    published = [created for created in authorities if created <= now - PUBLISHED_SECONDS]
    signing = max(published) if published else min(authorities)
    content = {key: value for created, pair in authorities.items() for key, value in _entry(created, pair).items()}
    certificate = _serving(data, now)
    named = _names(certificate) if certificate is not None else set()
    certified = (
        certificate is not None
        and set(names) <= named
        and _remaining(certificate, now) * 3 >= SERVING_SECONDS
        and _signed_by(certificate, authorities[signing][0])
    )
    if certified:
        content |= {key: data[key] for key in (CERTIFICATE, KEY)}
    else:
        content |= _new_serving(authorities[signing], sorted({*names, *named}), now, owner)
    return None if content == dict(data) else content


def bundle(data: Data, now: int) -> bytes:
    """Return the certificate authorities that the API server must trust, as PEM, newest first."""
    authorities = _authorities(data, now)
    return b"".join(_pem(authorities[created][0]) for created in sorted(authorities, reverse=True))


_Pair = tuple[x509.Certificate, ec.EllipticCurvePrivateKey]


def _authorities(data: Data, now: int) -> dict[int, _Pair]:
    """Return the valid certificate authorities by the time of their creation, without those created in the
    future."""
    authorities: dict[int, _Pair] = {}
    for name, content in data.items():
        match = _AUTHORITY.fullmatch(name)
        if match is None or int(match[1]) > now + _SKEW.total_seconds():
            continue
        try:
            certificate = x509.load_pem_x509_certificate(content)
            key = serialization.load_pem_private_key(data[f"ca-{match[1]}.key"], password=None)
        except (ValueError, KeyError, TypeError):
            continue
        if not isinstance(key, ec.EllipticCurvePrivateKey) or key.public_key() != certificate.public_key():
            continue
        if _remaining(certificate, now) > 0:
            authorities[int(match[1])] = (certificate, key)
    return authorities


def _serving(data: Data, now: int) -> x509.Certificate | None:
    try:
        certificate = x509.load_pem_x509_certificate(data[CERTIFICATE])
        key = serialization.load_pem_private_key(data[KEY], password=None)
    except (ValueError, KeyError, TypeError):
        return None
    if not isinstance(key, ec.EllipticCurvePrivateKey) or key.public_key() != certificate.public_key():
        return None
    return certificate if _remaining(certificate, now) > 0 else None


def _remaining(certificate: x509.Certificate, now: int) -> float:
    return certificate.not_valid_after_utc.timestamp() - now


def _signed_by(certificate: x509.Certificate, authority: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(authority)
    except Exception:  # every exception means a mismatch; the library documents no list
        return False
    return True


def _names(certificate: x509.Certificate) -> set[str]:
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return set()
    return {str(name.value) for name in names}


def _new_authority(now: int, owner: str) -> _Pair:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"{owner}-ca-{now}")])
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
    builder = _builder(name, name, key, now, AUTHORITY_SECONDS)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    builder = builder.add_extension(usage, critical=True)
    identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    return builder.add_extension(identifier, critical=False).sign(key, hashes.SHA256()), key


def _new_serving(authority: _Pair, names: list[str], now: int, owner: str) -> dict[str, bytes]:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, owner)])
    builder = _builder(subject, authority[0].subject, key, now, SERVING_SECONDS)
    builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    builder = builder.add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
    builder = builder.add_extension(
        x509.SubjectAlternativeName([_general_name(name) for name in names]), critical=False
    )
    issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority[1].public_key())
    certificate = builder.add_extension(issuer, critical=False).sign(authority[1], hashes.SHA256())
    return {CERTIFICATE: _pem(certificate), KEY: _private(key)}


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, now: int, seconds: int
) -> x509.CertificateBuilder:
    begin = datetime.fromtimestamp(now, UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin - _SKEW)
        .not_valid_after(begin + timedelta(seconds=seconds))
    )


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _entry(created: int, pair: _Pair) -> dict[str, bytes]:
    return {f"ca-{created}.crt": _pem(pair[0]), f"ca-{created}.key": _private(pair[1])}


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _private(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
