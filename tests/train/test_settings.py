"""The settings of a run: bounds, and files."""

import json
from pathlib import Path
from typing import Any

import pytest

from lensbox.model import read_metadata
from lensbox.train.settings import ConfigError, TrainConfig, read_config

DEFAULTS = TrainConfig()
RECIPES = Path(__file__).parents[2] / "train" / "recipes"


def test_values_are_converted_to_the_type_of_their_key() -> None:
    values = {"learning_rate": "1e-3", "steps": 7, "compile": "False", "source_weights": {"a": 2}}
    config = DEFAULTS.replace(**values)
    assert (config.learning_rate, config.steps, config.compile) == (1e-3, 7, False)
    assert config.source_weights == {"a": 2.0}
    assert config.replace(steps=8).learning_rate == 1e-3


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"3": 1.0}, "unknown configuration key '3'"),
        ({"learning_rat": 1.0}, "did you mean 'learning_rate'\\?\\); known keys: model, seed"),
        ({"steps": "many"}, 'steps must be a valid integer, .*got "many"'),
        ({"learning_rate": float("nan")}, "learning_rate must be a finite number, got NaN"),
        ({"model": "huge"}, "model must be 'small', 'base' or 'large', got \"huge\""),
        ({"keep_visible": 0.1}, "ignore_visible must be at most keep_visible, got 0.15"),
        ({"source_weights": {"a": -1}}, "source_weights.a must be greater than or equal to 0"),
        ({"source_trims": {"a": [0.5, 0, 0.5, 0]}}, "source_trims.a must be shares above -1"),
    ],
)
def test_bad_values_are_refused_with_key_rule_and_value(values: dict[Any, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        DEFAULTS.replace(**values)


def test_reads_the_recipes_of_the_shipped_weights_and_of_the_folder() -> None:
    for key in ("recipe", "recipe_refined"):
        config = DEFAULTS.replace(**json.loads(read_metadata()[key]))
        assert (config.model, config.source_weights["wider"]) == ("base", 3.0)
        assert DEFAULTS.replace(**json.loads(config.to_json())) == config
    for name in ("shared_faces", "student", "student_refined", "teacher"):
        DEFAULTS.replace(**read_config(RECIPES / f"{name}.json"))


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"steps: 5\nlearning_rate: 4e-3\n", {"steps": 5, "learning_rate": "4e-3"}),
        (b'\xef\xbb\xbf{"steps": 5}', {"steps": 5}),
        (b"", {}),
        (b"a: [", None),
        (b"model: caf\xe9\n", None),
        (b"- 1", None),
        (None, None),
    ],
)
def test_reads_files_and_names_bad_ones(
    tmp_path: Path, content: bytes | None, expected: dict[str, Any] | None
) -> None:
    path = tmp_path / "c.yaml"
    if content is not None:
        path.write_bytes(content)
    if expected is not None:
        assert read_config(path) == expected
        return
    with pytest.raises(ConfigError, match=r"c\.yaml.* (must hold|cannot be read|must be a mapping)"):
        read_config(path)
