"""The hosts that a tape leaves alone: what is said to them is neither recorded nor replayed, and no error."""

from __future__ import annotations

import socket
from collections.abc import Iterable
from contextlib import suppress
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from urllib.parse import urlsplit

from stream_cassette.errors import TapeError

_Address = IPv4Address | IPv6Address

# https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/instancedata-data-retrieval.html
_AWS = IPv6Network("fd00:ec2::/32")


class Hosts:
    """`names` are `db.internal`, `127.0.0.1:5432`, `[::1]:80` or a whole URL; `*.internal` is every host below. `loopback` allows this machine.

    Raises `TapeError` for a name that is none.
    """

    def __init__(self, names: Iterable[str] = (), *, loopback: bool = False) -> None:
        self._loopback = loopback
        self._allowed = tuple(_split(name) for name in names)
        self._resolved: dict[str, frozenset[str]] = {}

    def also(self, name: str) -> Hosts:
        """These and one more."""
        more = Hosts([name], loopback=self._loopback)
        more._allowed += self._allowed
        return more

    def allow(self, host: str, port: int | None) -> bool:
        """Whether `host`, a name or an address as a URL has it, is left alone."""
        wanted = _plain(host)
        if self._loopback and is_loopback(wanted):
            return True
        return any(_below(wanted, name) and at in (None, port) for name, at in self._allowed)

    def allow_name(self, host: str) -> bool:
        """Whether the address of `host` may be looked up, for whatever port."""
        return any(_below(_plain(host), name) for name, _ in self._allowed)

    def allow_address(self, address: str, port: int) -> bool:
        """As `allow`, of an address that a socket connects to: it may be that of an allowed name."""
        if self.allow(address, port):
            return True
        wanted = _plain(address)
        names = [
            name for name, at in self._allowed if at in (None, port) and _address(name) is None and name[:2] != "*."
        ]
        return any(wanted in self._addresses(name, wanted) for name in names)

    def _addresses(self, name: str, wanted: str) -> frozenset[str]:
        """What `name` resolves to; asked again where `wanted` is not among it, because names move."""
        if wanted not in self._resolved.get(name, frozenset()):
            with suppress(OSError):
                found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
                self._resolved[name] = frozenset(_plain(str(each[4][0])) for each in found)
        return self._resolved.get(name, frozenset())


def is_loopback(host: str) -> bool:
    """Whether `host` is this machine by its own name or address."""
    address = _address(host)
    if address is None:
        return host == "localhost" or host.endswith(".localhost")
    return address.is_loopback


def is_link_local(host: str) -> bool:
    """Whether `host` is the address at which a machine in the cloud is told who it is, credentials and all."""
    address = _address(_plain(host))
    return address is not None and (address.is_link_local or address in _AWS)


def is_address(host: str) -> bool:
    """Whether `host` is an address, which nobody has to look up."""
    return _address(_plain(host)) is not None


@lru_cache(maxsize=256)
def _address(host: str) -> _Address | None:
    try:
        return ip_address(host)
    except ValueError:
        return None


@lru_cache(maxsize=256)
def _plain(host: str) -> str:
    """One spelling of one host: lower case, no brackets, no zone, no final dot, IPv4 in IPv6 as IPv4."""
    text = host.lower().strip("[]").partition("%")[0].removesuffix(".")
    address = _address(text)
    if isinstance(address, IPv6Address) and address.ipv4_mapped:
        return str(address.ipv4_mapped)
    return text if address is None else str(address)


def _split(name: str) -> tuple[str, int | None]:
    if is_address(name):
        return _plain(name), None
    with suppress(ValueError):  # of a port that is no number, or a bracket that does not close
        parts = urlsplit(name if "//" in name else f"//{name}")
        if parts.hostname:
            return _plain(parts.hostname), parts.port
    raise TapeError(
        f"{name!r} is no host", where="allow_hosts", mend="write allow_hosts=['db.internal', '127.0.0.1:5432']"
    )


def _below(host: str, name: str) -> bool:
    return host.endswith(name[1:]) if name.startswith("*.") else host == name
