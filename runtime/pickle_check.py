"""Whether the pickles of an artifact say what torch may rely on; nothing in them is executed.

libtorch's unpickler is careful of what runs, but not of sizes: it takes a tensor's memory as long as the
pickle says, and a pickle's stack and memo as it finds them. So each pickle is walked first, with the few
opcodes and names that torch writes.
"""

import re
import struct
from collections.abc import Callable, Iterator, Mapping
from typing import Any

MAX_DEPTH = 64

_ITEM_SIZES = {
    "torch BoolStorage": 1,
    "torch ByteStorage": 1,
    "torch CharStorage": 1,
    "torch ShortStorage": 2,
    "torch HalfStorage": 2,
    "torch BFloat16Storage": 2,
    "torch IntStorage": 4,
    "torch FloatStorage": 4,
    "torch LongStorage": 8,
    "torch DoubleStorage": 8,
    "torch ComplexFloatStorage": 8,
    "torch ComplexDoubleStorage": 16,
}
_CLASS = re.compile(r"__torch__(\.\w+)* \w+", re.ASCII)
_TYPE = re.compile(r"[\w.,\[\]() ]{1,4096}", re.ASCII)
_MAX_TYPE_BRACKETS = 16


# The argument of an opcode: none, a constant, a number, a text or integer after its length, or two lines.
_BYTE, _INT, _UINT, _SHORT = map(struct.Struct, ("<B", "<i", "<I", "<H"))
_OPCODES: dict[int, tuple[str, struct.Struct | str | None]] = {
    0x28: ("MARK", None),
    0x29: ("EMPTY_TUPLE", None),
    0x2E: ("STOP", None),
    0x47: ("BINFLOAT", struct.Struct(">d")),
    0x4A: ("BININT", _INT),
    0x4B: ("BININT1", _BYTE),
    0x4D: ("BININT2", _SHORT),
    0x4E: ("NONE", None),
    0x51: ("BINPERSID", None),
    0x52: ("REDUCE", None),
    0x58: ("BINUNICODE", _UINT),
    0x5D: ("EMPTY_LIST", None),
    0x61: ("APPEND", None),
    0x62: ("BUILD", None),
    0x63: ("GLOBAL", "lines"),
    0x65: ("APPENDS", None),
    0x68: ("BINGET", _BYTE),
    0x6A: ("LONG_BINGET", _UINT),
    0x71: ("BINPUT", _BYTE),
    0x72: ("LONG_BINPUT", _UINT),
    0x73: ("SETITEM", None),
    0x74: ("TUPLE", None),
    0x75: ("SETITEMS", None),
    0x7D: ("EMPTY_DICT", None),
    0x80: ("PROTO", _BYTE),
    0x81: ("NEWOBJ", None),
    0x85: ("TUPLE1", None),
    0x86: ("TUPLE2", None),
    0x87: ("TUPLE3", None),
    0x88: ("NEWTRUE", None),
    0x89: ("NEWFALSE", None),
    0x8A: ("LONG1", _BYTE),
}


class DamagedPickleError(ValueError):
    """The pickle is not as torch writes it, or its tensors do not lie inside their records."""


class _Node:
    """What is on the stack besides int, str and the other plain values, which stand for themselves.

    kind: 'tuple', 'list', 'dict', 'global', 'storage', 'tensor', 'new' or 'object'; content: the items of a
    tuple, the name of a global, or a storage's number of items; is_data: whether it may be part of a value;
    growing: whether a list or dict may still get items.
    """

    __slots__ = ("content", "depth", "growing", "is_data", "kind")

    def __init__(
        self, kind: str, content: Any = None, depth: int = 1, is_data: bool = True, growing: bool = False
    ) -> None:
        self.kind, self.content, self.depth = kind, content, depth
        self.is_data, self.growing = is_data, growing


_MARK = _Node("mark", is_data=False)


