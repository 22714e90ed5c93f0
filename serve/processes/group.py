"""The engine processes of one loaded version: one for each device. They begin and end together."""

import itertools
import logging
import shutil
import tempfile
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

from lensbox.serve.models.control import EngineAddress, Loaded, new_address
from lensbox.serve.models.files import Content
from lensbox.serve.observability.metrics import ServiceCounters
from lensbox.serve.processes import engine_process
from lensbox.serve.processes.forking import fork
from lensbox.serve.processes.lifecycle import Child, described
from lensbox.serve.settings import Settings

_log = logging.getLogger(__name__)

# Seconds without a heartbeat, after the time in which a stuck engine should have exited.
ENGINE_SILENCE = 10.0


class Plan(NamedTuple):
    """The values that all groups of a service share.

    slots: numbers of running engines in the shared metrics. A later engine takes the number of one that has
    ended, with its files: swaps do not add files. temporary: folder for files of engines.
    """

    settings: Settings
    devices: Sequence[str]
    counters: ServiceCounters
    slots: set[int]
    temporary: str


class Group:
    """A group of engine processes over one content.

    number: unique in the service. name: of the model; for a service with --artifact, known once `is_ready`.
    loaded: what each engine has told. failure: why the group cannot start; "" so far.
    """

    def __init__(self, plan: Plan, number: int, name: str, version: str, content: Content) -> None:
        self.number, self.name, self.version, self.content = number, name, version, content
        self.loaded: dict[str, Loaded] = {}
        self.failure = ""
        self._plan = plan
        self._folder = tempfile.mkdtemp(prefix="lensbox-engine-", dir=plan.temporary)
        self.addresses = tuple(new_address(device) for device in plan.devices)
        self.children = [self._child(address) for address in self.addresses]

    @property
    def is_ready(self) -> bool:
        """True once all engines have been ready."""
        return len(self.loaded) == len(self.children)

    def step(self) -> None:
        """Keep the engines alive. Before all are ready, an end is a failure."""
        for child in self.children:
            if self.is_ready or child.pid is None:
                child.keep_alive(self._plan.counters)
                continue
            code = child.exit_code
            child.receive()  # perhaps a better reason
            if code is not None:
                self.failure = self.failure or f"{child.name} ended with {described(code)} while it loaded"

    def end(self) -> None:
        """End all engines and free everything: memory, temporary files, the content."""
        for child in self.children:
            child.end()
            self._plan.counters.forget(child.slot)
            self._plan.slots.discard(int(child.slot.rpartition("-")[2]))
        shutil.rmtree(self._folder, ignore_errors=True)
        self.content.close()

    def _child(self, address: EngineAddress) -> Child:
        slots = self._plan.slots
        number = next(number for number in itertools.count() if number not in slots)
        slots.add(number)
        slot, name = f"engine-{number}", self._engine_name(address.device)

        def launch() -> Any:
            arguments = self._plan.settings, self.name, address, self.content, self._folder
            return fork("lensbox-engine", slot, partial(engine_process.main, *arguments), self.content.file)

        return Child(name, slot, launch, self._take, model=self.name)

    def _engine_name(self, device: str) -> str:
        return f"the engine of {self.name or self.content.path.name} version {self.version} on {device}"

    def _take(self, child: Child, message: "Loaded | str") -> None:
        """Take what an engine tells once: that it is ready, or why it cannot start."""
        if isinstance(message, Loaded):
            child.patience = self._plan.settings.call_limit(message.seconds) + ENGINE_SILENCE
            self.loaded[child.slot] = message
            self.name = self.name or message.name
            child.model = self.name
            child.name = self._engine_name(self.addresses[self.children.index(child)].device)
        elif child.slot in self.loaded:
            _log.error("%s cannot start: %s", child.name, message)
        else:
            self.failure = self.failure or message
