"""A front end that was refused by an engine does not decode for it until that has places again."""

from lensbox.serve.processes.refusals import Refusals


def test_an_engine_is_full_until_it_answers_or_for_a_moment() -> None:
    now = 100.0
    refusals = Refusals(lambda: now)
    assert not refusals.full
    refusals.refused()
    assert refusals.full
    refusals.answered()
    assert not refusals.full
    refusals.refused()
    now += 0.019
    assert refusals.full
    now += 0.002
    assert not refusals.full
