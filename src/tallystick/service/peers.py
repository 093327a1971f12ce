"""Which addresses count as one peer."""

from __future__ import annotations

import ipaddress

# The least that a site is given. Its holder has every address of it.
_PREFIX = 64


def peer_of(address: str) -> str:
    """The peer at `address`: an IPv4 address itself, of an IPv6 address its /64 prefix.

    An IPv4 address written as an IPv6 one is the IPv4 address. What is no address is a peer by its
    name.
    """
    if ":" not in address:
        return address
    try:
        found = ipaddress.IPv6Address(address.partition("%")[0])
    except ValueError:
        return address
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(ipaddress.IPv6Network((int(found), _PREFIX), strict=False))
