"""The options of both commands, made of the classes in `settings`."""

from typing import Any

import click
import pytest
from click.testing import CliRunner

from lensbox.train.cli import train
from lensbox.train.settings import TrainConfig, TrainInputs


def given(*arguments: str) -> dict[str, Any]:
    """Return the values of the options of `lensbox train`."""
    context = train.make_context("train", ["--data", "photos", *arguments])
    return dict(context.params)


def test_every_field_has_an_option_and_data_are_required() -> None:
    names = {parameter.name for parameter in train.params}
    assert names == {*TrainConfig.__dataclass_fields__, *TrainInputs.__dataclass_fields__}
    with pytest.raises(click.MissingParameter, match="data"):
        train.make_context("train", [])
    text = CliRunner().invoke(train, ["--help"]).output
    assert "--learning-rate FLOAT" in text
    assert "[default: 0.004]" in " ".join(text.split())


def test_options_that_are_not_given_leave_settings_to_the_files() -> None:
    values = given()
    assert all(values[name] is None for name in TrainConfig.__dataclass_fields__)
    TrainInputs(**{name: values[name] for name in TrainInputs.__dataclass_fields__})


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ("--steps 3 --learning-rate 1e-3", {"steps": 3, "learning_rate": 1e-3}),
        ("--no-compile --channels-last", {"compile": False, "channels_last": True}),
        ('--source-weights {"a":2}', {"source_weights": {"a": 2}}),
        ("--model small --model large", {"model": "large"}),
    ],
)
def test_values_have_the_types_of_their_fields(arguments: str, expected: dict[str, Any]) -> None:
    assert given(*arguments.split()).items() >= expected.items()


@pytest.mark.parametrize("arguments", ["--steps many", "--model huge", "--source-trims {"])
def test_values_of_other_types_are_refused(arguments: str) -> None:
    with pytest.raises(click.BadParameter):
        given(*arguments.split())
