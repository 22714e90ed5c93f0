"""Admission control of front ends that share an engine."""

from lensbox.serve.processes.admission_window import AdmissionWindow


def test_pauses_after_a_refusal_until_an_answer() -> None:
    now = 100.0
    window = AdmissionWindow(10, lambda: now)
    assert window.has_room(0)
    window.refused(1)
    assert not window.has_room(0)
    window.answered()
    assert window.has_room(0)
    window.refused(1)
    now += 0.019
    assert not window.has_room(0)
    now += 0.002
    assert window.has_room(0)


def test_window_decreases_by_a_quarter_and_increases_by_one() -> None:
    now = 100.0
    window = AdmissionWindow(100, lambda: now)

    def size() -> int:
        return sum(map(window.has_room, range(200)))

    assert size() == 100
    for jobs in range(40, 30, -1):  # ten refusals of forty jobs in flight count as one round
        window.refused(jobs)
    for _ in range(30):
        window.answered()
    assert size() == 31
    for _ in range(31):
        window.answered()
    assert size() == 32
    window.refused(32)
    now += 0.1
    assert size() == 24
    for _ in range(100):  # the window never falls below 1
        window.refused(1)
        now += 0.1
    assert size() == 1
    now += 1.1
    assert size() == 100
