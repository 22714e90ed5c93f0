"""Programs of torch.export that try to do harm, made of a good one: by kind, with a seed.

Each changes the entries of an archive, by name without the folder. A name tells the kind.
"""

import copy
import io
import json
import pickle
import random
import zipfile
from collections.abc import Callable, Iterator
from typing import Any

import torch

Entries = dict[str, bytes]
Hostile = tuple[str, bytes]  # name and content

SECRET = "secret.txt"  # a file that no program may read
PWNED = "pwned"  # a file that no program may make
CODE = f"__import__('os').system('touch {PWNED}')"
EXTREMES: list[Any] = [
    -1,
    2,
    2**31,
    2**62,
    2**63 - 1,
    2**63,
    -(2**63),
    10**30,
    0.5,
    1e308,
    True,
    None,
    "",
    "x",
    [],
    {},
    [[]],
]


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


def hostile_programs(good: bytes, graph: str, count: int, seed: int = 0) -> Iterator[Hostile]:
    """Yield `count` archives. good: a program with a convolution; graph: its name."""
    chance, entries = random.Random(seed), entries_of(good)
    kinds = [_operators, _functions, _files, _writes, _weights, _code, _json, _results, _records, _names]
    makers = [kind(entries, graph, chance) for kind in kinds]
    for number in range(count):
        kind = number % len(kinds)
        yield f"{number:05}{kinds[kind].__name__}", next(makers[kind])


def _changed(entries: Entries, name: str, change: Callable[[Any], object]) -> bytes:
    document = json.loads(entries[name])
    change(document)
    return packed({**entries, name: json.dumps(document).encode()})


def _with_graph(entries: Entries, graph: str, change: Callable[[Any], object]) -> bytes:
    return _changed(entries, f"models/{graph}.json", change)


def _nodes(program: Any) -> list[Any]:
    nodes: list[Any] = program["graph_module"]["graph"]["nodes"]
    return nodes


# --- kinds; each yields without end ---


def _operators(entries: Entries, graph: str, chance: random.Random) -> Iterator[bytes]:
    """Operators that torch has registered, in place of another."""
    names = sorted(torch._C._dispatch_get_all_op_names())
    chance.shuffle(names)
    while True:
        for name in names:
            space, _, rest = name.partition("::")
            function, _, overload = rest.partition(".")

            def change(
                program: Any, target: str = f"torch.ops.{space}.{function}.{overload or 'default'}"
            ) -> None:
                chance.choice(_nodes(program))["target"] = target

            yield _with_graph(entries, graph, change)


def _functions(entries: Entries, graph: str, chance: random.Random) -> Iterator[bytes]:
    """Python's functions in place of operators, with a text as argument."""
    targets = [
        *(
            "torch.load",
            "torch.hub.load",
            "torch.ops.load_library",
            "torch.ops.load_library.__call__.__func__",
        ),
        *(
            "torch.ops.__class__.mro.default",
            "torch.ops.aten.__dict__.default",
            "torch.ops.aten.relu.__class__",
        ),
        *(
            "_operator.attrgetter",
            "_operator.methodcaller",
            "_operator.call",
            "_operator.getitem",
            "_operator.xor",
        ),
        *(
            "math.__loader__.load_module",
            "os.system",
            "builtins.eval",
            "exec",
            "#ext:load",
            "torch.classes.load",
        ),
        *(
            "torch.ops.higher_order.cond",
            "torch.ops.aten",
            "torch.ops.",
            "",
            "torch.utils.cpp_extension.load",
        ),
    ]
    texts = [PWNED, CODE, "system", "__globals__", f"touch {PWNED}"]
    while True:

        def change(program: Any) -> None:
            node = chance.choice(_nodes(program))
            node["target"] = chance.choice(targets)
            value = {"as_string": chance.choice(texts)}
            if chance.random() < 0.7:
                node["inputs"] = [{"name": "path", "arg": value, "kind": 1}] * chance.choice((1, 1, 2))

        yield _with_graph(entries, graph, change)


