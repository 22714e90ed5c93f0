"""Losses and errors of a service."""

import math

from pydantic import TypeAdapter

from lensbox.client import LossAnswer, ServiceError


def test_a_gradient_is_nested_like_the_predictions() -> None:
    read = TypeAdapter(LossAnswer).validate_json
    assert read('{"loss": 0.5, "slots": 1}') == LossAnswer(0.5, 1)
    for gradient in ("[]", "[[1.0, 2.0, 3.0, 4.0]]", "[[[1.0, 2.0, 3.0, 4.0]], []]"):
        assert repr(read(f'{{"loss": 0.5, "slots": 1, "gradient": {gradient}}}').gradient) == gradient
    found = read('{"loss": null, "slots": 1, "gradient": [[null, 0, 0, 0]]}')
    assert math.isnan(found.loss)
    assert found.gradient is not None
    assert str(found.gradient[0]) == "[nan, 0, 0, 0]"


def test_a_message_has_status_code_and_request() -> None:
    error = ServiceError("no disk", "internal_error", 500, "r-7")
    assert str(error) == "no disk (500 internal_error, request r-7)"
    assert str(ServiceError("nobody is there")) == "nobody is there (no_answer)"
    ones = [ServiceError("", "", status).is_of_one_image for status in (400, 503, None)]
    assert ones == [True, False, False]
