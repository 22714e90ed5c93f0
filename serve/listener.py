"""The socket that the service listens on."""

import socket


def listen(host: str, port: int) -> socket.socket:
    """A bound socket. Bound before the model is loaded, so that a port in use is reported at once."""
    family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
    bound = socket.create_server((host, port), family=family)
    # asyncio sets TCP_NODELAY on connections of a listener that says it speaks TCP; create_server leaves that
    # open. Without the option the body of an answer waits until the client acknowledges its head: 40 ms.
    return socket.socket(bound.family, bound.type, socket.IPPROTO_TCP, bound.detach())


def url_of(listener: socket.socket, scheme: str = "http") -> str:
    """The address of a bound socket as a URL."""
    host, port = listener.getsockname()[:2]
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"
