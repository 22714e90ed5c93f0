"""One step of a request after another, from thread to thread: the event loop waits for the last alone."""

import contextlib
import contextvars
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from typing import TypeVar

First = TypeVar("First")
Second = TypeVar("Second")


def followed(
    first: "Future[First]", follow: Callable[[First], "Future[Second]"]
) -> "Future[tuple[First, Second]]":
    """The results of two steps, the second of which `follow` starts, in the thread that ends the first.

    What a step raises, `follow` among them, the returned future raises. Cancelling it cancels the step that
    is still to come. `follow` runs in the caller's context: what it logs belongs to the same request.
    """
    context = contextvars.copy_context()
    both: Future[tuple[First, Second]] = Future()
    steps: list[Future[First] | Future[Second]] = [first]

    def go_on(done: "Future[First]") -> None:
        if both.cancelled():
            return
        try:
            value = done.result()
            second = context.run(follow, value)
        except BaseException as error:  # of any kind: somebody waits for it
            _fail(both, error)
            return
        steps.append(second)
        second.add_done_callback(lambda done: finish(value, done))
        if both.cancelled():  # meanwhile
            second.cancel()

    def finish(value: First, done: "Future[Second]") -> None:
        try:
            both.set_result((value, done.result()))
        except InvalidStateError:  # cancelled
            pass
        except BaseException as error:
            _fail(both, error)

    def end(done: "Future[tuple[First, Second]]") -> None:
        if done.cancelled():
            for step in steps:
                step.cancel()
        # Steps know `both` by their callbacks: in a circle with it they would keep their results, photographs
        # among them, in memory until the garbage collector comes.
        steps.clear()

    both.add_done_callback(end)
    first.add_done_callback(go_on)
    return both


def _fail(future: "Future[tuple[First, Second]]", error: BaseException) -> None:
    with contextlib.suppress(InvalidStateError):  # cancelled
        future.set_exception(error)
