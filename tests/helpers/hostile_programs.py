"""Programs of torch.export that try to do harm, made of a good one: by kind, with a seed.

Each changes the entries of an archive, by name without the folder. A name tells the kind.
"""

import copy
import functools
import io
import json
import pickle
import random
import zipfile
from collections.abc import Callable, Iterator
from typing import Any

import torch

Entries = dict[str, bytes]
Kind = Callable[[Entries, str, random.Random], bytes]

SECRET = "secret.txt"  # a file that no program may read
PWNED = "pwned"  # a file that no program may make
CODE = f"__import__('os').system('touch {PWNED}')"
EXTREMES: list[Any] = [-1, 2, 2**31, 2**62, 2**63 - 1, 2**63, -(2**63), 10**30, 0.5, 1e308, True, None]
EXTREMES += ["", "x", [], {}, [[]]]


class MakingFile:
    """An object whose unpickling makes a file."""

    def __reduce__(self) -> tuple[Any, ...]:
        return exec, (CODE,)


def entries_of(archive: bytes) -> Entries:
    """Return the entries of an archive by name without the folder."""
    with zipfile.ZipFile(io.BytesIO(archive)) as old:
        return {name.partition("/")[2]: old.read(name) for name in old.namelist()}


def packed(entries: Entries, compression: int = zipfile.ZIP_STORED) -> bytes:
    """Return an archive, in the order of the entries."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", compression) as new:
        for name, value in entries.items():
            new.writestr(f"program/{name}", value)
    return content.getvalue()


def hostile_programs(good: bytes, graph: str, count: int, seed: int = 0) -> Iterator[tuple[str, bytes]]:
    """Yield names and contents of `count` archives. good: a program with a convolution; graph: its name."""
    chance, entries = random.Random(seed), entries_of(good)
    kinds = [_operators, _functions, _files, _writes, _weights, _code, _json, _results, _records, _names]
    for number in range(count):
        kind = kinds[number % len(kinds)]
        yield f"{number:05}{kind.__name__}", kind(entries, graph, chance)


def _changed(entries: Entries, name: str, change: Callable[[Any], object]) -> bytes:
    document = json.loads(entries[name])
    change(document)
    return packed({**entries, name: json.dumps(document).encode()})


def _of_the_graph(change: Callable[[Any, random.Random], object]) -> Kind:
    """Return the kind that changes the JSON of the graph in place."""

    @functools.wraps(change)
    def kind(entries: Entries, graph: str, chance: random.Random) -> bytes:
        return _changed(entries, f"models/{graph}.json", lambda program: change(program, chance))

    return kind


def _nodes(program: Any) -> list[Any]:
    nodes: list[Any] = program["graph_module"]["graph"]["nodes"]
    return nodes


def _node(target: str, inputs: dict[str, Any], outputs: list[Any], name: str) -> dict[str, Any]:
    given = [{"name": key, "arg": value, "kind": 1} for key, value in inputs.items()]
    return {"target": target, "inputs": given, "outputs": outputs, "metadata": {}, "name": name}


# --- kinds ---


@_of_the_graph
def _operators(program: Any, chance: random.Random) -> None:
    """Operators that torch has registered, in place of another."""
    space, _, rest = chance.choice(sorted(torch._C._dispatch_get_all_op_names())).partition("::")
    function, _, overload = rest.partition(".")
    chance.choice(_nodes(program))["target"] = f"torch.ops.{space}.{function}.{overload or 'default'}"


_FUNCTIONS = [
    "torch.load", "torch.hub.load", "torch.ops.load_library", "torch.ops.load_library.__call__.__func__",
    "torch.ops.__class__.mro.default", "torch.ops.aten.__dict__.default", "torch.ops.aten.relu.__class__",
    "_operator.attrgetter", "_operator.methodcaller", "_operator.call", "_operator.getitem",
    "_operator.xor", "math.__loader__.load_module", "os.system", "builtins.eval", "exec", "#ext:load",
    "torch.classes.load", "torch.ops.higher_order.cond", "torch.ops.aten", "torch.ops.",
    "torch.utils.cpp_extension.load", "",
]  # fmt: skip


@_of_the_graph
def _functions(program: Any, chance: random.Random) -> None:
    """Python's functions in place of operators, with a text as argument."""
    node = chance.choice(_nodes(program))
    node["target"] = chance.choice(_FUNCTIONS)
    value = {"as_string": chance.choice([PWNED, CODE, "system", "__globals__", f"touch {PWNED}"])}
    if chance.random() < 0.7:
        node["inputs"] = [{"name": "path", "arg": value, "kind": 1}] * chance.choice((1, 1, 2))


