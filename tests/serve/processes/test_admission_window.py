"""Admission control of front ends that share an engine."""

from random import Random

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


def test_front_ends_share_an_engine_and_keep_it_busy() -> None:
    """Nine overloaded front ends keep the engine busy, and the engine refuses few jobs."""
    clock, size, batch, decoding = [0.0], 64, 64, 3
    front_ends = [AdmissionWindow(size + batch, lambda: clock[0]) for _ in range(9)]
    let_in = [0] * 9
    queue: list[int] = []
    decoded: list[tuple[float, int]] = []
    answered = refused = idle = 0
    random = Random(0)
    for tick in range(4000):  # ticks of 1 ms with three requests per front end; a batch takes 20 ticks
        clock[0] += 0.001
        for index in random.sample(range(9), 9):
            for _ in range(3):
                if front_ends[index].has_room(let_in[index]):
                    let_in[index] += 1
                    decoded.append((clock[0] + 0.001 * decoding, index))
        for _, index in [one for one in decoded if one[0] <= clock[0]]:
            if len(queue) < size:
                queue.append(index)
            else:
                refused += 1
                front_ends[index].refused(let_in[index])
                let_in[index] -= 1
        decoded = [one for one in decoded if one[0] > clock[0]]
        if tick % 20 == 0:
            taken, queue = queue[:batch], queue[batch:]
            idle += (batch - len(taken)) * (tick >= 1000)
            answered += len(taken) * (tick >= 1000)
            refused *= tick >= 1000
            for index in taken:
                front_ends[index].answered()
                let_in[index] -= 1
    assert idle / (answered + idle) < 0.1
    assert refused / answered < 0.2
