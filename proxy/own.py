"""This machine's own addresses, by rtnetlink (rtnetlink(7), RTM_GETADDR), and word of when they change."""

import os
import socket
import struct
from collections.abc import Callable
from typing import Final

from policy.errors import Broken
from policy.host import Address, unpack
from policy.limits import NETLINK_BYTES, NETLINK_S
from proxy.loop import IN, Loop, Timer

_RTM_NEWADDR: Final = 20
_RTM_GETADDR: Final = 22
_NLM_F_REQUEST_DUMP: Final = 0x301
_NLM_F_DUMP_INTR: Final = 0x10
_NLMSG_ERROR: Final = 2
_NLMSG_DONE: Final = 3
_IFA_ADDRESS: Final = 1
_IFA_LOCAL: Final = 2
_RTMGRP_ADDRESSES: Final = 0x10 | 0x100
"""RTMGRP_IPV4_IFADDR and RTMGRP_IPV6_IFADDR."""
_HEADER: Final = struct.Struct("=IHHII")
_IFADDRMSG: Final = struct.Struct("=BBBBI")
_ATTRIBUTE: Final = struct.Struct("=HH")
_TRIES_COUNT: Final = 5


def own_addresses() -> frozenset[Address]:
    """Every address of every interface of this network namespace. Raises Broken."""
    try:
        with _open() as netlink:
            netlink.settimeout(NETLINK_S)
            for number in range(1, _TRIES_COUNT + 1):
                addresses, whole = _dump(netlink, number)
                if whole:
                    return addresses
    except OSError as error:
        raise Broken(f"this machine's addresses: netlink says {error.strerror or error}") from error
    raise Broken("this machine's addresses: they changed faster than netlink could list them; try again")


class OwnAddresses:
    """Keeps `changed` told of this machine's addresses: at the start, and whenever one comes or goes."""

    def __init__(self, loop: Loop, changed: Callable[[frozenset[Address]], None]) -> None:
        self._loop = loop
        self._changed = changed
        self._netlink: socket.socket | None = None
        self._again: Timer | None = None

    def start(self) -> None:
        """Watch first and read then, so that no change falls between. Raises Broken."""
        try:
            self._netlink = _open(_RTMGRP_ADDRESSES)
        except OSError as error:
            raise Broken(f"changes of this machine's addresses: netlink says {error.strerror}") from error
        self._netlink.setblocking(False)
        self._changed(own_addresses())
        self._loop.watch(self._netlink.fileno(), IN, self._heard)

    def stop(self) -> None:
        """Give the descriptor back. Harmless to repeat."""
        if self._again is not None:
            self._again.cancel()
            self._again = None
        if self._netlink is not None:
            self._loop.forget(self._netlink.fileno())
            self._netlink.close()
            self._netlink = None

    def fail(self, _error: Exception) -> None:
        """The list could not be read: start afresh soon; the last one stays in force (see `proxy.loop.Fails`)."""
        self.stop()
        self._again = self._loop.call_after(NETLINK_S, self.start)

    def _heard(self, _mask: int) -> None:
        """Throw the messages away, lost ones too (ENOBUFS), and read afresh."""
        netlink = self._netlink
        assert netlink is not None
        try:
            while netlink.recv(NETLINK_BYTES):
                pass
        except OSError:  # nothing more, or some were lost; what is still there wakes us again
            pass
        self._changed(own_addresses())


def _open(groups: int = 0) -> socket.socket:
    netlink = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, socket.NETLINK_ROUTE)
    try:
        netlink.bind((0, groups))
    except OSError:
        netlink.close()
        raise
    return netlink


def _dump(netlink: socket.socket, number: int) -> tuple[frozenset[Address], bool]:
    """One dump; False when the kernel says that it changed under its hands (NLM_F_DUMP_INTR)."""
    request = _IFADDRMSG.pack(socket.AF_UNSPEC, 0, 0, 0, 0)
    netlink.send(_HEADER.pack(_HEADER.size + len(request), _RTM_GETADDR, _NLM_F_REQUEST_DUMP, number, 0) + request)
    found: set[Address] = set()
    whole = True
    while True:
        data = netlink.recv(NETLINK_BYTES)
        at = 0
        while at + _HEADER.size <= len(data):
            length, kind, flags, sequence, _ = _HEADER.unpack_from(data, at)
            if length < _HEADER.size:
                raise OSError("a message without a length")
            body = data[at + _HEADER.size : at + length]
            at += (length + 3) & ~3
            if sequence != number:
                continue
            whole = whole and not flags & _NLM_F_DUMP_INTR
            if kind == _NLMSG_DONE:
                return frozenset(found), whole
            if kind == _NLMSG_ERROR:
                code = -int(struct.unpack_from("=i", body)[0])
                raise OSError(code, os.strerror(code))
            if kind == _RTM_NEWADDR:
                found.update(_addresses(body))


def _addresses(body: bytes) -> list[Address]:
    """Ours is IFA_LOCAL, and IFA_ADDRESS the other end of a point-to-point link; without IFA_LOCAL it is ours."""
    at = _IFADDRMSG.size
    values: dict[int, bytes] = {}
    while at + _ATTRIBUTE.size <= len(body):
        length, kind = _ATTRIBUTE.unpack_from(body, at)
        if length < _ATTRIBUTE.size:
            break
        values[kind] = body[at + _ATTRIBUTE.size : at + length]
        at += (length + 3) & ~3
    packed = values.get(_IFA_LOCAL) or values.get(_IFA_ADDRESS)
    return [unpack(packed)] if packed is not None and len(packed) in {4, 16} else []
