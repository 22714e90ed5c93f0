"""Two steps of a request, one after the other."""

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


def test_both_results(first: "Future[int]", second: "Future[str]") -> None:
    both = chained(first, lambda value: second if value == 3 else Future())
    first.set_result(3)
    assert not both.done()
    second.set_result("found")
    assert both.result(0) == (3, "found")


def test_the_error_of_either(first: "Future[int]", second: "Future[str]") -> None:
    both = chained(first, lambda _: second)
    first.set_exception(KeyError("first"))
    with pytest.raises(KeyError, match="first"):
        both.result(0)
    done: Future[int] = Future()
    done.set_result(1)
    both = chained(done, lambda _: second)
    second.set_exception(KeyError("second"))
    with pytest.raises(KeyError, match="second"):
        both.result(0)


def test_a_second_step_that_does_not_begin(first: "Future[int]") -> None:
    def refuse(_: int) -> "Future[str]":
        raise KeyError("full")

    both = chained(first, refuse)
    first.set_result(1)
    with pytest.raises(KeyError, match="full"):
        both.result(0)


def test_cancelling_before_the_first_step_ends(first: "Future[int]") -> None:
    both: Future[Any] = chained(first, lambda _: pytest.fail("it must not begin"))
    assert both.cancel()
    assert first.cancelled()


def test_cancelling_while_the_first_step_runs(first: "Future[int]") -> None:
    both: Future[Any] = chained(first, lambda _: pytest.fail("it must not begin"))
    assert first.set_running_or_notify_cancel()
    assert both.cancel()
    first.set_result(1)


def test_cancelling_before_the_second_step_begins(first: "Future[int]", second: "Future[str]") -> None:
    both = chained(first, lambda _: second)
    first.set_result(1)
    assert both.cancel()
    assert second.cancelled()
    with pytest.raises(CancelledError):
        both.result(0)


def test_a_result_after_cancelling_is_dropped(first: "Future[int]", second: "Future[str]") -> None:
    both = chained(first, lambda _: second)
    first.set_result(1)
    assert second.set_running_or_notify_cancel()
    assert both.cancel()
    second.set_result("late")
    assert both.cancelled()


class Large:
    """Stands in for a photograph."""


def _two_steps() -> "tuple[Future[tuple[Large, int]], weakref.ref[Large]]":
    """Return two chained futures, both done, and a weak reference to the result of the first."""
    first: Future[Large] = Future()
    second: Future[int] = Future()
    both = chained(first, lambda _: second)
    large = Large()
    first.set_result(large)
    second.set_result(1)
    return both, weakref.ref(large)


def test_nothing_stays_in_memory_until_the_garbage_collector_comes() -> None:
    gc.disable()
    try:
        both, large = _two_steps()
        assert large() is both.result(0)[0]
        del both
        assert large() is None
    finally:
        gc.enable()
