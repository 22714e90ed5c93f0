"""The supervisor's models: which versions serve, and how one takes over from another.

A swap is a generator, which the supervisor's loop resumes until it ends: read the file, start the new
version's engines, tell the front ends, wait until they have moved, wait until the old version is out of use,
end its engines. Whatever fails before the front ends are told changes nothing.
"""

import logging
import time
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from lensbox.common.errors import LensboxError
from lensbox.serve.models.control import Order, Report, Result, Row
from lensbox.serve.models.files import Catalogue, Content, read_content, stamp_of
from lensbox.serve.processes.group import Group, Plan
from lensbox.serve.processes.lifecycle import Child
from lensbox.serve.processes.state import LOADING, UNLOADED, EngineStartError, Followers, ServedModel, Steps

_log = logging.getLogger(__name__)

_LOOK = 2.0  # seconds between looks at the files

Returned = TypeVar("Returned")
Done = Callable[[str, Any], None]


class Repository:
    """All models of a service, the default model first. Only the supervisor's loop calls it.

    in_place: end the old version before the new one starts. watch: load a newer or changed file when it has
    lain still for one look.
    """

    def __init__(self, catalogue: Catalogue, plan: Plan, in_place: bool, watch: bool) -> None:
        self.front_ends = Followers()
        self.failure: EngineStartError | None = None
        self._catalogue = catalogue
        self._plan = plan
        self._in_place = in_place
        self._watch = watch
        self._reader = ThreadPoolExecutor(1, thread_name_prefix="lensbox-reader")
        self._groups: list[Group] = []  # all that have processes
        self._number = 0  # of the latest group
        self._models = {name: ServedModel(name) for name in catalogue.names()}
        self._looking = self._look()

    def start(self) -> None:
        """Begin to load the newest version of each model. A failure is then in `failure`."""
        self._publish()
        for model in self._models.values():
            model.swaps.append(self._swap(model, None, is_first=True))

    @property
    def is_ready(self) -> bool:
        """True if all models are loaded that are wanted."""
        return all(model.group is not None or not model.is_wanted for model in self._models.values())

    @property
    def waits_for(self) -> list[Any]:
        """What ends a wait of the supervisor's loop."""
        return [one for group in self._groups for one in group.waits_for]

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
            self.front_ends.note(child, message)
            return

        def done(failure: str, content: Any = None) -> None:
            child.send(Result(message.ticket, failure, content))

        model = next((model for model in self._models.values() if model.name == message.name), None)
        try:
            if message.action == "index":
                done("", self._index())
            elif message.action == "load":
                if model is None:
                    self._catalogue.choose(message.name, message.version)
                    model = self._models[message.name] = ServedModel(message.name, is_wanted=False)
                model.swaps.append(self._swap(model, message.version, done))
            elif model is None:
                done(f"the model must be loaded, got {message.name!r}, which is not")
            else:
                model.swaps.append(self._end(model, done))
        except LensboxError as error:
            done(str(error))

    def step(self) -> None:
        """Resume all swaps, keep all engines alive, and look at the files from time to time."""
        for model in list(self._models.values()):
            if model.swaps:
                try:
                    next(model.swaps[0])
                except StopIteration:
                    del model.swaps[0]
        for group in self._groups:
            if group.is_ready:
                group.step()
        next(self._looking)

    def close(self) -> None:
        """End all engines, and free everything."""
        for group in self._groups:
            group.end()
        self._reader.shutdown(wait=False, cancel_futures=True)

    def load_news(self, only_still: bool = False) -> None:
        """Load what the folder or the file holds now.

        only_still: only files that have lain still since the look before, and each of them once.
        """
        try:
            for key in self._catalogue.names():
                model = self._models.setdefault(key, ServedModel(key, is_wanted=False))
                number, path = self._catalogue.choose(key, None)
                stamp = stamp_of(path.stat())
                seen = number, *stamp
                is_due = seen == model.seen and seen != model.tried and not model.swaps
                if (is_due or not only_still) and model.is_news(number, stamp):
                    model.tried = seen
                    model.swaps.append(self._swap(model, None))
                model.seen = seen
        except (LensboxError, OSError) as error:
            _log.log(logging.DEBUG if only_still else logging.ERROR, "nothing is loaded: %s", error)

    def _look(self) -> Steps:
        """Look at the files of the versions that serve: tell of changes, once a change. Never end."""
        while True:
            next_look = time.monotonic() + _LOOK
            while time.monotonic() < next_look:
                yield
            groups = self.serving
            changes = yield from self._in_thread(
                lambda held: [group.content.change() for group in held], groups
            )
            for group, change in zip(groups, changes, strict=True):
                self._plan.counters.file_changed(group.name, bool(change))
                if change and change != group.change:
                    _log.warning(
                        "the file of %s version %s has changed or is gone: %s; the loaded bytes serve on",
                        *(group.name, group.version, group.content.path),
                    )
                group.change = change
            if self._watch:
                self.load_news(only_still=True)

    def _index(self) -> list[dict[str, str]]:
        """Return all versions on the disk or in use, in the form of the protocol's repository extension."""
        rows = []
        for model in self._models.values():
            rows += model.index(self._catalogue.versions(model.key))
        return rows

    def _swap(
        self,
        model: ServedModel,
        version: int | None,
        done: Done = lambda failure, content: None,  # the log has the end of a load that nobody waits for
        is_first: bool = False,
    ) -> Steps:
        """Let a version take over, by default the newest."""
        label, old, new, kept = model.key or str(self._catalogue.source), model.group, None, None
        begun, number = time.monotonic(), 0
        try:
            number, path = self._catalogue.choose(model.key, version)
            label = f"{label} version {number}" if number else label
            content = yield from self._in_thread(read_content, path)
            if (
                old is not None
                and old.content.stamp == content.stamp
                and old.version == str(number or old.version)
            ):
                content.close()
                done("", {"name": old.name, "version": old.version})
                return
            if self._in_place and old is not None:
                kept = old.content.copy()
                model.group, model.reason = None, LOADING
                self._publish()
                yield from self._drain(old)
                _log.info("ended before its successor: %s version %s", old.name, old.version)
            need = old.need if old is not None and not self._in_place else None
            new = self._group(model, str(number or model.loads + 1), content, need)
            yield from self._until_ready(new, is_first)
        except (LensboxError, OSError) as error:  # OSError: the disk or a table of the kernel is full
            if new is not None:
                self._forget(new)
            self._plan.counters.load_ended(model.name, "failed")
            model.failed[str(number)] = str(error)
            if is_first:
                self.failure = EngineStartError(str(error))
                return
            serving = f"version {old.version} goes on" if old is not None else "nothing changes"
            _log.error("cannot load %s, %s: %s", label, serving, error)
            if old is not None and kept is not None:
                yield from self._bring_back(model, old.version, kept)
            done(str(error), None)
            return
        model.group, model.loaded_name, model.is_wanted = new, new.name, True
        model.loads += 1
        model.failed.pop(new.version, None)
        if kept is not None:
            kept.close()
        self._publish()
        while not is_first and not self.front_ends.have_moved_to(new.number):
            yield
        self._plan.counters.load_ended(new.name, "loaded")
        _log.info(
            "serves %s version %s, SHA-256 %s, loaded in %.1f s: %s",
            *(new.name, new.version, new.content.sha256, time.monotonic() - begun, path),
        )
        done("", {"name": new.name, "version": new.version})
        if old is not None and old in self._groups:
            yield from self._drain(old)

    def _end(self, model: ServedModel, done: Done) -> Steps:
        """Unload a model."""
        old = model.group
        if old is None:
            done(f"the model must be loaded, got {model.name!r}, which is not", None)
            return
        model.group, model.reason, model.is_wanted = None, UNLOADED, False
        self._publish()
        yield from self._drain(old)
        _log.info("unloaded %s version %s", old.name, old.version)
        done("", {"name": old.name, "version": old.version})

    def _bring_back(self, model: ServedModel, version: str, content: Content) -> Steps:
        """Start a version again that was ended for one that cannot start."""
        group = self._group(model, version, content, None)
        try:
            yield from self._until_ready(group, is_first=True)
        except (LensboxError, OSError) as error:
            self._forget(group)
            model.reason = f"the model cannot be used: {error}"
        else:
            model.group = group
        self._publish()

    def _in_thread(
        self, function: Callable[[Any], Returned], argument: Any
    ) -> Generator[None, None, Returned]:
        """Call a function in a thread, because a disk of the network may hang."""
        reading = self._reader.submit(function, argument)
        while not reading.done():
            yield
        return reading.result()

    def _until_ready(self, group: Group, is_first: bool) -> Steps:
        while not group.is_ready:
            group.step(is_first)
            if group.failure:
                raise EngineStartError(group.failure)
            yield

    def _drain(self, group: Group) -> Steps:
        """Wait until no front end uses a group, then end it."""
        since = self.front_ends.table.number
        while self.front_ends.use(group.number, since):
            yield
        self._forget(group)

    def _group(self, model: ServedModel, version: str, content: Content, need: Any) -> Group:
        """Start the processes of a version. The content is the group's, or is freed if there can be none."""
        self._number += 1
        try:
            group = Group(self._plan, self._number, model.key, version, content, need)
        except OSError:
            content.close()
            raise
        self._groups.append(group)
        return group

    def _forget(self, group: Group) -> None:
        self._groups.remove(group)
        group.end()

    def _publish(self) -> None:
        """Tell all front ends which versions serve."""
        rows: list[Row] = []
        for model in self._models.values():
            if (group := model.group) is not None:
                rows.append(Row(group.name, group.version, group.number, group.addresses, "", True))
            elif model.is_wanted or model.reason != LOADING:  # else never loaded
                rows.append(Row(model.name, "", None, (), model.reason, model.is_wanted))
        self.front_ends.publish(rows)
        self._plan.counters.serve([(group.name, group.version) for group in self.serving])
