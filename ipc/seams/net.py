"""The network seam: what counts as this machine. Sockets are opened by the rooms that own them."""

import ipaddress


def is_loopback(host: str) -> bool:
    """Whether `host` (a name or an address, IPv6 with or without brackets) is this machine.

    Names other than `localhost` are not looked up: a resolver's answer is no proof.
    """
    name = host.removeprefix("[").removesuffix("]").rstrip(".").lower()
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
