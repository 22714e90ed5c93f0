"""The supervisor's models: which versions serve, and how one takes over from another.

A swap is a generator, which the supervisor's loop resumes until it ends: read the file, start the new
version's engines, tell the front ends, wait until they have moved, wait until the old version is out of use,
end its engines. Whatever fails before the front ends are told changes nothing.
"""

import logging
import time
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from lensbox.common.errors import ExitCode, LensboxError
from lensbox.serve.models.catalogue import Catalogue
from lensbox.serve.models.content import Content, read_content, stamp_of
from lensbox.serve.models.control import Order, Report, Result, Row, Table
from lensbox.serve.processes.file_watch import FileWatch
from lensbox.serve.processes.group import Group, Plan
from lensbox.serve.processes.swap_state import LOADING, UNLOADED, FrontEnd, ServedModel, Steps

_log = logging.getLogger(__name__)


Done = Callable[[str, Any], None]


class EngineStartError(LensboxError):
    """A model cannot be loaded; the message says why."""

    exit_code = ExitCode.UNUSABLE


class Repository:
    """All models of a service. Only the supervisor's loop calls it.

    default: name of the default model; None for the first by name. in_place: end the old version before the
    new one starts. watch: load a newer or changed file when it has lain still for one look.
    """

    def __init__(
        self, catalogue: Catalogue, plan: Plan, default: str | None, in_place: bool, watch: bool
    ) -> None:
        self.front_ends: list[FrontEnd] = []
        self.failure: EngineStartError | None = None
        self._catalogue = catalogue
        self._plan = plan
        self._in_place = in_place
        self._watch = watch
        self._reader = ThreadPoolExecutor(1, thread_name_prefix="lensbox-reader")
        self._groups: list[Group] = []  # all that have processes
        self._number = 0  # of the latest group
        self._table = Table(0, ())
        self._files = FileWatch(self._reader, plan.counters)
        names = catalogue.names()
        first = default or names[0]
        if first not in names:
            raise EngineStartError(f"default_model must be one of {', '.join(names)}, got {first!r}")
        self._models = {
            name: ServedModel(name) for name in [first, *(name for name in names if name != first)]
        }

    def start(self) -> None:
        """Begin to load the newest version of each model. A failure is then in `failure`."""
        self._publish()
        for model in self._models.values():
            model.task = self._swap(model, None, _log_only, is_first=True)

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
        return any(model.task is not None for model in self._models.values())

    @property
    def versions(self) -> str:
        """The versions that serve, for the log."""
        groups = [model.group for model in self._models.values() if model.group is not None]
        return ", ".join(f"{group.name} version {group.version}" for group in groups)

    def greet(self, front_end: FrontEnd) -> None:
        """Tell a new process of a front end the current table."""
        front_end.report = None
        front_end.child.send(self._table)

    def take(self, front_end: FrontEnd, message: Report | Order) -> None:
        """Take a message of a front end."""
        if isinstance(message, Report):
            front_end.report = message
            return

        def done(failure: str, content: Any = None) -> None:
            front_end.child.send(Result(message.ticket, failure, content))

        if message.action == "index":
            done("", self._index())
        elif message.action == "unload":
            self._unload(message.name, done)
        else:
            self._load(message.name, message.version, done)

    def reload(self) -> None:
        """Load what the folder or the file holds now."""
        try:
            for key in self._catalogue.names():
                model = self._models.setdefault(key, ServedModel(key, is_wanted=False))
                if self._is_news(model):
                    model.waiting.append(self._swap(model, None, _log_only))
        except LensboxError as error:
            _log.error("nothing is loaded: %s", error)

    def step(self) -> None:
        """Resume all swaps, keep all engines alive, and look at the files from time to time."""
        for model in list(self._models.values()):
            if model.task is None and model.waiting:
                model.task = model.waiting.pop(0)
            if model.task is not None:
                try:
                    next(model.task)
                except StopIteration:
                    model.task = None
        for group in self._groups:
            if group.is_ready:
                group.step()
        served = [model.group for model in self._models.values() if model.group is not None]
        if self._files.look(served) and self._watch:
            self._load_news()

    def kill(self) -> None:
        """Send SIGKILL to all engines."""
        for group in self._groups:
            group.kill()

    def close(self) -> None:
        """End all engines, and free everything."""
        for group in self._groups:
            group.end()
        self._reader.shutdown(wait=False, cancel_futures=True)

    # --- orders ---

    def _find(self, name: str) -> ServedModel | None:
        """Return the model of a name in a request."""
        for model in self._models.values():
            if name == (model.key or model.name):
                return model
        return None

    def _load(self, name: str, version: int | None, done: Done) -> None:
        model = self._find(name)
        if model is None:
            try:
                self._catalogue.choose(name, version)
            except LensboxError as error:
                done(str(error), None)
                return
            model = self._models[name] = ServedModel(name, is_wanted=False)
        model.waiting.append(self._swap(model, version, done))

    def _unload(self, name: str, done: Done) -> None:
        model = self._find(name)
        if model is None or model.group is None:
            done(f"the model {name!r} must be loaded, got one that is not", None)
            return
        model.waiting.append(self._end(model, done))

    def _index(self) -> list[dict[str, str]]:
        """Return all versions on the disk or in use, in the form of the protocol's repository extension."""
        rows = []
        for model in self._models.values():
            serving = model.group
            name = model.key or model.name
            versions = {str(number) for number in self._catalogue.versions(model.key) if number}
            for version in sorted(versions | ({serving.version} if serving else set()), key=int):
                ready = serving is not None and version == serving.version
                reason = "" if ready else model.failed.get(version, "")
                state = "READY" if ready else "UNAVAILABLE"
                rows.append({"name": name, "version": version, "state": state, "reason": reason})
        return rows

    # --- swaps ---

    def _swap(self, model: ServedModel, version: int | None, done: Done, is_first: bool = False) -> Steps:
        """Let a version take over, by default the newest."""
        label, old, new, kept = model.key or str(self._catalogue.source), model.group, None, None
        begun, number = time.monotonic(), 0
        try:
            number, path = self._catalogue.choose(model.key, version)
            label = f"{label} version {number}" if number else label
            content = yield from self._read(path)
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
            self._plan.counters.load_ended(model.key or model.name, "failed")
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
        model.group, model.name, model.is_wanted, model.loads = new, new.name, True, model.loads + 1
        model.failed.pop(new.version, None)
        if kept is not None:
            kept.close()
        self._publish()
        if not is_first:
            while not all(front_end.has_moved_to(new.number) for front_end in self.front_ends):
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
            done("the model must be loaded, got one that is not", None)
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

    def _read(self, path: Path) -> Generator[None, None, Content]:
        """Read a file in a thread, because a disk of the network may hang."""
        reading = self._reader.submit(read_content, path)
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
        since = self._table.number
        while any(front_end.uses(group.number, since) for front_end in self.front_ends):
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
        """Tell all front ends the new table."""
        rows = []
        for model in self._models.values():
            group = model.group
            if group is not None:
                row = Row(group.name, group.version, group.number, group.addresses, "", True)
            elif model.is_wanted or model.reason != LOADING:  # else never loaded
                row = Row(model.key or model.name, "", None, (), model.reason, model.is_wanted)
            else:
                continue
            rows.append(row)
        self._table = Table(self._table.number + 1, tuple(rows))
        for front_end in self.front_ends:
            front_end.child.send(self._table)
        self._plan.counters.serve([(row.name, row.version) for row in rows if row.group is not None])

    # --- files ---

    def _is_news(self, model: ServedModel) -> bool:
        """Return whether the newest version is not the one that serves, or its file has changed."""
        if model.group is None:
            return model.task is None and model.reason != UNLOADED
        number, path = self._catalogue.choose(model.key, None)
        if number and str(number) != model.group.version:
            return True
        try:
            return stamp_of(path.stat()) != model.group.content.stamp
        except OSError:
            return False

    def _load_news(self) -> None:
        """Load what has lain still since the look before, once."""
        try:
            for key in self._catalogue.names():
                model = self._models.setdefault(key, ServedModel(key, is_wanted=False))
                number, path = self._catalogue.choose(key, None)
                seen = number, *stamp_of(path.stat())
                if seen == model.seen and seen != model.tried and not model.waiting and self._is_news(model):
                    model.tried = seen
                    model.waiting.append(self._swap(model, None, _log_only))
                model.seen = seen
        except (LensboxError, OSError) as error:
            _log.debug("the models cannot be looked at: %s", error)


def _log_only(failure: str, content: Any) -> None:
    """Ignore the end of a load that nobody waits for. The log has it."""
