"""Arguments of the application on Ray, and messages about invalid arguments."""

from pathlib import Path

import pytest

from lensbox.serve.ray.settings import WITHOUT_MEANING, read_settings
from lensbox.serve.settings import Settings, options

TEXT = {
    "artifact": "/models/detector.pt",
    "device": "cuda",
    "threads": "2",
    "answer_timeout": "1.5",
    "no_page": "true",
    "ops": "/models/a.so,/models/b.so",
}


def test_text_and_values_give_the_same_settings() -> None:
    ops = ["/models/a.so", "/models/b.so"]
    settings = read_settings(TEXT)
    assert settings == read_settings(
        {**TEXT, "threads": 2, "answer_timeout": 1.5, "no_page": True, "ops": ops}
    )
    assert settings == Settings(
        artifact=Path("/models/detector.pt"),
        device="cuda",
        threads=2,
        answer_timeout=1.5,
        no_page=True,
        ops=(Path("/models/a.so"), Path("/models/b.so")),
        frontends=0,
    )


def test_paths_become_absolute() -> None:
    settings = read_settings({"artifact": "a.pt", "api_keys_file": "keys", "ops": "a.so"})
    paths = (settings.artifact, settings.api_keys_file, *settings.ops)
    assert paths == tuple(Path(name).absolute() for name in ("a.pt", "keys", "a.so"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"artefact": "x"}, r"an argument must be one of .*artifact, .*, got 'artefact'"),
        ({"max_boxes": 2}, r"an argument must be one of .*, got 'max_boxes'"),
        ({"frontends": 2}, r"an argument must be one of .*, got 'frontends'"),
        ({"threads": "two"}, r"threads must be a valid integer.*, got 'two'"),
    ],
)
def test_names_a_wrong_argument(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_settings({"artifact": "a.pt", **arguments})


def test_refuses_only_names_of_settings() -> None:
    assert options().keys() > WITHOUT_MEANING
