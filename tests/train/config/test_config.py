import dataclasses
import json
from pathlib import Path

import pytest

from lensbox.train.config.config import (
    ConfigError,
    TrainConfig,
    config_from_mapping,
    config_from_yaml,
    parse_assignment,
)


def test_values_are_converted_to_the_type_of_their_key():
    config = config_from_mapping(
        {
            "learning_rate": "1e-3",
            "steps": 7,
            "crop_window": [1, 2],
            "compile": False,
            "source_weights": {"a": 2},
        }
    )
    assert config.learning_rate == 1e-3
    assert config.steps == 7
    assert config.crop_window == (1.0, 2.0)
    assert config.compile is False
    assert config.source_weights == {"a": 2.0}


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"learning_rat": 1.0}, "unknown configuration key 'learning_rat'"),
        ({"steps": "many"}, "steps: must be like"),
        ({"steps": True}, "steps: must be like"),
        ({"compile": 1}, "compile: must be like"),
        ({"crop_window": [1, 2, 3]}, "crop_window: must have 2 values"),
        ({"mosaic_share": 1.5}, "mosaic_share: must be between 0 and 1, got 1.5"),
        ({"cover_chance": -0.1}, "cover_chance: must be between 0 and 1, got -0.1"),
        ({"rotate_degrees": 50}, "rotate_degrees: must be between 0 and 45, got 50.0"),
        ({"batch_size": 0}, "batch_size: must be at least 1, got 0"),
        ({"crop_window": [2, 1]}, "crop_window: must be two rising numbers"),
        ({"model": "huge"}, "model: name must be one of small, base, large, got 'huge'"),
        ({"ema_warmup": 0}, "ema_warmup: must be at least 1, got 0"),
        ({"negative_weight": -1}, "negative_weight: must be at least 0"),
        ({"ignore_visible": 0.9}, "ignore_visible: must be at most keep_visible"),
        ({"source_weights": {"a": -1}}, "source_weights: must be weights of at least 0"),
        ({"source_trims": {"a": [0.5, 0, 0.5, 0]}}, "source_trims: must be shares"),
        ({"source_trims": {"a": [0.5]}}, "source_trims: must have 4 values"),
    ],
)
def test_bad_values_are_refused_with_key_rule_and_value(values, words):
    with pytest.raises(ConfigError, match=words):
        config_from_mapping(values)


def test_json_of_a_configuration_gives_it_back():
    config = TrainConfig(steps=3, source_trims={"a": (0.1, 0.0, 0.0, 0.0)})
    assert config_from_mapping(json.loads(config.to_json())) == config


def test_files(tmp_path):
    (tmp_path / "c.yaml").write_text("steps: 5\nlearning_rate: 4e-3\n")
    assert config_from_mapping(config_from_yaml(tmp_path / "c.yaml")) == TrainConfig(steps=5)
    (tmp_path / "c.json").write_text('{"steps": 5}')
    assert config_from_yaml(tmp_path / "c.json") == {"steps": 5}
    (tmp_path / "empty.yaml").write_text("")
    assert config_from_yaml(tmp_path / "empty.yaml") == {}
    (tmp_path / "list.yaml").write_text("- 1\n")
    with pytest.raises(ConfigError, match="must be a mapping"):
        config_from_yaml(tmp_path / "list.yaml")


def test_the_page_lists_every_key_with_its_default():
    page = (Path(__file__).parents[3] / "docs" / "training.md").read_text()
    for field in dataclasses.fields(TrainConfig):
        value = getattr(TrainConfig(), field.name)
        assert f"| `{field.name}` | {json.dumps(value)} |" in page


def test_assignments():
    assert parse_assignment("steps=3") == ("steps", 3)
    assert parse_assignment("model=small") == ("model", "small")
    assert parse_assignment('source_weights={"a": 1}') == ("source_weights", {"a": 1})
    with pytest.raises(ConfigError, match="key=value"):
        parse_assignment("steps")
