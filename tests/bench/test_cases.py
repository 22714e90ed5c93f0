"""The list of cases."""

from lensbox.bench.cases import Case, all_cases
from lensbox.bench.groups import EXERCISE, GROUPS


def test_titles_of_cases_differ() -> None:
    for device in ("cpu", "cuda"):
        titles = [case.title for case in all_cases(device, quick=False, threads=1)]
        assert len(set(titles)) == len(titles)


def test_a_title_names_shape_and_dtypes() -> None:
    case = Case("headline", "loss", "forward", "cuda", 2, 3, 0.5)
    assert case.title == "loss, forward, [2, 3], fill 50%, bfloat16/uint8, CUDA"


def test_groups_are_those_that_can_be_named() -> None:
    groups = {case.group for case in all_cases("cuda", quick=False, threads=1)}
    assert groups == set(GROUPS) - {EXERCISE}


def test_figures_of_the_cpu_take_one_thread_whatever_is_asked_for() -> None:
    cases = all_cases("cpu", quick=True, threads=8)
    assert {case.threads for case in cases if case.group == "cpu"} == {1}
    assert {case.threads for case in cases if case.group != "cpu"} == {8}


def test_sizes_span_what_was_asked_for() -> None:
    sizes = [case for case in all_cases("cuda", quick=False, threads=1) if case.group == "sizes"]
    assert {case.batch for case in sizes} >= {1, 4096}
    assert {case.slots for case in sizes} >= {16, 1024}
    assert {case.fill for case in sizes} >= {0.01, 1.0}
