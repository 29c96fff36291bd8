"""This machine's own addresses, by rtnetlink (rtnetlink(7), RTM_GETADDR), and word of when they change."""

import os
import socket
import struct
from typing import Final

from policy.errors import Broken
from policy.host import Address, unpack
from policy.limits import NETLINK_BYTES, NETLINK_S

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


class Watcher:
    """Readable (`fileno`) whenever an address came or went in this network namespace."""

    def __init__(self) -> None:
        try:
            self._netlink = _open(_RTMGRP_ADDRESSES)
        except OSError as error:
            raise Broken(f"changes of this machine's addresses: netlink says {error.strerror}") from error
        self._netlink.setblocking(False)

    def fileno(self) -> int:
        """The descriptor to watch for input."""
        return self._netlink.fileno()

    def drain(self) -> None:
        """Throw the messages away, lost ones too: whoever watches reads `own_addresses` afresh."""
        while True:
            try:
                self._netlink.recv(NETLINK_BYTES)
            except BlockingIOError:
                return
            except OSError:
                continue  # ENOBUFS: messages were lost, which is one more reason to read afresh

    def close(self) -> None:
        """Give the descriptor back."""
        self._netlink.close()


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