def _files(entries: Entries, graph: str, chance: random.Random) -> Iterator[bytes]:
    """Operators that read or write files, as they are called."""
    while True:
        target, inputs = chance.choice(
            [
                ("aten.from_file.default", {"filename": {"as_string": PWNED}, "shared": {"as_bool": True}}),
                ("aten.from_file.default", {"filename": {"as_string": SECRET}, "size": {"as_int": 4}}),
                ("lensbox_jpeg.read_files.default", {"paths": {"as_strings": [SECRET]}}),
                ("aten._print.default", {"s": {"as_string": "printed"}}),
                ("profiler._record_function_enter_new.default", {"name": {"as_string": "x"}}),
            ]
        )

        def change(program: Any, target: str = target, inputs: Any = inputs) -> None:
            named = [{"name": name, "arg": value, "kind": 1} for name, value in inputs.items()]
            size = [{"name": "size", "arg": {"as_int": 64}, "kind": 1}] * ("shared" in inputs)
            tensor = {"as_tensor": {"name": "own"}}
            outputs = [{"as_tensors": [{"name": "own"}]} if "paths" in inputs else tensor]
            node = {
                "target": f"torch.ops.{target}",
                "inputs": named + size,
                "outputs": outputs,
                "metadata": {},
            }
            _nodes(program).insert(chance.randrange(3), {**node, "name": "own"})

        yield _with_graph(entries, graph, change)


def _writes(entries: Entries, graph: str, chance: random.Random) -> Iterator[bytes]:
    """Writes into weights and inputs: as they are, as views, and through what may return its argument."""
    ways: list[tuple[str, Any]] = [
        ("detach", {}), ("alias", {}), ("contiguous", {}), ("clone", {}), ("lift_fresh", {}),
        ("dropout", {"p": {"as_float": 0.5}, "train": {"as_bool": False}}), ("flatten.using_ints", {}),
        ("feature_dropout", {"p": {"as_float": 0.5}, "train": {"as_bool": False}}), ("resolve_conj", {}),
        ("to.dtype", {"dtype": {"as_scalar_type": 7}}), ("view", {"size": {"as_ints": [-1]}}), ("ravel", {}),
        ("reshape", {"shape": {"as_ints": [-1]}}), ("real", {}), ("positive", {}), ("t", {}),
        ("native_dropout", {"p": {"as_float": 0.5}, "train": {"as_bool": False}}), ("square", {}),
    ]  # fmt: skip
    writers = ["relu_", "zero_", "sigmoid_", "set_", "resize_", "neg_", "detach_", "squeeze_"]
    while True:

        def change(program: Any) -> None:
            specs = program["graph_module"]["signature"]["input_specs"]
            spec = next(iter(chance.choice(specs).values()))
            first = spec["arg"].get("as_tensor", spec["arg"])["name"]
            added = []
            for number in range(chance.randrange(3)):
                name, others = chance.choice(ways)
                inputs = [
                    {"name": "input" if "dropout" in name else "self", "arg": {"as_tensor": {"name": first}}}
                ]
                inputs += [{"name": key, "arg": value} for key, value in others.items()]
                added.append((name, inputs, f"way{number}"))
                first = f"way{number}"
            added.append(
                (chance.choice(writers), [{"name": "self", "arg": {"as_tensor": {"name": first}}}], "own")
            )
            for name, inputs, result in reversed(added):
                target = f"torch.ops.aten.{name}" + ("" if "." in name else ".default")
                outputs = [{"as_tensor": {"name": result}}] * (2 if name == "native_dropout" else 1)
                node = {
                    "target": target,
                    "inputs": inputs,
                    "outputs": outputs,
                    "metadata": {},
                    "name": result,
                }
                _nodes(program).insert(0, node)

        yield _with_graph(entries, graph, change)


def _weights(entries: Entries, graph: str, chance: random.Random) -> Iterator[bytes]:
    """Weights beyond their records, of other records, and pickled ones."""
    config = f"data/weights/{graph}_weights_config.json"
    paths = [
        "../data/weights/weight_0",
        "../../models/model.json",
        "/etc/passwd",
        SECRET,
        "",
        "weight_99",
        ".",
    ]
    while True:

        def change(document: Any) -> None:
            payload = chance.choice(list(document["config"].values()))
            meta = payload["tensor_meta"]
            what = chance.randrange(6)
            if what == 0:
                payload["path_name"] = chance.choice(paths)
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

        yield _changed(entries, config, change)


