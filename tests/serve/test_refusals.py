"""A front end that was refused by an engine does not decode for it until that has places again."""

from random import Random

from lensbox.serve.processes.refusals import Refusals


def test_an_engine_is_full_until_it_answers_or_for_a_moment() -> None:
    now = 100.0
    refusals = Refusals(10, lambda: now)
    assert refusals.has_room(0)
    refusals.refused(1)
    assert not refusals.has_room(0)
    refusals.answered()
    assert refusals.has_room(0)
    refusals.refused(1)
    now += 0.019
    assert not refusals.has_room(0)
    now += 0.002
    assert refusals.has_room(0)


def test_fewer_are_let_in_after_a_round_with_refusals_and_one_more_after_each_without() -> None:
    now = 100.0
    refusals = Refusals(100, lambda: now)

    def window() -> int:
        return sum(map(refusals.has_room, range(200)))

    assert window() == 100
    for jobs in range(40, 30, -1):  # ten of forty that were on their way: one round
        refusals.refused(jobs)
    for _ in range(30):
        refusals.answered()
    assert window() == 31
    for _ in range(31):
        refusals.answered()
    assert window() == 32
    refusals.refused(32)
    now += 0.1
    assert window() == 24
    for _ in range(100):  # however often, one stays
        refusals.refused(1)
        now += 0.1
    assert window() == 1
    now += 1.1
    assert window() == 100


def test_front_ends_share_an_engine_and_keep_it_busy() -> None:
    """Nine front ends to which more comes than the engine does: it never idles, and refuses few."""
    clock, size, batch, decoding = [0.0], 64, 64, 3
    front_ends = [Refusals(size + batch, lambda: clock[0]) for _ in range(9)]
    let_in = [0] * 9
    queue: list[int] = []
    decoded: list[tuple[float, int]] = []
    answered = refused = idle = 0
    random = Random(0)
    for tick in range(4000):  # ticks of a millisecond, in which three requests come to each; 20 a batch
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
