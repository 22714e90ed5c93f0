"""The listening socket, bound before the model is loaded."""

import socket


def listen(host: str, port: int) -> socket.socket:
    """Return a bound socket. "::" takes IPv4, too. Raises OSError, for example for a port in use."""
    family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
    dual = family == socket.AF_INET6 and host in ("::", "") and socket.has_dualstack_ipv6()
    bound = socket.create_server((host, port), family=family, dualstack_ipv6=dual)
    # asyncio sets TCP_NODELAY only on connections of a listener with this protocol number, which
    # create_server does not set. Without TCP_NODELAY the body of an answer waits 40 ms for the
    # acknowledgement of its head.
    return socket.socket(bound.family, bound.type, socket.IPPROTO_TCP, bound.detach())


def url_of(listener: socket.socket, scheme: str = "http") -> str:
    """Return the address of a bound socket as a URL."""
    host, port = listener.getsockname()[:2]
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"
