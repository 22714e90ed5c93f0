"""What counts as one client where there is nothing but its address."""

import ipaddress


def network_of(host: str) -> str:
    """An IPv4 address as it is; of an IPv6 address the network, /64, which belongs to one client as a whole.

    What is no address, such as the name that a test client has, stays as it is.
    """
    if ":" not in host:
        return host
    try:
        address = ipaddress.IPv6Address(host)
    except ValueError:
        return host
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.IPv6Network((int(address) >> 64 << 64, 64)))