def check_pickle(data: bytes, folder: str, records: Mapping[str, bytes]) -> None:
    """Checks a pickle whose tensors lie in the records `folder`/N. Raises DamagedPickleError."""
    walker = _Walker(folder, records)
    for name, argument in _operations(data):
        walker.step(name, argument)


def _operations(data: bytes) -> Iterator[tuple[str, Any]]:
    """Name and argument of each opcode, up to STOP at the end."""
    position = 0
    name = ""
    try:
        while name != "STOP":
            name, argument = _OPCODES[data[position]]
            position += 1
            value: Any = None
            if isinstance(argument, struct.Struct):
                (value,) = argument.unpack_from(data, position)
                position += argument.size
                if name in ("BINUNICODE", "LONG1"):
                    content = data[position : position + value]
                    position += value
                    value = content.decode() if name == "BINUNICODE" else _long(content)
            elif argument == "lines":
                end = data.index(b"\n", data.index(b"\n", position) + 1)
                value = data[position:end].decode("ascii").replace("\n", " ")
                position = end + 1
            yield name, value
    except KeyError as error:
        raise DamagedPickleError(f"it uses the opcode {error}, which torch does not write") from error
    except (IndexError, ValueError, struct.error) as error:
        raise DamagedPickleError(f"it is cut off or no pickle: {error}") from error
    if position != len(data):
        raise DamagedPickleError("bytes follow its end, or it is cut off")


def _long(content: bytes) -> int:
    if len(content) > 8:
        raise ValueError("an integer has more than 64 bits")
    return int.from_bytes(content, "little", signed=True)


def _kind(value: Any) -> str:
    return value.kind if isinstance(value, _Node) else type(value).__name__