_SHARED = {"filename": {"as_string": PWNED}, "shared": {"as_bool": True}, "size": {"as_int": 64}}
_FILES: list[tuple[str, dict[str, Any]]] = [
    ("aten.from_file.default", _SHARED),
    ("aten.from_file.default", {"filename": {"as_string": SECRET}, "size": {"as_int": 4}}),
    ("lensbox_jpeg.read_files.default", {"paths": {"as_strings": [SECRET]}}),
    ("aten._print.default", {"s": {"as_string": "printed"}}),
    ("profiler._record_function_enter_new.default", {"name": {"as_string": "x"}}),
]


@_of_the_graph
def _files(program: Any, chance: random.Random) -> None:
    """Operators that read or write files, as they are called."""
    target, inputs = chance.choice(_FILES)
    output = {"as_tensors": [{"name": "own"}]} if "paths" in inputs else {"as_tensor": {"name": "own"}}
    _nodes(program).insert(chance.randrange(3), _node(f"torch.ops.{target}", inputs, [output], "own"))


_DROPPED = {"p": {"as_float": 0.5}, "train": {"as_bool": False}}
# Views, copies, and what may return its argument.
_VIEWS = ["detach", "alias", "contiguous", "clone", "lift_fresh", "flatten.using_ints", "resolve_conj"]
_VIEWS += ["ravel", "real", "positive", "t", "square"]
_WAYS: dict[str, dict[str, Any]] = {
    **dict.fromkeys(("dropout", "feature_dropout", "native_dropout"), _DROPPED),
    "to.dtype": {"dtype": {"as_scalar_type": 7}},
    "view": {"size": {"as_ints": [-1]}},
    "reshape": {"shape": {"as_ints": [-1]}},
}
_WRITERS = ["relu_", "zero_", "sigmoid_", "set_", "resize_", "neg_", "detach_", "squeeze_"]


@_of_the_graph
def _writes(program: Any, chance: random.Random) -> None:
    """Writes into weights and inputs: as they are, as views, and through what may return its argument."""
    spec = next(iter(chance.choice(program["graph_module"]["signature"]["input_specs"]).values()))
    first = spec["arg"].get("as_tensor", spec["arg"])["name"]
    names = [*chance.choices([*_VIEWS, *_WAYS], k=chance.randrange(3)), chance.choice(_WRITERS)]
    for place, name in enumerate(names):
        result = "own" if name in _WRITERS else f"way{place}"
        inputs = {
            "input" if "dropout" in name else "self": {"as_tensor": {"name": first}},
            **_WAYS.get(name, {}),
        }
        target = f"torch.ops.aten.{name}" + ("" if "." in name else ".default")
        outputs = [{"as_tensor": {"name": result}}] * (2 if name == "native_dropout" else 1)
        _nodes(program).insert(place, _node(target, inputs, outputs, result))
        first = result


_PATHS = ["../data/weights/weight_0", "../../models/model.json", "/etc/passwd", SECRET, "", "weight_99", "."]


def _weights(entries: Entries, graph: str, chance: random.Random) -> bytes:
    """Weights beyond their records, of other records, and pickled ones."""

    def change(document: Any) -> None:
        payload = chance.choice(list(document["config"].values()))
        meta, what = payload["tensor_meta"], chance.randrange(6)
        if what == 0:
            payload["path_name"] = chance.choice(_PATHS)
        elif what == 1:
            payload["use_pickle"] = chance.choice([True, 1, "true", None])
        elif what == 2:
            meta["dtype"] = chance.choice([*range(40), *EXTREMES])
        elif what == 3:
            meta["storage_offset"] = {"as_int": chance.choice([*EXTREMES, 3])}
        else:
            sizes = meta["sizes" if what == 4 else "strides"]
            new = {chance.choice(["as_int", "as_int", "as_expr"]): chance.choice([*EXTREMES, 0, 7, 1000])}
            sizes[chance.randrange(len(sizes))] = new
            if chance.random() < 0.2:
                del sizes[0]

    return _changed(entries, f"data/weights/{graph}_weights_config.json", change)


_RECORDS = (
    "sample_inputs/{0}.pt constants/custom_obj_0 constants/opaque_obj_0 weights/weight_9 constants/{0}.pt"
)


