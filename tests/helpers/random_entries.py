"""Pickles and TorchScript sources that are right or nearly so, from a seed.

Damage to a real file seldom reaches the rules behind the first one. These are put together of pieces that the
checks of both runtimes know, so that many pass and most others fail late.
"""

import random
import struct

_TENSOR = "torch._utils _rebuild_tensor_v2"
_GLOBALS = [
    _TENSOR,
    "collections OrderedDict",
    "torch device",
    "torch.jit._pickle restore_type_tag",
    "torch.jit._pickle build_intlist",
    "torch.jit._pickle build_tensorlist",
    "torch FloatStorage",
    "torch ComplexDoubleStorage",
    "__torch__ Net",
    "__torch__.a.b Net",
    "__torch__.a.b 1Net",
    "__torch__.1.b Net",
    "__torch__. Net",
    "__torch__..a Net",
    "__torch__.torch.classes.a B",
    "__torch__.torch classes",
    "__torch__x Net",
    "os system",
]
_TEXTS = [
    b"storage",
    b"0",
    b"1",
    b"2",
    b"cpu",
    b"Dict[str, Tensor]",
    b"(" * 17,
    b"\xc3\xa9",
    b"\xff",
    b"a\0b",
    b"",
]
_NUMBERS = [0, 1, 2, 3, 8, 9, 16, 17, 255, 65535, 2**31 - 1, 2**32, 2**62, 2**63 - 1, -1, -(2**63)]


def random_pickle(rng: random.Random) -> bytes:
    """Of a value that may be deep, and for which there are the records data/0 of 64 bytes and data/1 of 8."""
    value = _value(rng, rng.choice([2, 3, 3, 70]))
    content = bytearray(b"\x80\x02" + value + b".")
    for _ in range(rng.choice([0, 0, 0, 1, 2])):
        position = rng.randrange(len(content))
        content[position : position + rng.randrange(3)] = rng.choice(
            [b"", b"q\0", b"h\0", b"(", b"t", b"\x85", b"N", b"e"]
        )
    return bytes(content)


def _value(rng: random.Random, depth: int) -> bytes:
    if depth > 5:  # a chain, since a tree so deep would be too large
        inner, levels = _value(rng, 1), rng.randrange(58, 68)
        return rng.choice([_nested_lists, _nested_tuples, _nested_states])(inner, levels)
    plain = [
        b"N",
        b"\x88",
        b"\x89",
        _text(rng),
        _integer(rng),
        b"G" + struct.pack(">d", rng.random()),
        b")",
        b"]",
        b"}",
    ]
    if depth == 0:
        return rng.choice(plain)
    items = b"".join(_value(rng, depth - 1) for _ in range(rng.randrange(4)))
    one = _value(rng, depth - 1)
    return rng.choice(
        [
            rng.choice(plain),
            b"(" + items + b"t",
            one + b"\x85",
            b"](" + items + b"e",
            b"]q\0" + one + b"a",
            b"}(" + items + b"u",
            b"}" + _text(rng) + one + b"s",
            _global(rng) + b")\x81" + one + b"b",
            _global(rng) + b"(" + items + b"tR",
            _global(rng) + one + b"R",
            _tensor(rng),
            _tensor(rng),
            _named("torch.jit._pickle restore_type_tag") + b"(" + one + _text(rng) + b"tR",
            _named("torch.jit._pickle build_intlist") + b"(](" + items + b"etR",
            one + b"q\0" + b"h\0\x86",
            _global(rng),
        ]
    )


def _nested_lists(inner: bytes, levels: int) -> bytes:
    return b"]" * levels + inner + b"a" * levels


def _nested_tuples(inner: bytes, levels: int) -> bytes:
    return inner + b"\x85" * levels


def _nested_states(inner: bytes, levels: int) -> bytes:
    return (_named("__torch__ Net") + b")\x81") * levels + inner + b"b" * levels


def _named(name: str) -> bytes:
    return b"c" + name.replace(" ", "\n").encode() + b"\n"


def _global(rng: random.Random) -> bytes:
    return _named(rng.choice(_GLOBALS))


def _text(rng: random.Random) -> bytes:
    text = rng.choice(_TEXTS)
    return b"X" + struct.pack("<I", len(text)) + text


def _integer(rng: random.Random) -> bytes:
    number = rng.choice(_NUMBERS)
    size = rng.choice([(number.bit_length() + 8) // 8, 8, 9]) if number else rng.choice([0, 1])
    return b"\x8a" + bytes([size]) + number.to_bytes(size, "little", signed=True)


def _small(rng: random.Random) -> bytes:
    return b"K" + bytes([rng.choice([0, 1, 1, 2, 2, 3, 4, 8])]) if rng.random() < 0.9 else _integer(rng)


def _tensor(rng: random.Random) -> bytes:
    kind = rng.choice(
        ["torch FloatStorage", "torch ByteStorage", "torch DoubleStorage", rng.choice(_GLOBALS)]
    )
    name = rng.choice([b"0", b"0", b"1", b"2"])
    key = b"X" + struct.pack("<I", len(name)) + name
    storage = b"(X\7\0\0\0storage" + _named(kind) + key + b"X\3\0\0\0cpu" + _small(rng) + b"tQ"
    dims = rng.randrange(4)
    sizes, strides = (b"(" + b"".join(_small(rng) for _ in range(dims)) + b"t" for _ in range(2))
    hooks = rng.choice([_named("collections OrderedDict") + b")R", b"}"])
    return _named(_TENSOR) + b"(" + storage + _small(rng) + sizes + strides + b"\x89" + hooks + b"tR"


_WORDS = [
    "torch",
    "torch.add",
    "torch.save",
    "ops",
    "ops.lensbox.giou",
    "ops.aten.add",
    "ops.prim.x",
    "__torch__",
    "__torch__.a.B",
    "__torch__.torch.classes.a",
    "getattr",
    'getattr(x, "0")',
    'getattr(x, "0"',
    'getattr(x, "save")',
    "fork",
    "x",
    "not",
    "in",
    "inx",
    "is",
    "notx",
    "elif",
    "if",
    "and",
    "autograd",
    *"()[]{},:;=+-*/%@<>!&|^~.\\\"'#\t\0",
    "...",
    '"a"',
    '""',
    '"\\""',
    '"é"',
    "1",
    "1.",
    "1.5e3",
    "1.e5x",
    "1e",
    "1e+",
    "1j",
    "1.real",
    "0x1",
    "1_0",
    ".5",
    "\n",
    "\n  ",
    "\n" + " " * 400,
    "\n" + " " * 401,
    " " * 401,
    "(" * 62,
    "- " * 1990,
    "elif " * 1999,
]


def random_code(rng: random.Random) -> bytes:
    """A line or more of words that both checks know, most of them in no order."""
    size = rng.choice([1, 2, 3, 5, 8, 20])
    return "".join(rng.choice(_WORDS) + rng.choice(["", " "]) for _ in range(size)).encode()
