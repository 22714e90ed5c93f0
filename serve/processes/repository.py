"""The supervisor's models: which versions serve, and how one takes over from another.

A swap is a generator, which the supervisor's loop resumes until it ends: read the file, start the new
version's engines, tell the front ends, wait until they have moved, wait until the old version is out of use,
end its engines. Whatever fails before the front ends are told changes nothing. Files are read in threads,
because a disk of the network may hang, and no model waits for the files of another one.
"""

import itertools
import logging
import threading
import time
from collections.abc import Callable, Generator
from concurrent.futures import Future
from typing import Any, TypeVar

from lensbox.common.errors import ArtifactError, LensboxError
from lensbox.serve.errors import StartupError
from lensbox.serve.models.control import Order, Report, Result
from lensbox.serve.models.files import Catalogue, Content, NoModelError, read_content
from lensbox.serve.processes.group import Group, Plan
from lensbox.serve.processes.lifecycle import Child
from lensbox.serve.processes.state import FAILED, LOADING, UNLOADED, Followers, ModelState, Steps

_log = logging.getLogger(__name__)

_READ_TIMEOUT = 120.0  # seconds

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
        self._groups: list[Group] = []  # all that have processes
        self._numbers = itertools.count(1)  # of groups
        self._models = {name: ModelState(name, name, LOADING) for name in catalogue.names()}
        self._looks: list[Steps] = []  # at the folder

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
        return bool(self._looks) or any(model.swaps for model in self._models.values())

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

        model = next((model for model in self._models.values() if model.name == message.name), None)
        if message.action == "index":
            self._looks.append(self._index(done))
        elif message.action == "load":
            if model is None:  # known once it is loaded
                model = ModelState(message.name, message.name, "")
                model = self._models.setdefault(message.name, model)
            model.swaps.append(self._swap(model, message.version, done))
        elif model is None or not model.reason:
            done(f"the model must be loaded, got {message.name!r}, which is not")
        else:
            model.swaps.append(self._end(model, done))

    def step(self) -> None:
        """Resume all swaps. Raise StartupError if no model can be loaded when the service starts."""
        for model in list(self._models.values()):
            if model.swaps and _has_ended(model.swaps[0]):
                del model.swaps[0]
                if not (model.reason or model.swaps or model.exists):
                    del self._models[model.key]
        self._looks = [look for look in self._looks if not _has_ended(look)]
        if not (self.is_ready or self.is_busy):
            self.is_ready = True
            self._publish()

    def keep_alive(self) -> None:
        """Start engines, take their messages, and restart those that have been ready."""
        for group in self._groups:
            group.step()

    def close(self) -> None:
        """End all engines, and free everything."""
        for group in self._groups:
            group.end()

    def load_news(self) -> None:
        """Let versions take over that are newer than the last load of their model, unless it was unloaded."""
        self._looks.append(self._load_news())

    def _load_news(self) -> Steps:
        try:
            names = yield from self._in_thread("the folder of models", self._catalogue.names)
        except LensboxError as error:
            _log.error("nothing is loaded: %s", error)
            return
        for key in names:
            model = self._models.setdefault(key, ModelState(key, key, ""))
            if model.reason != UNLOADED:
                model.swaps.append(self._swap(model, None, is_asked=False))

    def _index(self, done: Done) -> Steps:
        """Answer with a row for each version of each model, on the disk or in use."""
        rows: list[dict[str, str]] = []
        try:
            for model in list(self._models.values()):
                versions = yield from self._in_thread(model.name, self._catalogue.versions, model.key)
                rows += model.index(versions)
            done("", rows)
        except ArtifactError as error:
            done(str(error), None)

    def _swap(
        self,
        model: ModelState,
        version: int | None,
        done: Done = lambda failure, content: None,  # the log has the end of a load that nobody waits for
        is_first: bool = False,
        is_asked: bool = True,
    ) -> Steps:
        """Let a version take over, by default the newest. is_asked: also if it is no news."""
        label, old, new = model.key or str(self._catalogue.source), model.group, None
        begun, number, content = time.monotonic(), 0, None
        try:
            choice = yield from self._in_thread(label, self._catalogue.choose, model.key, version)
            if not (is_asked or choice.is_news(model.noted)):
                return
            number, path = choice.number, choice.path
            label = f"{label} version {number}" if number else label
            is_same = (
                old is not None and old.version == str(number or old.version) and old.content.path == path
            )
            if old is None or not is_same or old.content.stamp != choice.latest[1]:
                content = yield from self._in_thread(str(path), read_content, path)
            if old is not None and is_same and (content is None or content.sha256 == old.content.sha256):
                if content is not None:
                    content.close()
                model.noted = choice.latest
                done("", {"name": old.name, "version": old.version})
                return
            assert content is not None
            new_version = str(number or model.loads + 1)
            new = Group(self._plan, next(self._numbers), model.key, new_version, content)
            self._groups.append(new)
            while not new.is_ready:
                if new.failure:
                    raise StartupError(new.failure)
                yield
        except (LensboxError, OSError) as error:  # OSError: the disk or a table of the kernel is full
            if new is not None:
                self._forget(new)
            elif content is not None:
                content.close()
            model.exists = not isinstance(error, NoModelError)
            self._fail(model, number, label, str(error), is_first)
            done(str(error), None)
            return
        model.group, model.name, model.reason = new, new.name, LOADING
        model.loads += 1
        model.noted = choice.latest
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

    def _fail(self, model: ModelState, number: int, label: str, reason: str, is_first: bool) -> None:
        """Note the end of a load. Raise StartupError if it was the last hope of a service that starts."""
        self._plan.counters.load_ended(model.name, "failed")
        model.failed[str(number)] = reason
        others = [one for one in self._models.values() if one is not model]
        if is_first and all(one.reason == FAILED for one in others):
            raise StartupError(reason)
        goes_on = f"version {model.group.version} goes on" if model.group is not None else "nothing changes"
        _log.error("cannot load %s, %s: %s", label, goes_on, reason)
        if is_first:
            model.reason = FAILED
            self._publish()

    def _end(self, model: ModelState, done: Done) -> Steps:
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
        self, name: str, function: Callable[..., Returned], *arguments: Any
    ) -> Generator[None, None, Returned]:
        """Call a function in a thread of its own. Raise ArtifactError after `_READ_TIMEOUT`."""
        reading: Future[Returned] = Future()

        def read() -> None:
            try:
                found = function(*arguments)
            except BaseException as error:
                reading.set_exception(error)
                return
            if reading.set_running_or_notify_cancel():
                reading.set_result(found)
            elif isinstance(found, Content):  # too late
                found.close()

        threading.Thread(target=read, name="lensbox-reader", daemon=True).start()
        until = time.monotonic() + _READ_TIMEOUT
        while not reading.done():
            if time.monotonic() > until and reading.cancel():
                raise ArtifactError(f"{name} must be readable within {_READ_TIMEOUT:g} seconds, got no end")
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


def _has_ended(steps: Steps) -> bool:
    """Resume a generator. Return whether it has ended."""
    try:
        next(steps)
    except StopIteration:
        return True
    return False
