"""The process of an engine: the end of a stuck model. `test_remote_engine.py` has its front ends."""

from typing import Any

import pytest

from lensbox.serve.processes.engine_process import until_given_up


@pytest.mark.parametrize(
    ("looks", "reason", "beats"),
    [
        (["", *["stuck"] * 9], "stuck", 6),
        # The process was suspended twice: a call seems stuck, and then returns.
        ([*["stuck"] * 3, "", *["stuck"] * 3, ""], "its model has failed", 8),
    ],
)
def test_beats_until_its_model_is_stuck_or_failed(looks: list[str], reason: str, beats: int) -> None:
    remaining, found = iter(looks), list[None]()

    class Engine:
        failure, stuck = "its model has failed", ""

        def join(self, timeout: float) -> bool:
            self.stuck = next(remaining, "ended")
            return self.stuck == "ended"

    engine: Any = Engine()
    assert until_given_up(engine, lambda: found.append(None)) == reason
    assert len(found) == beats
