import json
from pathlib import Path
from typing import Any

import pytest

from lensbox.model import read_metadata
from lensbox.train.errors import ConfigError
from lensbox.train.settings import TrainConfig, config_from_mapping
from lensbox.train.settings_files import config_from_yaml, parse_assignment


def test_values_are_converted_to_the_type_of_their_key() -> None:
    config = config_from_mapping(
        {
            "learning_rate": "1e-3",
            "steps": 7,
            "crop_window": [1, 2],
            "compile": False,
            "source_weights": {"a": 2},
        }
    )
    assert config.optimizer.learning_rate == 1e-3
    assert config.optimizer.steps == 7
    assert config.views.crop_window == (1.0, 2.0)
    assert config.speed.compile is False
    assert config.data.source_weights == {"a": 2.0}
    assert config_from_mapping({"steps": 8}, config).optimizer.learning_rate == 1e-3


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({3: 1.0}, "unknown configuration key 3"),
        ({"views": {"mosaic_share": 0.5}}, "unknown configuration key 'views'"),
        ({"learning_rat": 1.0}, "unknown configuration key 'learning_rat'"),
        ({"steps": "many"}, "steps: must be a valid integer, got 'many'"),
        ({"learning_rate": float("nan")}, "learning_rate: must be a finite number, got nan"),
        ({"ema_decay": "1"}, "ema_decay: must be less than 1, got '1'"),
        ({"source_weights": 3}, "source_weights: must be a valid dictionary, got 3"),
        ({"level_sizes": []}, "level_sizes: Tuple should have at least 1 item"),
        (
            {"level_sizes": [[1, 2, 3]]},
            r"level_sizes\[0\]: Tuple should have at most 2 items .* got \[1, 2, 3\]",
        ),
        ({"level_sizes": [[2, 1]]}, "level_sizes: must be rising pairs"),
        ({"steps": True}, "steps: must be a valid integer, got True"),
        ({"compile": 1}, "compile: must be true or false, got 1"),
        ({"compile": "True"}, "compile: must be true or false, got 'True'"),  # as --set compile=True gives it
        ({"seed": 2**64}, "seed: must be less than or equal to 4398046511104, got 18446744073709551616"),
        ({"seed": 1.5}, "seed: must be a valid integer, got 1.5"),
        ({"crop_window": [1, 2, 3]}, "crop_window: Tuple should have at most 2 items"),
        ({"mosaic_share": 1.5}, "mosaic_share: must be less than or equal to 1, got 1.5"),
        ({"cover_chance": -0.1}, "cover_chance: must be greater than or equal to 0, got -0.1"),
        ({"rotate_degrees": 50}, "rotate_degrees: must be less than or equal to 45, got 50"),
        ({"batch_size": 0}, "batch_size: must be greater than or equal to 1, got 0"),
        ({"crop_window": [2, 1]}, "crop_window: must be two rising numbers"),
        ({"model": "huge"}, "model: name must be one of small, base, large, got 'huge'"),
        ({"ema_warmup": 0}, "ema_warmup: must be greater than or equal to 1, got 0"),
        ({"negative_weight": -1}, "negative_weight: must be greater than or equal to 0"),
        ({"ignore_visible": 0.9}, "ignore_visible: must be at most keep_visible"),
        ({"keep_visible": 0.1}, "ignore_visible: must be at most keep_visible, got 0.15"),
        ({"source_weights": {"a": -1}}, "source_weights\\['a'\\]: must be greater than or equal to 0"),
        ({"source_trims": {"a": [0.5, 0, 0.5, 0]}}, "source_trims\\['a'\\]: must be shares above -1"),
        ({"source_trims": {"a": [0.5]}}, "source_trims\\['a'\\]\\[1\\]: Field required, got \\[0.5\\]"),
    ],
)
def test_bad_values_are_refused_with_key_rule_and_value(values: dict[Any, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        config_from_mapping(values)


def test_a_configuration_of_an_earlier_release_reads() -> None:
    """Files, and the metadata of weights, have always named settings without their groups."""
    recipe = '{"model": "small", "steps": 9, "mosaic_share": 0.1, "level_sizes": [[0.0, 24.0], [14.0, 52.0]]}'
    config = config_from_mapping(json.loads(recipe))
    assert (config.model, config.optimizer.steps, config.views.mosaic_share) == ("small", 9, 0.1)
    assert config.assignment.level_sizes == ((0.0, 24.0), (14.0, 52.0))


def test_the_recipe_of_the_shipped_weights_reads() -> None:
    recipe = json.loads(read_metadata()["recipe"])
    assert config_from_mapping(recipe).flat().items() >= {"model": "base"}.items()


def test_json_of_a_configuration_gives_it_back() -> None:
    config = TrainConfig().replace(steps=3, source_trims={"a": (0.1, 0.0, 0.0, 0.0)})
    assert config_from_mapping(json.loads(config.to_json())) == config


def test_files(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("steps: 5\nlearning_rate: 4e-3\n")
    assert config_from_mapping(config_from_yaml(tmp_path / "c.yaml")) == TrainConfig().replace(steps=5)
    (tmp_path / "c.json").write_text('{"steps": 5}')
    assert config_from_yaml(tmp_path / "c.json") == {"steps": 5}
    (tmp_path / "marked.json").write_text('{"steps": 5}', encoding="utf-8-sig")
    assert config_from_yaml(tmp_path / "marked.json") == {"steps": 5}
    (tmp_path / "empty.yaml").write_text("")
    assert config_from_yaml(tmp_path / "empty.yaml") == {}
    (tmp_path / "list.yaml").write_text("- 1\n")
    with pytest.raises(ConfigError, match="must be a mapping"):
        config_from_yaml(tmp_path / "list.yaml")


def test_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    (tmp_path / "broken.json").write_text("{")
    (tmp_path / "broken.yaml").write_text("a: [")
    (tmp_path / "latin.yaml").write_bytes(b"model: caf\xe9\n")
    for name in ("broken.json", "broken.yaml", "latin.yaml", "absent.yaml", "."):
        with pytest.raises(ConfigError, match=r"configuration file .* (must hold|cannot be read)"):
            config_from_yaml(tmp_path / name)


def test_the_page_lists_every_key_with_its_default() -> None:
    page = (Path(__file__).parents[2] / "docs" / "training.md").read_text()
    for name, value in TrainConfig().flat().items():
        assert f"| `{name}` | {json.dumps(value)} |" in page


def test_assignments() -> None:
    assert parse_assignment("steps=3") == ("steps", 3)
    assert parse_assignment("model=small") == ("model", "small")
    assert parse_assignment('source_weights={"a": 1}') == ("source_weights", {"a": 1})
    with pytest.raises(ConfigError, match="key=value"):
        parse_assignment("steps")
