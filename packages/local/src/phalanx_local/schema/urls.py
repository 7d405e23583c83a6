"""URLs as Go's net/url reads them: the ``uri`` format, and what rules take apart."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final
from urllib.parse import parse_qs, quote


@dataclass(frozen=True, slots=True)
class Url:
    """A parsed absolute URL or absolute path; ``host`` includes the port."""

    scheme: str
    host: str
    path: str
    query: str

    @property
    def host_name(self) -> str:
        """The host without brackets and port."""
        if self.host.startswith("["):
            return self.host[1:].partition("]")[0]
        return self.host.partition(":")[0]

    @property
    def port(self) -> str:
        """The port, or ""."""
        return self.host.rpartition("]")[2].partition(":")[2]

    @property
    def escaped_path(self) -> str:
        """The path as it is sent."""
        return self.path if _ENCODED_PATH.fullmatch(self.path) else quote(self.path, safe="$&+,/:;=@%")

    @property
    def values(self) -> dict[str, list[str]]:
        """The values of the query by key; what cannot be read is left out."""
        parts = self.query.split("&")
        whole = "&".join(part for part in parts if ";" not in part and not _BAD_ESCAPE.search(part))
        return parse_qs(whole, keep_blank_values=True)


_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
_BAD_ESCAPE: Final = re.compile(r"%(?![0-9A-Fa-f]{2}).{0,2}")
_HOST: Final = re.compile(r"(?:\[[0-9A-Fa-f:.]+(?:%25[^\]\s]+)?\]|[^\x00-\x20\x7f\[\]\"<>\\^`{|}%:#]*)", re.ASCII)
_ENCODED_PATH: Final = re.compile(r"[A-Za-z0-9._~!$&'()*+,;=:@/%\[\]-]*")


def _refused(text: str, words: str) -> ValueError:
    return ValueError(f'parse "{text}": {words}')


def parse_url(text: str) -> Url:
    """An absolute URL or an absolute path; ValueError (in Go's words) when the text is neither."""
    if any(char < " " or char == "\x7f" for char in text):
        raise _refused(text, "net/url: invalid control character in URL")
    if not text:
        raise _refused(text, "empty url")
    rest, _, fragment = text.partition("#")
    found = _SCHEME.match(rest)
    scheme = found[1].lower() if found is not None else ""
    if rest.startswith(":"):
        raise _refused(text, "missing protocol scheme")
    rest = rest[found.end() :] if found is not None else rest
    rest, _, query = rest.partition("?")
    host, path = "", rest
    if not rest.startswith("/"):
        if not scheme and rest != "*":
            raise _refused(text, "invalid URI for request")
        # An opaque URL (mailto:someone) has neither host nor path.
        return Url(scheme, "", "" if scheme else rest, query)
    if scheme and rest.startswith("//"):
        authority, slash, tail = rest[2:].partition("/")
        host, path = _host(text, authority), slash + tail
    for part in (path, fragment):
        bad = _BAD_ESCAPE.search(part)
        if bad is not None:
            raise _refused(text, f'invalid URL escape "{bad[0]}"')
    return Url(scheme, host, path, query)


def _host(text: str, authority: str) -> str:
    user, _, host = authority.rpartition("@")
    if re.search(r"[^A-Za-z0-9._~!$&'()*+,;=:%@-]", user):
        raise _refused(text, "net/url: invalid userinfo")
    name = _HOST.match(host)
    rest = host[name.end() :] if name is not None else host
    if not re.fullmatch(r"(?::[0-9]*)?", rest):
        if rest.startswith(":"):
            raise _refused(text, f'invalid port "{rest[rest.rfind(":") :]}" after host')
        raise _refused(text, f'invalid character "{rest[0]}" in host name')
    return host
