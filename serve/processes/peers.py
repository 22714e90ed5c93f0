"""The front ends of one service, as one of them sees the others."""

from collections.abc import Sequence

from lensbox.serve.engine.errors import NotReadyError
from lensbox.serve.processes.pulse import Pulse


class Peers:
    """They accept connections of one socket: whoever asks one of them may come to another next.

    pulses: one a front end. number: which of them this process is.
    """

    def __init__(self, pulses: Sequence[Pulse], number: int) -> None:
        self._own = pulses[number]
        self._others = [pulse for index, pulse in enumerate(pulses) if index != number]

    def beat(self, is_ready: bool) -> None:
        """Says that this one is alive, and whether it can take images. For ten times a second."""
        self._own.beat(is_ready)

    def check_ready(self) -> None:
        """Raises NotReadyError while another accepts requests that it cannot answer yet."""
        if any(pulse.waits for pulse in self._others):
            raise NotReadyError("another front end cannot take images yet")
