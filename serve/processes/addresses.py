"""Where the processes of one service find each other."""

import secrets
from typing import NamedTuple


class EngineAddress(NamedTuple):
    """path: of a Unix socket without a file (an abstract one); key: what both ends must know."""

    path: str
    key: bytes
    device: str


def new_address(device: str) -> EngineAddress:
    """One that nobody else uses or can guess."""
    return EngineAddress(f"\0lensbox-{secrets.token_hex(8)}", secrets.token_bytes(32), device)
