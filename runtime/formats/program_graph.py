"""Read a graph of torch.export. The format: torch/_export/serde/schema.py.

torch's own reader unpickles records, evaluates expressions and compiles names of the file. This reader takes
constants, weights and the names of operators from the JSON, and makes a graph of its own.
"""

import operator
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, fx, nn

from lensbox.runtime.formats.program_function import Graph, GraphInput, require_own
from lensbox.runtime.formats.program_operators import GUARDS, check_arguments, find_operator, operator_name
from lensbox.runtime.formats.program_schema import (
    ITEM_TYPES,
    GraphError,
    Json,
    constant,
    dtype_of,
    entry_of,
    exactly,
    integer,
    require,
)

# States what the trace assumed, such as its device.
_STATEMENT = "torch.ops.aten._assert_tensor_metadata.default"


def read_graph(program: Json, weights: Mapping[str, Tensor], device: torch.device) -> Graph:
    """Return the graph of a program. Raise GraphError, or another exception for JSON of another form.

    program: of a file models/NAME.json. weights: on the device, by their names in the module.
    """
    return _Reader(program, weights, device).read()


class _Reader:
    def __init__(self, program: Json, weights: Mapping[str, Tensor], device: torch.device) -> None:
        self.ranges: Json = program["range_constraints"]
        self.module: Json = program["graph_module"]
        self.weights = weights
        self.device = device
        self.graph = fx.Graph()
        # The numbers of the file's values have no place in Python's code: only their order names them.
        self.values: dict[str, fx.Node] = {}
        self.numbers: set[fx.Node] = set()  # the values that are no tensors
        self.shared: set[fx.Node] = set()  # inputs, weights, and views of them
        self.used: list[Tensor] = []
        self.inputs: list[GraphInput] = []

    def read(self) -> Graph:
        graph, signature = self.module["graph"], self.module["signature"]
        self.given = self.graph.placeholder("given")
        specs = [entry_of(spec) for spec in signature["input_specs"]]
        for kind, value in sorted(specs, key=lambda spec: spec[0] == "user_input"):  # the weights first
            self.read_input(kind, value, graph["tensor_values"])
        for node in graph["nodes"]:
            if node["target"] != _STATEMENT:
                try:
                    self.read_node(node)
                except Exception as error:
                    raise GraphError(f"it has a node of {str(node['target'])[:200]}: {error}") from error
        for spec in signature["output_specs"]:
            kind = entry_of(spec)[0]
            require(kind == "user_output", "the graph must not change inputs or weights", kind)
        outputs = []
        for output in graph["outputs"]:
            kind, value = entry_of(output)
            if kind != "as_none":
                outputs.append(self.item(kind, value))
                require(self.is_tensor(outputs[-1]), "an output must be a tensor", output)
        self.graph.output(tuple(outputs))
        ranges = {name: self.range_of(name) for input_ in self.inputs for name in input_.sizes}
        texts = {name: limits for name, limits in ranges.items() if isinstance(name, str)}
        return Graph(fx.GraphModule(nn.Module(), self.graph), self.used, self.inputs, texts)

    def range_of(self, size: int | str) -> tuple[int, int]:
        known = self.ranges.get(size, {})
        least, most = known.get("min_val"), known.get("max_val")
        return (0 if least is None else integer(least), 2**63 - 1 if most is None else integer(most))

    # --- inputs ---

    def read_input(self, kind: str, value: Json, metas: Json) -> None:
        if kind == "constant_input" or (kind == "user_input" and "as_none" in value["arg"]):
            return
        argument = value["arg"]
        if kind == "user_input":
            require("as_tensor" in argument, "an input must be a tensor", argument)
            name = exactly(str, argument["as_tensor"]["name"])
            meta = metas[name]
            sizes = [self.size_of(*entry_of(size)) for size in meta["sizes"]]
            self.inputs.append(GraphInput(name, dtype_of(meta["dtype"]), sizes))
        else:
            known = ("parameter", "buffer", "tensor_constant")
            require(kind in known, "an input must be a tensor", kind)
            weight = value[f"{kind}_name"]
            require(weight in self.weights, "the file must hold the numbers of each weight", weight)
            name = exactly(str, argument["name"])
            self.used.append(self.weights[weight])
        node = self.graph.placeholder(f"v{len(self.values)}")
        self.shared.add(node)
        self.define(name, node)

    def size_of(self, kind: str, value: Json) -> int | str:
        if kind == "as_int":
            return max(integer(value), 0)
        text: str = exactly(str, value["expr_str"])
        # A symbol as Symbol('s34', positive=True, ...), or an expression; equal texts are equal sizes.
        return text[8:].partition("'")[0] if text.startswith("Symbol('") else text

    # --- nodes ---

    def define(self, name: Json, node: fx.Node) -> None:
        require(exactly(str, name) not in self.values, "each value must have a name of its own", name)
        self.values[name] = node

    def named(self, name: Json) -> fx.Node:
        require(name in self.values, "a value must be computed before", name)
        return self.values[name]

    def is_tensor(self, item: Any) -> bool:
        return isinstance(item, fx.Node) and item not in self.numbers

    def item(self, kind: str, value: Json) -> Any:
        """Return an argument of this kind: a value of the run or a constant."""
        if kind == "as_none":
            return None
        if kind == "as_tensor":
            return self.named(value["name"])
        if kind == "as_name":
            return self.named(value)
        if kind == "as_device":
            return self.device  # wherever the graph was traced
        if kind in ("as_optional_tensor", "as_sym_int", "as_sym_float", "as_sym_bool"):
            inner, content = entry_of(value)
            allowed = ("as_none", "as_tensor", "as_name", "as_int", "as_float", "as_bool")
            require(inner in allowed, "an argument must have a known kind", inner)
            return self.item(inner, content)
        if isinstance(value, list) and kind.endswith("s"):
            return [self.item(kind[:-1], entry) for entry in value]
        return constant(kind, value)

    def fits(self, wanted: Any, item: Any) -> bool:
        """Return whether an operator takes an item as this type."""
        kind = wanted.kind()
        if kind == "OptionalType":
            return item is None or self.fits(wanted.getElementType(), item)
        if kind == "ListType":
            element = wanted.getElementType()
            items = item if isinstance(item, list) else [item]  # a number stands for equal numbers
            return all(self.fits(element, each) for each in items)
        if kind == "TensorType":
            return type(item) in (bool, int, float) or isinstance(item, fx.Node)
        return type(item) in ITEM_TYPES.get(kind, ()) or (isinstance(item, fx.Node) and item in self.numbers)

    def read_node(self, json: Json) -> None:
        name = operator_name(exactly(str, json["target"]))
        function = find_operator(name)
        if not isinstance(function, torch._ops.OpOverload):
            arguments = [self.item(*entry_of(given["arg"])) for given in json["inputs"]]
            are_numbers = all(type(each) in (bool, int, float) or each in self.numbers for each in arguments)
            require(are_numbers, "a calculation with sizes must have numbers", json["inputs"])
            self.define_results(
                self.graph.call_function(function, tuple(arguments)), ["NumberType"], json["outputs"]
            )
            return
        schema = function._schema
        known = {argument.name: argument for argument in schema.arguments}
        given: dict[str, Any] = {}
        sees_shared = False  # among the arguments that a result may be a view of
        for input_ in json["inputs"]:
            argument = known.get(input_["name"])
            assert_known = argument is not None and argument.name not in given
            require(assert_known, "the op must have each argument, once", input_["name"])
            item = self.item(*entry_of(input_["arg"]))
            assert argument is not None
            require(
                self.fits(argument.real_type, item),
                f"the argument {argument.name} must be {argument.type}",
                item,
            )
            given[argument.name] = item
            if argument.alias_info is not None:
                nodes = [
                    each for each in (item if isinstance(item, list) else [item]) if self.is_tensor(each)
                ]
                is_shared = any(node in self.shared for node in nodes)
                writes = argument.alias_info.is_write
                require(
                    not (writes and is_shared), "the graph must not change inputs or weights", input_["name"]
                )
                sees_shared |= is_shared
                for node in nodes if writes else ():
                    # Operators may return what they were given without saying so.
                    self.graph.call_function(require_own, (node, self.given, name))
        self.call(name, function, given, sees_shared, json["outputs"])

    def call(self, name: str, op: Any, given: dict[str, Any], sees_shared: bool, outputs: Json) -> None:
        arguments = op._schema.arguments
        for argument in arguments:
            has_value = argument.name in given or argument.has_default_value()
            require(has_value, "the op must have all its arguments", argument.name)
        every = {argument.name: given.get(argument.name, argument.default_value) for argument in arguments}
        check_arguments(name, every)
        if name in GUARDS:
            guard, names = GUARDS[name]
            self.graph.call_function(guard, tuple(every[key] for key in names))
        positional = [argument.name for argument in arguments if not argument.kwarg_only]
        while positional and positional[-1] not in given:
            positional.pop()
        keywords = {key: value for key, value in given.items() if key not in positional}
        node = self.graph.call_function(op, tuple(every[key] for key in positional), keywords)
        returns = op._schema.returns
        views = [sees_shared and result.alias_info is not None for result in returns]
        self.define_results(node, [result.real_type.kind() for result in returns], outputs, views)

    def define_results(
        self, node: fx.Node, types: Sequence[str], outputs: Json, are_shared: Sequence[bool] = (False,)
    ) -> None:
        """Name the results of a node. are_shared: which see what other runs see."""
        require(len(outputs) == len(types), f"the function gives {len(types)} results", outputs)
        for index, (type_, output, is_shared) in enumerate(zip(types, outputs, are_shared, strict=True)):
            kind, value = entry_of(output)
            wanted = {"TensorType": "as_tensor", "ListType": "as_tensors"}.get(type_)
            is_right = kind == wanted if wanted else kind in ("as_sym_int", "as_sym_float", "as_sym_bool")
            require(is_right, "a result must be of the function's type", output)
            result = node if len(types) == 1 else self.graph.call_function(operator.getitem, (node, index))
            if wanted is None:
                self.numbers.add(result)
                self.define(value["as_name"], result)
                continue
            for place, tensor in enumerate(value if type_ == "ListType" else [value]):
                part = result
                if type_ == "ListType":
                    part = self.graph.call_function(operator.getitem, (result, place))
                self.define(tensor["name"], part)
                if is_shared:
                    self.shared.add(part)
