"""Arguments of the application on Ray, and messages about invalid arguments."""

import dataclasses
from pathlib import Path

import pytest

from lensbox.serve.ray_arguments import Scaling, read_arguments
from lensbox.serve.settings import Settings


def test_text_and_numbers_give_the_same() -> None:
    text = {
        "artifact": "/models/detector.pt",
        "device": "cuda",
        "threads": "2",
        "max_delay": "1.5",
        "public_key": "/models/key.pub",
        "ops": "/models/a.so,/models/b.so",
        "num_gpus": "0.25",
        "max_replicas": "8",
    }
    numbers = {**text, "threads": 2, "max_delay": 1.5, "num_gpus": 0.25, "max_replicas": 8}
    numbers["ops"] = ["/models/a.so", "/models/b.so"]
    settings, scaling = read_arguments(text)
    assert (settings, scaling) == read_arguments(numbers)
    assert settings == Settings(
        artifact=Path("/models/detector.pt"),
        device="cuda",
        frontends=0,
        threads=2,
        max_delay=1.5,
        public_key=Path("/models/key.pub"),
        ops=(Path("/models/a.so"), Path("/models/b.so")),
    )
    assert scaling == Scaling(num_gpus=0.25, max_replicas=8)


def test_paths_do_not_depend_on_the_folder_of_a_replica() -> None:
    assert read_arguments({}).settings.artifact == Path("artifacts/detector.pt").absolute()
    assert read_arguments({"api_keys_file": "keys"}).settings.api_keys_file == Path("keys").absolute()
    assert read_arguments({"ops": "a.so"}).settings.ops == (Path("a.so").absolute(),)


def test_accepts_an_integer_as_float() -> None:
    assert read_arguments({"num_gpus": 1}).scaling.num_gpus == 1.0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"artefact": "x"}, r"there is no argument 'artefact'; there are .*artifact, .*num_gpus"),
        ({"frontends": 2}, "frontends has no meaning under Ray, got 2"),
        ({"busy_poll": 4}, "busy_poll has no meaning under Ray, got 4"),
        ({"devices": "all"}, "devices has no meaning under Ray, got 'all'"),
        ({"tls_key": "key.pem"}, "tls_key has no meaning under Ray, got 'key.pem'"),
        ({"threads": "two"}, "threads must be a valid integer, .*got 'two'"),
        ({"threads": True}, "threads must be a valid integer, got True"),
        ({"threads": 1.5}, "threads must be a valid integer, got 1.5"),
        ({"max_requests": 0}, "max_requests must be at least 1, got 0"),
        ({"min_replicas": 0}, "min_replicas must be at least 1, got 0"),
        ({"min_replicas": 5}, "max_replicas must be at least min_replicas, 5, got 4"),
        ({"num_gpus": "nan"}, "num_gpus must be between 0 and 1024, got nan"),
        ({"target_ongoing_requests": 0}, "target_ongoing_requests must be above 0"),
        ({"no_page": "perhaps"}, "no_page must be a valid boolean, .*got 'perhaps'"),
        ({"log_format": "xml"}, "log_format must be one of text, json, got 'xml'"),
    ],
)
def test_wrong_arguments_are_named(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_arguments(arguments)


def test_settings_and_scaling_share_no_names() -> None:
    names = [{field.name for field in dataclasses.fields(kind)} for kind in (Settings, Scaling)]
    assert not names[0] & names[1]
