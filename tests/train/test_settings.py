"""The settings of a run: bounds, files, and the table on the documentation page."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from lensbox.model import read_metadata
from lensbox.train.settings import ConfigError, TrainConfig, parse_assignment, read_config

DEFAULTS = TrainConfig()
ROOT = Path(__file__).parents[2]


def test_values_are_converted_to_the_type_of_their_key() -> None:
    values = {"learning_rate": "1e-3", "steps": 7, "compile": False, "source_weights": {"a": 2}}
    config = DEFAULTS.with_values(values)
    assert (config.learning_rate, config.steps, config.compile) == (1e-3, 7, False)
    assert config.source_weights == {"a": 2.0}
    assert config.with_values({"steps": 8}).learning_rate == 1e-3


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({3: 1.0}, "unknown configuration key 3"),
        ({"learning_rat": 1.0}, "did you mean 'learning_rate'\\?\\); known keys: model, seed"),
        ({"steps": "many"}, "steps: must be a valid integer, got 'many'"),
        ({"steps": True}, "steps: must be a valid integer, got True"),
        ({"learning_rate": float("nan")}, "learning_rate: must be a finite number, got nan"),
        ({"ema_decay": "1"}, "ema_decay: must be less than 1, got '1'"),
        ({"compile": "True"}, "compile: must be true or false, got 'True'"),  # as --set compile=True gives it
        ({"seed": 2**64}, "seed: must be less than or equal to 4398046511104, got 18446744073709551616"),
        ({"batch_size": 0}, "batch_size: must be greater than or equal to 1, got 0"),
        ({"model": "huge"}, "model: name must be one of small, base, large, got 'huge'"),
        ({"keep_visible": 0.1}, "ignore_visible: must be at most keep_visible, got 0.15"),
        ({"source_weights": 3}, "source_weights: must be a valid dictionary, got 3"),
        ({"source_weights": {"a": -1}}, "source_weights\\['a'\\]: must be greater than or equal to 0"),
        ({"source_trims": {"a": [0.5, 0, 0.5, 0]}}, "source_trims\\['a'\\]: must be shares above -1"),
        ({"source_trims": {"a": [0.5]}}, "source_trims\\['a'\\]\\[1\\]: Field required, got \\[0.5\\]"),
    ],
)
def test_bad_values_are_refused_with_key_rule_and_value(values: dict[Any, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        DEFAULTS.with_values(values)


def test_reads_the_recipes_of_the_shipped_weights_and_of_the_folder() -> None:
    for key in ("recipe", "recipe_refined"):
        config = DEFAULTS.with_values(json.loads(read_metadata()[key]))
        assert (config.model, config.source_weights["wider"]) == ("base", 3.0)
        assert DEFAULTS.with_values(json.loads(config.to_json())) == config
    recipes = sorted((ROOT / "train" / "recipes").glob("*.json"))
    assert len(recipes) == 4
    for path in recipes:
        DEFAULTS.with_values(read_config(path))


def test_the_page_lists_every_key_with_its_default() -> None:
    page = (ROOT / "docs" / "training.md").read_text()
    rows = [line.split(" | ")[0].strip("| `") for line in page.splitlines() if line.startswith("| `")]
    for name, value in dataclasses.asdict(DEFAULTS).items():
        assert f"| `{name}` | {json.dumps(value)} |" in page
        assert rows.count(name) == 1


def test_assignments() -> None:
    assert parse_assignment("steps=3") == ("steps", 3)
    assert parse_assignment("model=small") == ("model", "small")
    assert parse_assignment('source_weights={"a": 1}') == ("source_weights", {"a": 1})
    with pytest.raises(ConfigError, match="key=value"):
        parse_assignment("steps")


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("c.yaml", b"steps: 5\nlearning_rate: 4e-3\n", {"steps": 5, "learning_rate": "4e-3"}),
        ("c.json", b'\xef\xbb\xbf{"steps": 5}', {"steps": 5}),
        ("empty.yaml", b"", {}),
        ("a.json", b"{", None),
        ("a.yaml", b"a: [", None),
        ("a.yaml", b"model: caf\xe9\n", None),
        ("a.yaml", b"- 1", None),
        ("a.yaml", None, None),
    ],
)
def test_reads_files_and_names_bad_ones(
    tmp_path: Path, name: str, content: bytes | None, expected: dict[str, Any] | None
) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    if expected is not None:
        assert read_config(tmp_path / name) == expected
        return
    with pytest.raises(ConfigError, match=rf"{name}.* (must hold|cannot be read|must be a mapping)"):
        read_config(tmp_path / name)
