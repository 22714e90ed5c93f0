"""The schema of the chart's values, which needs no Helm to be looked at."""

import json
from typing import Any

import click
import jsonschema
import pytest
from deployed import DEPLOY, read_yaml

from lensbox.serve.cli import serve

CHART = DEPLOY / "helm" / "lensbox"
SCHEMA = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
OF_THE_CHART = {
    "api-keys-file",
    "artifact",
    "device",
    "devices",
    "host",
    "port",
    "tls-certificate",
    "tls-key",
}


def test_settings_are_the_options_of_the_service() -> None:
    options = [parameter for parameter in serve.params if isinstance(parameter, click.Option)]
    names = {name.removeprefix("--") for option in options for name in option.opts}
    assert set(SCHEMA["properties"]["settings"]["propertyNames"]["enum"]) == names - OF_THE_CHART


def test_the_values_of_the_chart_are_allowed() -> None:
    jsonschema.validate(read_yaml(CHART / "values.yaml"), SCHEMA)


@pytest.mark.parametrize(
    "values",
    [{"settings": {"max-pixel": 1}}, {"gpu": {"counts": 1}}, {"setting": {}}, {"settings": {"port": 1}}],
)
def test_misspelt_values_are_refused(values: dict[str, Any]) -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**read_yaml(CHART / "values.yaml"), **values}, SCHEMA)
