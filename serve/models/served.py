"""The models that a process answers for, and the one reference of each model that a swap moves."""

import asyncio
import contextlib
from collections.abc import Callable
from functools import cached_property

from lensbox.serve.engine.engines import Engine, Model
from lensbox.serve.errors import ApiError, NotReadyError, shortened
from lensbox.serve.models.control import Result


class ModelVersion:
    """One version of a model. A request holds its version from admission to the end of the answer.

    name: "" for the name in the artifact's metadata. is_wanted: False for a model that was unloaded.
    in_progress: number of admitted requests; only the event loop changes it.
    """

    def __init__(self, engine: Engine, name: str = "", version: str = "1", is_wanted: bool = True) -> None:
        self._name = name
        self.engine = engine
        self.version = version
        self.is_wanted = is_wanted
        self.in_progress = 0

    @property
    def name(self) -> str:
        """The model's name; "" until the model is loaded if only the artifact has the name."""
        if not self._name:
            with contextlib.suppress(NotReadyError):
                self._name = self.model.metadata.name
        return self._name

    @property
    def model(self) -> Model:
        """The loaded artifact's description. Raise NotReadyError."""
        return self.engine.ready_artifact()

    @cached_property
    def headers(self) -> list[tuple[bytes, bytes]]:
        """The headers of each answer, in ASGI's form. Read them once the model is loaded."""
        values = (b"lensbox-model", self.name), (b"lensbox-version", self.version)
        return [(header, value.encode("latin-1", "replace")) for header, value in values]


class Models:
    """All models of a service, the default model first. A swap replaces `all`, in the event loop.

    check_process: raises NotReadyError if only a restart of this process can help.
    """

    def __init__(self, *models: ModelVersion) -> None:
        self.all = models
        self.check_process: Callable[[], None] = lambda: None

    async def start(self) -> None:
        """Begin to load."""
        self.all[0].engine.start()

    async def stop(self, timeout: float) -> bool:
        """Stop. Return False if the engine has not stopped after `timeout` seconds."""
        return await asyncio.to_thread(self.all[0].engine.stop, timeout)

    async def order(self, action: str, name: str = "", version: int | None = None) -> Result:
        """Refuse to load and to unload: that needs processes for the engines. Answer the index."""
        if action != "index":
            return Result(0, "a replica of Ray cannot change its model; deploy the other artifact")
        served = self.all[0]
        served.engine.ready_artifact()
        row = {"name": served.name, "version": served.version, "state": "READY", "reason": ""}
        return Result(0, "", [row])

    def find(self, name: str, version: str | None = None) -> ModelVersion:
        """Return a model by its name. Raise NotReadyError while loading, ApiError (404) for another one."""
        found = next((served for served in self.all if served.name == name), None)
        if found is None:
            self.check_loaded()
            names = ", ".join(repr(served.name) for served in self.all)
            raise ApiError(404, "unknown_model", f"the model must be one of {names}; got {shortened(name)}")
        if version not in (None, found.version):
            rule = f"the version of {name!r} must be {found.version!r}, which serves"
            raise ApiError(404, "unknown_model", f"{rule}; got {shortened(version)}")
        return found

    def check_loaded(self) -> None:
        """Raise NotReadyError unless all models that are wanted are ready, and there is one."""
        for served in self.wanted:
            served.engine.ready_artifact()
        if not self.wanted:
            raise NotReadyError("all models are unloaded")

    @property
    def wanted(self) -> list[ModelVersion]:
        """The models that are not unloaded."""
        return [served for served in self.all if served.is_wanted]
