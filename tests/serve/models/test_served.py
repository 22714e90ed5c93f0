"""The models that a process answers for."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from lensbox.serve.engine.engines import Engine
from lensbox.serve.errors import ApiError, NotReadyError
from lensbox.serve.models.served import Models, ModelVersion


def _served(name: str, version: str = "1") -> ModelVersion:
    model = SimpleNamespace(metadata=SimpleNamespace(name=name))
    engine: Any = SimpleNamespace(missing=[], ready_artifact=lambda: model)
    return ModelVersion(engine, "" if name == "alone" else name, version)


def test_an_unloaded_model_is_known_and_not_missing() -> None:
    cars, faces = _served("cars"), _served("faces", "7")
    models = Models(cars, faces, ModelVersion(Engine("the model is unloaded"), "dogs", is_wanted=False))
    with pytest.raises(ApiError, match="'cars', 'faces', 'dogs'; got 'boats'"):
        models.find("boats")
    with pytest.raises(NotReadyError, match="the model is unloaded"):
        models.find("dogs").engine.ready_artifact()
    models.check_loaded()
    assert models.wanted == [cars, faces]


def test_no_model_is_found_while_one_loads() -> None:
    with pytest.raises(NotReadyError, match="still loading"):
        Models(ModelVersion(Engine("the model is still loading"))).find("faces")
    with pytest.raises(NotReadyError, match="all models are unloaded"):
        Models(ModelVersion(Engine("the model is unloaded"), "a", is_wanted=False)).check_loaded()


def test_a_replica_has_an_index_and_no_swaps() -> None:
    models = Models(_served("alone"))
    (row,) = asyncio.run(models.order("index")).content
    assert row == {"name": "alone", "version": "1", "state": "READY", "reason": ""}
    assert "a replica of Ray cannot" in asyncio.run(models.order("load", "alone")).failure
