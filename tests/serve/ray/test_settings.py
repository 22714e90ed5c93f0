"""Arguments of the application on Ray, and messages about invalid arguments."""

from pathlib import Path

import pytest

from lensbox.serve.ray.settings import WITHOUT_MEANING, read_settings
from lensbox.serve.settings import Settings, options


def test_text_and_values_give_the_same_settings() -> None:
    text = {"artifact": "a.pt", "max_pixels": "2", "answer_timeout": "1.5", "ops": "a.so,b.so"}
    values = {**text, "max_pixels": 2, "answer_timeout": 1.5, "ops": ["a.so", "b.so"]}
    here = Path.cwd()  # paths become absolute
    ops = (here / "a.so", here / "b.so")
    expected = Settings(here / "a.pt", max_pixels=2, answer_timeout=1.5, ops=ops)
    assert read_settings(text) == read_settings(values) == expected


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"artefact": "x"}, r"an argument must be one of .*artifact, .*, got 'artefact'"),
        ({"max_boxes": 2}, r"an argument must be one of .*, got 'max_boxes'"),
        ({"frontends": 2}, r"an argument must be one of .*, got 'frontends'"),
        ({"max_pixels": "two"}, r'max_pixels must be a valid integer.*, got "two"'),
    ],
)
def test_names_a_wrong_argument(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_settings({"artifact": "a.pt", **arguments})
    assert options().keys() > WITHOUT_MEANING