def _code(entries: Entries, graph: str, chance: random.Random) -> bytes:
    """Code in texts that torch evaluates, and in records that it unpickles."""
    what = chance.randrange(6)
    if what < 3:
        stream = io.BytesIO()
        torch.save({"x": MakingFile()}, stream)
        name = chance.choice([*_RECORDS.format(graph).split(), "aotinductor/model/model.so"])
        content = chance.choice([pickle.dumps(MakingFile()), stream.getvalue()])
        return packed({**entries, f"data/{name}": content})

    def change(program: Any) -> None:
        module = program["graph_module"]
        if what == 3:
            program["range_constraints"][CODE] = {"min_val": 0, "max_val": 5}
            program["verifiers"] = [CODE]
            module["treespec_namedtuple_fields"] = {CODE: {"field_names": [CODE]}}
        elif what == 4:
            meta = chance.choice(list(module["graph"]["tensor_values"].values()))
            meta["sizes"][0] = {"as_expr": {"expr_str": CODE, "hint": None}}
        else:
            program["guards_code"] = [CODE, "L['x'].size()[0] == 2"][: chance.choice((1, 2))]
            texts = {"stack_trace": CODE, "custom": CODE, "source_fn_stack": f"x,torch.{CODE}"}
            chance.choice(_nodes(program))["metadata"] = texts
            module["module_call_graph"] = [{"fqn": CODE, "signature": None}]

    return _changed(entries, f"models/{graph}.json", change)


def _json(entries: Entries, graph: str, chance: random.Random) -> bytes:
    """Any value of the JSON replaced, removed or nested."""
    name = f"models/{graph}.json"
    document = json.loads(entries[name])
    for _ in range(chance.choice((1, 1, 3))):
        place: Any = document if chance.random() < 0.2 else chance.choice(_nodes(document) or [document])
        while keys := list(place) if isinstance(place, dict) else list(range(len(place))):
            key = chance.choice(keys)
            if isinstance(place[key], (dict, list)) and place[key] and chance.random() < 0.8:
                place = place[key]
                continue
            if isinstance(place, dict) and chance.random() < 0.2:
                del place[key]
            else:
                values = [*EXTREMES, float("nan"), float("inf"), 3, "as_int"]
                place[key] = copy.deepcopy(chance.choice(values))
            break
    text = json.dumps(document)
    if chance.random() < 0.1:
        text = text.replace("[", "[" * chance.choice((50, 100_000)), 1)
    return packed({**entries, name: text.encode()})


@_of_the_graph
def _results(program: Any, chance: random.Random) -> None:
    """Other numbers of results, results named twice, and values that come later."""
    nodes = _nodes(program)
    node, other, what = chance.choice(nodes), chance.choice(nodes), chance.randrange(6)
    if what == 0:
        node["outputs"] = []
    elif what == 1:
        node["outputs"] = node["outputs"] * 2
    elif what == 2:
        node["outputs"] = copy.deepcopy(other["outputs"])
    elif what == 3:
        place = nodes.index(node)
        nodes.insert(chance.randrange(len(nodes)), nodes.pop(place))
    elif what == 4:
        nodes.append(copy.deepcopy(node))
    else:
        outputs = [[], node["outputs"], [{"as_int": 1}], [{"as_tensor": {"name": "none"}}]]
        program["graph_module"]["graph"]["outputs"] = copy.deepcopy(chance.choice(outputs))


def _records(entries: Entries, graph: str, chance: random.Random) -> bytes:
    """Records that are missing, exchanged, compressed, twice or outside of the folder; cut archives."""
    names, what, whole = list(entries), chance.randrange(7), packed(entries)
    one, other = chance.choice(names), chance.choice(names)
    if what == 0:
        return packed({name: value for name, value in entries.items() if name != one})
    if what == 1:
        return packed({**entries, one: entries[other]})
    if what == 2:
        return packed(entries, zipfile.ZIP_DEFLATED)
    if what == 3:
        name = chance.choice([one.upper(), f"../{one}", f"../../{PWNED}"])
        return packed({**entries, name: entries[other]})
    if what == 4:
        return whole[: chance.randrange(len(whole))]
    if what == 5:
        return packed({**entries, "byteorder": b"big", "models/evil.json": b"{}"})
    changed = bytearray(whole)
    for _ in range(chance.choice((1, 8))):
        changed[chance.randrange(len(changed))] = chance.randrange(256)
    return bytes(changed)


_NAMES = [
    f"x = {CODE}",
    f"x\n    {CODE}\n    y",
    "import",
    "self",
    "given",
    "v0",
    "torch",
    "a" * 10_000,
    "../x",
]


def _names(entries: Entries, graph: str, chance: random.Random) -> bytes:
    """Names of values that are code where a reader writes them into a source."""
    name = f"models/{graph}.json"
    nodes = _nodes(json.loads(entries[name]))
    outputs = [next(iter(node["outputs"][0].values())) for node in nodes if node["outputs"]]
    old = chance.choice([value["name"] for value in outputs if isinstance(value, dict) and "name" in value])
    new = json.dumps(chance.choice(_NAMES))
    return packed({**entries, name: entries[name].replace(json.dumps(old).encode(), new.encode())})
