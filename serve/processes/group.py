"""The engine processes of one loaded version: one for each device. They begin and end together."""

import itertools
import logging
import shutil
import tempfile
from collections.abc import Sequence
from typing import Any, NamedTuple

from lensbox.serve.models.control import EngineAddress, Loaded, Need, new_address
from lensbox.serve.models.files import Content, Stamp
from lensbox.serve.observability.metrics import ServiceCounters
from lensbox.serve.processes.child import engine_main
from lensbox.serve.processes.lifecycle import Child, described
from lensbox.serve.settings import Settings

_log = logging.getLogger(__name__)

# Seconds without a heartbeat, after the time in which a stuck engine should have exited.
ENGINE_SILENCE = 10.0


class Plan(NamedTuple):
    """The values that all groups of a service share.

    slots: numbers of running engines in the shared metrics. A later engine takes the number of one that has
    ended, with its files: swaps do not add files.
    """

    settings: Settings
    devices: Sequence[str]
    counters: ServiceCounters
    slots: set[int]


class Group:
    """A group of engine processes over one content.

    number: unique in the service. name: of the model; for a service with --artifact, known once `is_ready`.
    need: what the version that serves takes, if this version has to fit beside it. loaded: what each engine
    has told. failure: why the group cannot start; "" so far. change: stamp of the changed file at
    the last look; empty without a change.
    """

    def __init__(
        self, plan: Plan, number: int, name: str, version: str, content: Content, need: Need | None
    ) -> None:
        self.number, self.name, self.version, self.content = number, name, version, content
        self.loaded: dict[str, Loaded] = {}
        self.failure = ""
        self.change: Stamp = ()
        self.is_paused = False
        self._plan = plan
        self._need = need
        self._folder = tempfile.mkdtemp(prefix="lensbox-engine-")
        self.addresses = tuple(new_address(device) for device in plan.devices)
        self.children = [self._child(address) for address in self.addresses]

    @property
    def is_ready(self) -> bool:
        """True once all engines have been ready."""
        return len(self.loaded) == len(self.children)

    @property
    def need(self) -> Need:
        """The memory of all engines on the host, and of the largest engine on its device."""
        needs = [loaded.need for loaded in self.loaded.values()]
        return Need(sum(need.host for need in needs), max(need.device for need in needs))

    def step(self) -> None:
        """Keep the engines alive. Before all are ready, an end is a failure."""
        for child in self.children if not self.is_paused else ():
            if self.is_ready or child.process is None:
                child.keep_alive(self._plan.counters)
                continue
            code = child.exit_code
            child.receive()  # perhaps a better reason
            if code is not None:
                self.failure = self.failure or f"{child.name} ended with {described(code)} while it loaded"

    def pause(self) -> None:
        """End all engines. They begin again after `is_paused = False`, over the same content."""
        self.is_paused = True
        for child in self.children:
            child.end()
            self._plan.counters.forget(child.slot)

    def end(self) -> None:
        """End all engines and free everything: memory, temporary files, the content."""
        self.pause()
        for child in self.children:
            self._plan.slots.discard(int(child.slot.rpartition("-")[2]))
        shutil.rmtree(self._folder, ignore_errors=True)
        self.content.close()

    def _child(self, address: EngineAddress) -> Child:
        plan = self._plan
        number = next(number for number in itertools.count() if number not in plan.slots)
        plan.slots.add(number)

        def arguments() -> tuple[Any, ...]:
            need = None if self.is_ready else self._need  # a restarted engine fits
            return plan.settings, address, self.content, need, self._folder

        name = f"the engine on {address.device}"
        return Child(name, f"engine-{number}", engine_main, arguments, self._take)

    def _take(self, child: Child, message: "Loaded | str") -> None:
        """Take what an engine tells once: that it is ready, or why it cannot start."""
        if isinstance(message, Loaded):
            child.patience = self._plan.settings.call_limit(message.seconds) + ENGINE_SILENCE
            self.loaded[child.slot] = message
            self.name = self.name or message.name
        elif child.slot in self.loaded:
            _log.error("%s cannot start: %s", child.name, message)
        else:
            self.failure = self.failure or message
