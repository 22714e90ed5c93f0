"""Find the weights of a module in a checkpoint, at any depth."""

import re
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from torch import Tensor, nn

from lensbox.export.checkpoint import State, Target, Weights

# Averages that optimizers keep beside the state of each parameter, such as `ax` of torch.optim.ASGD.
_AVERAGE = re.compile(r"(^|_)(ax|ema|swa|shadow|averaged?)(_|$)")


def find_weights(checkpoint: Any, wanted: Sequence[Target]) -> list[Weights]:
    """Return all tensors of a checkpoint that may be weights of a target, those with a short path first.

    Searched are mappings, lists, tuples and modules at any depth. A list without names is in the order of
    `nn.Module.parameters`, as averages often are.
    """
    found: list[Weights] = []
    seen: dict[int, object] = {}  # keeps the objects, so that no other object gets their id
    waiting: deque[tuple[tuple[object, ...], Any]] = deque([((), checkpoint)])
    while waiting:
        place, value = waiting.popleft()
        if isinstance(value, nn.Module):
            value = value.state_dict()
        if not isinstance(value, Mapping | list | tuple) or id(value) in seen:
            continue
        seen[id(value)] = value
        if isinstance(value, Mapping):
            items = list(value.items())
            found += _in_mapping(place, {str(name): one for name, one in items}, wanted)
            found += _in_optimizer(place, value, wanted)
        else:
            items = list(enumerate(value))
            found += _in_order(place, value, wanted)
        waiting.extend(((*place, key), one) for key, one in items)
    return found


def _in_mapping(place: tuple[object, ...], mapping: State, wanted: Sequence[Target]) -> Iterator[Weights]:
    """Yield the weights in a mapping, by prefix of the names, for the target that fits a prefix best."""
    tensors = {
        name: value
        for name, value in mapping.items()
        if isinstance(value, Tensor) or name.endswith("_extra_state")
    }
    if not any(isinstance(value, Tensor) for value in tensors.values()):
        return
    known: dict[str, list[dict[str, str]]] = {"": [{} for _ in wanted]}  # by prefix and target
    for name in tensors:
        parts = name.split(".")
        for start in range(len(parts)):
            for index, target in enumerate(wanted):
                if (own := target.name_of(parts[start:])) is not None:
                    prefix = "".join(f"{part}." for part in parts[:start])
                    known.setdefault(prefix, [{} for _ in wanted])[index].setdefault(own, name)

    def is_complete(target: Target, matched: frozenset[str]) -> bool:
        return bool(matched) and not target.lacking(dict.fromkeys(matched))

    best: dict[str, tuple[Target, dict[str, str], frozenset[str]]] = {}
    for prefix, names in known.items():
        rows = [
            (
                target,
                {name: own for own, name in by_own.items()},
                frozenset(own for own, name in by_own.items() if target.takes(own, tensors[name])),
            )
            for target, by_own in zip(wanted, names, strict=True)
        ]
        best[prefix] = max(rows, key=lambda row: (is_complete(row[0], row[2]), len(row[2])))
    claimed: set[str] = set()  # names in complete weights, which are no surplus of others
    for prefix in sorted(best, key=len):
        target, names_of, matched = best[prefix]
        if is_complete(target, matched) and not claimed.issuperset(names_of):
            claimed.update(names_of)
        elif prefix and claimed.issuperset(names_of):  # a part of other weights that has such names
            del best[prefix]
    for prefix, (target, names_of, matched) in best.items():
        state = {
            names_of.get(name, name.removeprefix(prefix)): value
            for name, value in tensors.items()
            if name in names_of or (name.startswith(prefix) and name not in claimed)
        }
        yield Weights((*place, prefix) if prefix else place, target, state, matched)


def _in_order(
    place: tuple[object, ...], values: Sequence[Any], wanted: Sequence[Target]
) -> Iterator[Weights]:
    """Yield weights without names."""
    whole = wanted[0]
    for names in whole.orders:
        state = dict(zip(names, values, strict=False))
        if 0 < len(names) == len(values) and all(
            isinstance(value, Tensor) and whole.takes(name, value) for name, value in state.items()
        ):
            yield Weights(place, whole, state, frozenset(names), named=False)


def _in_optimizer(
    place: tuple[object, ...], states: Mapping[Any, Any], wanted: Sequence[Target]
) -> Iterator[Weights]:
    """Yield averages in the states of an optimizer, which are mappings by the number of the parameter."""
    if states and all(isinstance(key, int) and isinstance(one, Mapping) for key, one in states.items()):
        rows = [states[key] for key in sorted(states)]
        for name in filter(_AVERAGE.search, map(str, rows[0])):
            yield from _in_order((*place, "*", name), [row.get(name) for row in rows], wanted)
