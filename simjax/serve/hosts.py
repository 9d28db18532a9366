"""Names under which a server answers: a page of another site cannot reach it by a name of its own for this address."""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Collection

_HOST = re.compile(r"(\[[0-9a-f:.%]+\]|[^:\[\]/@\s]*)(:\d*)?", re.IGNORECASE)


def is_known(host: str, names: Collection[str]) -> bool:
    """Tell whether the header `Host` of a request is an address, this machine, or one of the names.

    A browser that was told that `evil.example` is at 127.0.0.1 sends that name.
    """
    matched = _HOST.fullmatch(host.strip())
    if matched is None:
        return False
    name = matched[1].strip("[]").rstrip(".").lower()
    try:
        ipaddress.ip_address(name)
    except ValueError:
        known = {"localhost", socket.gethostname().lower(), *(one.lower() for one in names)}
        return bool(name) and (name in known or name.endswith(".localhost"))
    return True


def is_of_this_machine_alone(address: str) -> bool:
    """Tell whether a bound address is reached from this machine alone."""
    return ipaddress.ip_address(address.partition("%")[0]).is_loopback
