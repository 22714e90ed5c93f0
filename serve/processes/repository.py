"""The supervisor's models: which versions serve, and how one takes over from another.

A swap is a generator, which the supervisor's loop resumes until it ends: read the file, start the new
version's engines, tell the front ends, wait until they have moved, wait until the old version is out of use,
end its engines. Whatever fails before the front ends are told changes nothing.
"""

import itertools
import logging
import time
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from lensbox.common.errors import LensboxError
from lensbox.serve.errors import StartupError
from lensbox.serve.models.control import Order, Report, Result
from lensbox.serve.models.files import Catalogue, Stamp, read_content
from lensbox.serve.processes.group import Group, Plan
from lensbox.serve.processes.lifecycle import Child
from lensbox.serve.processes.state import LOADING, UNLOADED, Followers, ServedModel, Steps

_log = logging.getLogger(__name__)

_LOOK = 2.0  # seconds between looks at the files

Returned = TypeVar("Returned")
Done = Callable[[str, Any], None]


class Repository:
    """All models of a service, the default model first. Only the supervisor's loop calls it.

    is_ready: see `Table`.
    """

    def __init__(self, catalogue: Catalogue, plan: Plan) -> None:
        self.front_ends = Followers()
        self.is_ready = False
        self._catalogue = catalogue
        self._plan = plan
        self._in_place = plan.settings.swap == "in-place"
        self._reader = ThreadPoolExecutor(1, thread_name_prefix="lensbox-reader")
        self._groups: list[Group] = []  # all that have processes
        self._numbers = itertools.count(1)  # of groups
        self._models = {name: ServedModel(name, name, LOADING) for name in catalogue.names()}
        self._looking = self._look()

    def start(self) -> None:
        """Begin to load the newest version of each model."""
        self._publish()
        for model in self._models.values():
            model.swaps.append(self._swap(model, None, is_first=True))

    @property
    def children(self) -> list[Child]:
        """All processes."""
        return [*self.front_ends.children, *(child for group in self._groups for child in group.children)]

    @property
    def is_busy(self) -> bool:
        """True while a swap is going on."""
        return any(model.swaps for model in self._models.values())

    @property
    def serving(self) -> list[Group]:
        """The groups that serve."""
        return [model.group for model in self._models.values() if model.group is not None]

    def take(self, child: Child, message: Report | Order) -> None:
        """Take a message of a front end."""
        if isinstance(message, Report):
            self.front_ends.reports[child.slot] = message
            return

        def done(failure: str, content: Any = None) -> None:
            child.send(Result(message.ticket, failure, content))

        models = list(self._models.values())
        model = next((model for model in models if model.name == message.name), None)
        try:
            if message.action == "index":
                done("", [row for one in models for row in one.index(self._catalogue.versions(one.key))])
            elif message.action == "load":
                if model is None:
                    self._catalogue.choose(message.name, message.version)
                    model = self._models[message.name] = ServedModel(message.name, message.name, "")
                model.swaps.append(self._swap(model, message.version, done))
            elif model is None:
                done(f"the model must be loaded, got {message.name!r}, which is not")
            else:
                model.swaps.append(self._end(model, done))
        except LensboxError as error:
            done(str(error))

    def step(self) -> None:
        """Resume all swaps, keep all engines alive, and look at the files from time to time.

        Raises StartupError if a model cannot be loaded when the service starts.
        """
        for model in list(self._models.values()):
            if model.swaps:
                try:
                    next(model.swaps[0])
                except StopIteration:
                    del model.swaps[0]
        if not (self.is_ready or self.is_busy):
            self.is_ready = True
            self._publish()
        for group in self._groups:
            if group.is_ready:
                group.step()
        next(self._looking)

    def close(self) -> None:
        """End all engines, and free everything."""
        for group in self._groups:
            group.end()
        self._reader.shutdown(wait=False, cancel_futures=True)

    def load_news(self, keys: Iterable[str] | None = None) -> None:
        """Let the newest versions of models take over, by default of all. Unloaded models stay unloaded."""
        try:
            for key in self._catalogue.names() if keys is None else keys:
                model = self._models.setdefault(key, ServedModel(key, key, ""))
                if model.reason != UNLOADED:
                    model.swaps.append(self._swap(model, None))
        except LensboxError as error:
            _log.error("nothing is loaded: %s", error)

    def _look(self) -> Steps:
        """Look at the files from time to time: tell of changes, and load what has lain still. Never end."""
        seen: dict[str, Stamp] = {}
        tried: dict[str, Stamp] = {}
        while True:
            next_look = time.monotonic() + _LOOK
            while time.monotonic() < next_look:
                yield
            for group in self.serving:
                change = yield from self._in_thread(group.content.change)
                self._plan.counters.file_changed(group.name, bool(change))
                if change and change != group.change:
                    _log.warning(
                        "the file of %s version %s has changed or is gone: %s; the loaded bytes serve on",
                        *(group.name, group.version, group.content.path),
                    )
                group.change = change
            if self._plan.settings.watch:
                try:
                    newest = yield from self._in_thread(self._catalogue.newest)
                except (LensboxError, OSError) as error:
                    _log.debug("nothing is loaded: %s", error)
                    continue
                still = {key: one for key, one in newest.items() if seen.get(key) == one != tried.get(key)}
                seen, tried = newest, tried | still  # a file that fails is tried once
                self.load_news(still)

    def _swap(
        self,
        model: ServedModel,
        version: int | None,
        done: Done = lambda failure, content: None,  # the log has the end of a load that nobody waits for
        is_first: bool = False,
    ) -> Steps:
        """Let a version take over, by default the newest."""
        label, old, new = model.key or str(self._catalogue.source), model.group, None
        begun, number, content = time.monotonic(), 0, None
        try:
            number, path = self._catalogue.choose(model.key, version)
            label = f"{label} version {number}" if number else label
            if (
                old is not None
                and old.version == str(number or old.version)
                and old.content.path == path
                and not (yield from self._in_thread(old.content.change))
            ):
                done("", {"name": old.name, "version": old.version})
                return
            content = yield from self._in_thread(read_content, path)
            if self._in_place and old is not None:
                model.group = None
                self._publish()
                yield from self._until_unused(old)
                old.pause()
                _log.info("ended before its successor: %s version %s", old.name, old.version)
            need = old.need if old is not None and not self._in_place else None
            new_version = str(number or model.loads + 1)
            new = Group(self._plan, next(self._numbers), model.key, new_version, content, need)
            self._groups.append(new)
            while not new.is_ready:
                new.step()
                if new.failure:
                    raise StartupError(new.failure)
                yield
        except (LensboxError, OSError) as error:  # OSError: the disk or a table of the kernel is full
            if new is not None:
                self._forget(new)
            elif content is not None:
                content.close()
            self._plan.counters.load_ended(model.name, "failed")
            model.failed[str(number)] = str(error)
            if is_first:
                raise StartupError(str(error)) from error
            serving = f"version {old.version} goes on" if old is not None else "nothing changes"
            _log.error("cannot load %s, %s: %s", label, serving, error)
            if old is not None and old.is_paused:
                old.is_paused, model.group = False, old
                self._publish()
            done(str(error), None)
            return
        model.group, model.name, model.reason = new, new.name, LOADING
        model.loads += 1
        model.failed.pop(new.version, None)
        self._publish()
        while not self.front_ends.have_moved_to(new.number):
            yield
        self._plan.counters.load_ended(new.name, "loaded")
        _log.info(
            "serves %s version %s, SHA-256 %s, loaded in %.1f s: %s",
            *(new.name, new.version, new.content.sha256, time.monotonic() - begun, path),
        )
        done("", {"name": new.name, "version": new.version})
        if old is not None:
            yield from self._until_unused(old)
            self._forget(old)

    def _end(self, model: ServedModel, done: Done) -> Steps:
        """Unload a model."""
        old = model.group
        if old is None:
            done(f"the model must be loaded, got {model.name!r}, which is not", None)
            return
        model.group, model.reason = None, UNLOADED
        self._publish()
        yield from self._until_unused(old)
        self._forget(old)
        _log.info("unloaded %s version %s", old.name, old.version)
        done("", {"name": old.name, "version": old.version})

    def _in_thread(
        self, function: Callable[..., Returned], *arguments: Any
    ) -> Generator[None, None, Returned]:
        """Call a function in a thread, because a disk of the network may hang."""
        reading = self._reader.submit(function, *arguments)
        while not reading.done():
            yield
        return reading.result()

    def _until_unused(self, group: Group) -> Steps:
        """Wait until no front end uses a group, which is not in the table."""
        since = self.front_ends.table.number
        while self.front_ends.use(group.number, since):
            yield

    def _forget(self, group: Group) -> None:
        self._groups.remove(group)
        group.end()

    def _publish(self) -> None:
        """Tell all front ends which versions serve."""
        rows = [row for model in self._models.values() if (row := model.row) is not None]
        self.front_ends.publish(rows, self.is_ready)
        self._plan.counters.serve([(group.name, group.version) for group in self.serving])
