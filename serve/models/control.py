"""The messages between the supervisor and its processes, each a record through one pipe.

This module does not import torch, and the supervisor unpickles nothing else.

The supervisor sends a `Table` at each change, and a `Result` for each `Order`. A front end sends a `Report`
at each change of what it uses, and each `BEAT` seconds; an engine that is ready sends None then. Tables and
reports are whole states, so a front end that starts needs only the latest table, which is its argument.
"""

import secrets
from typing import Any, NamedTuple

BEAT = 0.5  # seconds between heartbeats


class EngineAddress(NamedTuple):
    """path: name of an abstract Unix socket. key: shared secret of both ends. device: the engine's device."""

    path: str
    key: bytes
    device: str


def new_address(device: str) -> EngineAddress:
    """Return a random address."""
    return EngineAddress(f"\0lensbox-{secrets.token_hex(8)}", secrets.token_bytes(32), device)


class Row(NamedTuple):
    """A model. group: number of the engine processes that serve; None if there are none, for a `reason`.

    is_wanted: False for a model that was unloaded.
    """

    name: str
    version: str
    group: int | None
    addresses: tuple[EngineAddress, ...]
    reason: str
    is_wanted: bool


class Table(NamedTuple):
    """All models, the default model first. Later tables have higher numbers.

    is_ready: True once all models have been loaded, and all front ends have given them requests.
    """

    number: int
    rows: tuple[Row, ...]
    is_ready: bool = False


class Report(NamedTuple):
    """The groups that a front end uses after a table, and those among them that get its new requests."""

    number: int
    serving: frozenset[int]
    used: frozenset[int]


class Order(NamedTuple):
    """A request to load, to unload, or for the index. version: None for the newest."""

    ticket: int
    action: str
    name: str = ""
    version: int | None = None


class Result(NamedTuple):
    """The end of an order. failure: "" after a success. content: model and version, or the index."""

    ticket: int
    failure: str
    content: Any = None


class Loaded(NamedTuple):
    """The message of an engine that is ready. name: of the model. seconds: duration of the load."""

    name: str
    seconds: float