class _Walker:
    """The stack and the memo of an unpickler that builds descriptions."""

    def __init__(self, folder: str, records: Mapping[str, bytes]) -> None:
        self.folder = folder
        self.records = records
        self.stack: list[Any] = []
        self.memo: list[Any] = []

    def step(self, name: str, argument: Any) -> None:
        if name in _PLAIN:
            self.stack.append(argument)
        elif name in _CONSTANTS:
            self.stack.append(_CONSTANTS[name])
        elif name in _TUPLES:
            self.stack.append(_tuple(self._pop(_TUPLES[name])))
        elif name in _NEW:
            self.stack.append(_NEW[name]())
        elif name in ("BINPUT", "LONG_BINPUT"):
            self._memoize(argument)
        elif name in ("BINGET", "LONG_BINGET"):
            self.stack.append(self._remembered(argument))
        elif name == "GLOBAL":
            self.stack.append(_global(argument))
        elif name in _OPERATIONS:
            _OPERATIONS[name](self)

    def _memoize(self, index: int) -> None:
        # torch counts up, and its unpickler makes room for any index.
        if index > len(self.memo) or not self.stack or self.stack[-1] is _MARK:
            raise DamagedPickleError("it remembers what is not there")
        self.memo[index : index + 1] = [self.stack[-1]]

    def _remembered(self, index: int) -> Any:
        if index >= len(self.memo):
            raise DamagedPickleError("it refers to what is not there")
        value = self.memo[index]
        if isinstance(value, _Node):
            value.growing = False
        return value

    def _pop(self, count: int) -> list[Any]:
        values = self.stack[-count:]
        if len(values) != count or _MARK in values:
            raise DamagedPickleError("its stack is empty too early")
        del self.stack[-count:]
        return values

    def _pop_to_mark(self) -> list[Any]:
        for index in range(len(self.stack) - 1, -1, -1):
            if self.stack[index] is _MARK:
                values = self.stack[index + 1 :]
                del self.stack[index:]
                return values
        raise DamagedPickleError("its stack is empty too early")

    def tuple(self) -> None:
        self.stack.append(_tuple(self._pop_to_mark()))

    def append(self) -> None:
        self._extend("list", self._pop(1))

    def appends(self) -> None:
        self._extend("list", self._pop_to_mark())

    def set_item(self) -> None:
        self._extend("dict", self._pop(2))

    def set_items(self) -> None:
        values = self._pop_to_mark()
        if len(values) % 2:
            raise DamagedPickleError("a dict has a key without a value")
        self._extend("dict", values)

    def _extend(self, kind: str, values: list[Any]) -> None:
        (target,) = self._pop(1)
        if _kind(target) != kind or not target.growing:
            raise DamagedPickleError(f"it adds items to what is no new {kind}")
        _require_data(values)
        target.depth = max(target.depth, _depth(values))
        self.stack.append(target)

    def new_object(self) -> None:
        kind, arguments = self._pop(2)
        if not _is_class(kind) or _kind(arguments) != "tuple" or arguments.content:
            raise DamagedPickleError("it makes an object of what is no class")
        self.stack.append(_Node("new", is_data=False))

    def build(self) -> None:
        target, state = self._pop(2)
        if _kind(target) != "new":
            raise DamagedPickleError("it gives a state to what is no new object")
        self.stack.append(_object(state))

    def persistent(self) -> None:
        """A storage: ('storage', type, key, device, number of items)."""
        (value,) = self._pop(1)
        parts: list[Any] = value.content if _kind(value) == "tuple" else []
        if [_kind(part) for part in parts] != ["str", "global", "str", "str", "int"] or parts[0] != "storage":
            raise DamagedPickleError("it refers to something other than a storage")
        item_size = _ITEM_SIZES.get(parts[1].content, 0)
        if item_size == 0:
            raise DamagedPickleError(f"it has a storage of the type {parts[1].content!r}")
        count, record = parts[4], f"{self.folder}/{parts[2]}"
        if record not in self.records:
            raise DamagedPickleError(f"its tensors need the entry {record!r}, which is not there")
        size = len(self.records[record])
        if count < 0 or count * item_size > size:
            raise DamagedPickleError(
                f"the entry {record} must hold {count} numbers of {item_size} bytes, got {size} bytes"
            )
        self.stack.append(_Node("storage", count, is_data=False))

    def reduce(self) -> None:
        function, arguments = self._pop(2)
        if _is_class(function):  # an enumeration, of which `arguments` is a value
            self.stack.append(_object(arguments))
            return
        if _kind(function) != "global" or _kind(arguments) != "tuple":
            raise DamagedPickleError("it calls what is no function")
        call = _CALLS.get(function.content)
        if call is None:
            raise DamagedPickleError(f"it calls {function.content!r}")
        self.stack.append(call(arguments.content))

    def stop(self) -> None:
        _require_data(self.stack)
        if len(self.stack) != 1:
            raise DamagedPickleError("its stack is not empty at its end")


def _tuple(values: list[Any]) -> _Node:
    return _Node("tuple", values, _depth(values), all(map(_is_data, values)))


def _depth(values: list[Any]) -> int:
    """Of what holds these values, which may not change any more."""
    depth = 1
    for value in values:
        if isinstance(value, _Node):
            value.growing = False
            depth = max(depth, value.depth + 1)
    if depth > MAX_DEPTH:
        raise DamagedPickleError(f"it is nested more than {MAX_DEPTH} levels deep")
    return depth


def _is_data(value: Any) -> bool:
    return not isinstance(value, _Node) or value.is_data


def _require_data(values: list[Any]) -> None:
    if not all(map(_is_data, values)):
        raise DamagedPickleError("it has a name, a mark or a storage where a value must be")


def _global(name: str) -> _Node:
    node = _Node("global", name, is_data=False)
    if name not in _CALLS and name not in _ITEM_SIZES and not _is_class(node):
        raise DamagedPickleError(f"it names {name[:100]!r}, which torch does not write for a detector")
    return node


def _is_class(value: Any) -> bool:
    """Whether it names a class of the file's code; those of C++ restore themselves by what a pickle says."""
    return (
        _kind(value) == "global"
        and _CLASS.fullmatch(value.content) is not None
        and not value.content.startswith("__torch__.torch.classes")
    )


