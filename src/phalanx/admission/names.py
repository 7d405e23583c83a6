"""Validation of Kubernetes names, with the API server's messages."""

from __future__ import annotations

import re

_QUALIFIED = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]", re.ASCII)
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", re.ASCII)
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*", re.ASCII)
_SERVICE = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?", re.ASCII)
_LABEL_LENGTH, _SUBDOMAIN_LENGTH = 63, 253

_NOT_QUALIFIED = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an "
    "alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
_NO_LABEL = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end "
    "with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
_NO_SERVICE = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic "
    "character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation "
    "is '[a-z]([-a-z0-9]*[a-z0-9])?')"
)
_NO_SUBDOMAIN = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start "
    "and end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)


def qualified_name_faults(name: str) -> list[str]:
    """Return why a text is invalid as a label value, or as a pod's hostname with the same length limit."""
    faults = []
    if not name:
        faults.append("name part must be non-empty")
    elif len(name) > _LABEL_LENGTH:
        faults.append(f"name part must be no more than {_LABEL_LENGTH} bytes")
    if not _QUALIFIED.fullmatch(name):
        faults.append(_NOT_QUALIFIED)
    return faults


def label_faults(name: str) -> list[str]:
    """Return why a text is invalid as a DNS label: the name of a task or a container."""
    faults = []
    if len(name) > _LABEL_LENGTH:
        faults.append(f"must be no more than {_LABEL_LENGTH} bytes")
    if not _LABEL.fullmatch(name):
        faults.append(_NO_LABEL)
    return faults


def service_name_faults(name: str) -> list[str]:
    """Return why a text is invalid as the name of a Service, a DNS label that starts with a letter."""
    faults = []
    if len(name) > _LABEL_LENGTH:
        faults.append(f"must be no more than {_LABEL_LENGTH} characters")
    if not _SERVICE.fullmatch(name):
        faults.append(_NO_SERVICE)
    return faults


def subdomain_faults(name: str) -> list[str]:
    """Return why a text is invalid as a DNS subdomain: the name of most objects."""
    faults = []
    if len(name) > _SUBDOMAIN_LENGTH:
        faults.append(f"must be no more than {_SUBDOMAIN_LENGTH} bytes")
    if not _SUBDOMAIN.fullmatch(name):
        faults.append(_NO_SUBDOMAIN)
    return faults