def _code(entries: Entries, graph: str, chance: random.Random) -> Iterator[bytes]:
    """Code in texts that torch evaluates, and in records that it unpickles."""
    stream = io.BytesIO()
    torch.save({"x": MakingFile()}, stream)
    pickles = [pickle.dumps(MakingFile()), stream.getvalue()]
    while True:
        what = chance.randrange(6)
        if what < 3:
            name = chance.choice(
                [
                    f"data/sample_inputs/{graph}.pt",
                    "data/constants/custom_obj_0",
                    "data/constants/opaque_obj_0",
                    "data/weights/weight_9",
                    "data/aotinductor/model/model.so",
                    f"data/constants/{graph}.pt",
                ]
            )
            yield packed({**entries, name: chance.choice(pickles)})
            continue

        def change(program: Any, what: int = what) -> None:
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
                node = chance.choice(_nodes(program))
                node["metadata"] = {"stack_trace": CODE, "custom": CODE, "source_fn_stack": f"x,torch.{CODE}"}
                module["module_call_graph"] = [{"fqn": CODE, "signature": None}]

        yield _with_graph(entries, graph, change)


def _json(entries: Entries, graph: str, chance: random.Random) -> Iterator[bytes]:
    """Any value of the JSON replaced, removed or nested."""
    name = f"models/{graph}.json"
    while True:
        document = json.loads(entries[name])
        for _ in range(chance.choice((1, 1, 3))):
            place: Any = document if chance.random() < 0.2 else chance.choice(_nodes(document) or [document])
            while True:
                keys = list(place) if isinstance(place, dict) else list(range(len(place)))
                if not keys:
                    break
                key = chance.choice(keys)
                if isinstance(place[key], (dict, list)) and place[key] and chance.random() < 0.8:
                    place = place[key]
                    continue
                if isinstance(place, dict) and chance.random() < 0.2:
                    del place[key]
                else:
                    place[key] = copy.deepcopy(
                        chance.choice([*EXTREMES, float("nan"), float("inf"), 3, "as_int"])
                    )
                break
        text = json.dumps(document)
        if chance.random() < 0.1:
            text = text.replace("[", "[" * chance.choice((50, 100_000)), 1)
        yield packed({**entries, name: text.encode()})


def _results(entries: Entries, graph: str, chance: random.Random) -> Iterator[bytes]:
    """Other numbers of results, results named twice, and values that come later."""
    while True:

        def change(program: Any) -> None:
            nodes = _nodes(program)
            node, other = chance.choice(nodes), chance.choice(nodes)
            what = chance.randrange(6)
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
                program["graph_module"]["graph"]["outputs"] = copy.deepcopy(
                    chance.choice([[], node["outputs"], [{"as_int": 1}], [{"as_tensor": {"name": "none"}}]])
                )

        yield _with_graph(entries, graph, change)


def _records(entries: Entries, graph: str, chance: random.Random) -> Iterator[bytes]:
    """Records that are missing, exchanged, compressed, twice or outside of the folder; cut archives."""
    while True:
        names, what = list(entries), chance.randrange(7)
        one, other = chance.choice(names), chance.choice(names)
        if what == 0:
            yield packed({name: value for name, value in entries.items() if name != one})
        elif what == 1:
            yield packed({**entries, one: entries[other]})
        elif what == 2:
            yield packed(entries, zipfile.ZIP_DEFLATED)
        elif what == 3:
            yield packed(
                {**entries, chance.choice([one.upper(), f"../{one}", f"../../{PWNED}"]): entries[other]}
            )
        elif what == 4:
            whole = packed(entries)
            yield whole[: chance.randrange(len(whole))]
        elif what == 5:
            yield packed({**entries, "byteorder": b"big", "models/evil.json": b"{}"})
        else:
            changed = bytearray(packed(entries))
            for _ in range(chance.choice((1, 8))):
                changed[chance.randrange(len(changed))] = chance.randrange(256)
            yield bytes(changed)


def _names(entries: Entries, graph: str, chance: random.Random) -> Iterator[bytes]:
    """Names of values that are code where a reader writes them into a source."""
    name = f"models/{graph}.json"
    evil = [
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
    while True:
        document = json.loads(entries[name])
        outputs = [next(iter(node["outputs"][0].values())) for node in _nodes(document) if node["outputs"]]
        old = chance.choice(
            [value["name"] for value in outputs if isinstance(value, dict) and "name" in value]
        )
        new = json.dumps(chance.choice(evil))
        yield packed({**entries, name: entries[name].replace(json.dumps(old).encode(), new.encode())})