def _tensor(arguments: list[Any]) -> _Node:
    """(storage, offset, sizes, strides, requires_grad, hooks)."""
    kinds = [_kind(argument) for argument in arguments]
    if kinds != ["storage", "int", "tuple", "tuple", "bool", "dict"]:
        raise DamagedPickleError("it has a tensor that is not described as torch does")
    count, offset = arguments[0].content, arguments[1]
    sizes, strides = arguments[2].content, arguments[3].content
    if any(type(value) is not int or value < 0 for value in (offset, *sizes, *strides)) or (
        len(sizes) != len(strides) or len(sizes) > MAX_DEPTH
    ):
        raise DamagedPickleError("it has a tensor with sizes or strides that none can have")
    last = offset + sum((size - 1) * stride for size, stride in zip(sizes, strides, strict=True))
    if 0 not in sizes and last >= count:
        raise DamagedPickleError(
            f"it has a tensor of sizes {sizes}, strides {strides} and offset {offset} in a storage of {count}"
        )
    return _Node("tensor")


def _typed_list(arguments: list[Any]) -> _Node:
    if [_kind(argument) for argument in arguments] != ["list"]:
        raise DamagedPickleError("it has a list that is none")
    return _Node("list", depth=_depth(arguments))


def _type_tag(arguments: list[Any]) -> Any:
    """(value, type as text); torch parses the type recursively."""
    if len(arguments) != 2 or not isinstance(arguments[1], str):
        raise DamagedPickleError("it has a type that is no text")
    value, text = arguments
    if not _TYPE.fullmatch(text) or text.count("[") + text.count("(") > _MAX_TYPE_BRACKETS:
        raise DamagedPickleError(f"it has the type {text[:100]!r}")
    _require_data([value])
    return value


def _object(state: Any) -> _Node:
    _require_data([state])
    return _Node("object", depth=_depth([state]))


def _empty_dict(arguments: list[Any]) -> _Node:
    if arguments:
        raise DamagedPickleError("it has a dict that is not empty where torch writes an empty one")
    return _Node("dict")


def _device(arguments: list[Any]) -> _Node:
    if [_kind(argument) for argument in arguments] not in (["str"], ["str", "int"]):
        raise DamagedPickleError("it has a device that is none")
    return _Node("object")


_CALLS: dict[str, Callable[[list[Any]], Any]] = {
    "torch._utils _rebuild_tensor_v2": _tensor,
    "collections OrderedDict": _empty_dict,
    "torch device": _device,
    "torch.jit._pickle restore_type_tag": _type_tag,
    "torch.jit._pickle build_intlist": _typed_list,
    "torch.jit._pickle build_doublelist": _typed_list,
    "torch.jit._pickle build_boollist": _typed_list,
    "torch.jit._pickle build_tensorlist": _typed_list,
}
_PLAIN = frozenset(("BINFLOAT", "BININT", "BININT1", "BININT2", "LONG1", "BINUNICODE"))
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
_NEW: dict[str, Callable[[], _Node]] = {
    "MARK": lambda: _MARK,
    "EMPTY_TUPLE": lambda: _Node("tuple", []),
    "EMPTY_LIST": lambda: _Node("list", growing=True),
    "EMPTY_DICT": lambda: _Node("dict", growing=True),
}
_OPERATIONS: dict[str, Callable[[_Walker], None]] = {
    "TUPLE": _Walker.tuple,
    "APPEND": _Walker.append,
    "APPENDS": _Walker.appends,
    "SETITEM": _Walker.set_item,
    "SETITEMS": _Walker.set_items,
    "NEWOBJ": _Walker.new_object,
    "BUILD": _Walker.build,
    "BINPERSID": _Walker.persistent,
    "REDUCE": _Walker.reduce,
    "STOP": _Walker.stop,
}
