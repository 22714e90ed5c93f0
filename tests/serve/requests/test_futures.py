"""Chained futures."""

import gc
import weakref
from concurrent.futures import CancelledError, Future
from typing import Any

import pytest

from lensbox.serve.requests.futures import chained


@pytest.fixture
def first() -> "Future[int]":
    return Future()


@pytest.fixture
def second() -> "Future[str]":
    return Future()


def test_returns_both_results(first: "Future[int]", second: "Future[str]") -> None:
    both = chained(first, lambda value: second if value == 3 else Future())
    first.set_result(3)
    assert not both.done()
    second.set_result("found")
    assert both.result(0) == (3, "found")


def test_raises_the_error_of_any_step(first: "Future[int]", second: "Future[str]") -> None:
    def refuse(_: int) -> "Future[str]":
        raise KeyError("full")

    done: Future[int] = Future()
    done.set_result(1)
    steps = {"first": chained(first, lambda _: second), "second": chained(done, lambda _: second)}
    first.set_exception(KeyError("first"))
    second.set_exception(KeyError("second"))
    for name, both in {**steps, "full": chained(done, refuse)}.items():
        with pytest.raises(KeyError, match=name):
            both.result(0)


@pytest.mark.parametrize("is_first", [True, False])
def test_cancelling_a_step(first: "Future[int]", second: "Future[str]", is_first: bool) -> None:
    both: Future[Any] = chained(first, lambda _: second)
    if not is_first:
        first.set_result(1)
    step: Future[Any] = first if is_first else second
    assert both.cancel()
    assert step.cancelled()
    with pytest.raises(CancelledError):
        both.result(0)


def test_a_running_step_ends_after_the_cancellation(first: "Future[int]") -> None:
    both: Future[Any] = chained(first, lambda _: pytest.fail("it must not begin"))
    assert first.set_running_or_notify_cancel()
    assert both.cancel()
    assert not first.cancelled()
    first.set_result(1)
    assert both.cancelled()


class Large:
    """A stand-in for a photograph."""


def _two_steps() -> "tuple[Future[tuple[Large, int]], weakref.ref[Large]]":
    """Return two chained futures, both done, and a weak reference to the result of the first."""
    first: Future[Large] = Future()
    second: Future[int] = Future()
    both = chained(first, lambda _: second)
    large = Large()
    first.set_result(large)
    second.set_result(1)
    return both, weakref.ref(large)


def test_chained_results_are_freed_without_garbage_collection() -> None:
    gc.disable()
    try:
        both, large = _two_steps()
        assert large() is both.result(0)[0]
        del both
        assert large() is None
    finally:
        gc.enable()
