"""Rules for every op of the namespace: a kernel on each backend, and the same values in every kind of call.

The samples come from `op_samples`; an op without a sample fails the first test. `test_cuda.py` has the rules
that only a GPU can show.
"""

import warnings
from collections.abc import Callable

import pytest
import torch
from box_reference import random_boxes
from op_samples import (
    SAMPLES,
    Sample,
    as_list,
    assert_same,
    every_sample,
    holds_tensors,
    make_inputs,
    map_tensors,
    name_of,
)
from torch import Tensor
from torch.autograd import forward_ad

from lensbox.ops import giou, masked_giou_loss, pairwise_giou
from lensbox.runtime.torchscript import quiet_torchscript

# The dispatch keys of ops that call other ops, and so need no kernel for each backend, and their own kernels.
COMPOSITE = {"CompositeExplicitAutograd": ["Autograd"], "CompositeImplicitAutograd": []}


def registered_ops() -> list[str]:
    names = [name for name in torch._C._dispatch_get_all_op_names() if name.startswith("lensbox::")]
    return sorted(name.removeprefix("lensbox::") for name in names)


def has_kernel(op: str, key: str) -> bool:
    return bool(torch._C._dispatch_has_kernel_for_dispatch_key(f"lensbox::{op}", key))


def is_composed(op: str) -> bool:
    """Return whether an op consists of torch's ops, which tracers see."""
    return has_kernel(op, "CompositeImplicitAutograd")


trained_samples = pytest.mark.parametrize("sample", [one for one in SAMPLES if one.trains], ids=name_of)
# torch's tracers take a second for each sample: `make test` has the first one of each public op.
FIRST_OF_EACH_OP = {sample.op: sample for sample in reversed(SAMPLES) if not sample.op.startswith("_")}
public_samples = pytest.mark.parametrize(
    "sample",
    [
        pytest.param(
            sample,
            id=name_of(sample),
            marks=[pytest.mark.exhaustive] * (sample not in FIRST_OF_EACH_OP.values()),
        )
        for sample in SAMPLES
    ],
)


def test_every_op_has_samples() -> None:
    sampled = {sample.op for sample in SAMPLES}
    assert sorted(set(registered_ops()) - sampled) == [], "they have no row in tests/helpers/op_samples.py"
    assert sorted(sampled - set(registered_ops())) == [], "the op library has none of these"
    assert len({sample.name for sample in SAMPLES}) == len(SAMPLES)


@pytest.mark.parametrize("op", registered_ops())
def test_every_backend_has_a_kernel(op: str) -> None:
    # Without CUDA, the CUDA kernel raises an error. Without a derivative, so does the Autograd kernel.
    needed = next(
        (keys for key, keys in COMPOSITE.items() if has_kernel(op, key)), ["CPU", "CUDA", "Meta", "Autograd"]
    )
    missing = [key for key in needed if not has_kernel(op, key)]
    assert missing == [], 'docs/ops_development.md, "Files of a new op", has the file for each'


@pytest.mark.parametrize("op", registered_ops())
def test_every_op_is_tagged(op: str) -> None:
    name, _, overload = op.partition(".")
    tags = getattr(getattr(torch.ops.lensbox, name), overload or "default").tags
    assert torch.Tag.pt2_compliant_tag in tags
    # The op reads its thresholds on the host; a captured graph cannot repeat that read.
    assert (torch.Tag.cudagraph_unsafe in tags) == (op == "padded_nms.tensor_thresholds")


@pytest.mark.parametrize("sample", [one for one in SAMPLES if one.op.endswith("_backward")], ids=name_of)
def test_gradient_of_an_output_has_its_dtype(device: torch.device, sample: Sample) -> None:
    grad, *others = sample.arguments(make_inputs(device))
    with pytest.raises(TypeError, match=r"grad must have the dtype of the output \(Float\), got Double"):
        sample.overload(grad.double(), *others)


@pytest.mark.parametrize("layout", [torch.strided, torch.jagged])
@pytest.mark.parametrize("function", [giou, pairwise_giou, masked_giou_loss])
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_rejects_nested_tensors(function: Callable[..., Tensor], layout: torch.layout) -> None:
    boxes = torch.nested.nested_tensor([torch.rand(2, 4), torch.rand(3, 4)], layout=layout)
    with pytest.raises(TypeError, match="tensors must not be nested"):
        function(boxes, boxes)


@pytest.mark.parametrize("function", [giou, pairwise_giou, masked_giou_loss])
def test_more_dimensions_with_strides_than_a_kernel_takes(
    device: torch.device, function: Callable[..., Tensor]
) -> None:
    every_other = tuple([slice(None, None, 2)] * 9)
    a, b = (random_boxes(*[4] * 9).to(device)[every_other] for _ in range(2))
    a.requires_grad_()
    outcomes = []
    for x, y in ((a, b), (a.contiguous(), b.contiguous())):
        out = function(x, y)
        grad_output = torch.ones([4] * out.dim(), device=device)[tuple([slice(None, None, 2)] * out.dim())]
        outcomes.append([out, *torch.autograd.grad(out, a, grad_output)])
    assert_same(*outcomes)


STRIDES: dict[str, Callable[[Tensor], Tensor]] = {
    "coordinates far apart": lambda t: t.movedim(-1, 0).contiguous().movedim(0, -1) if t.dim() > 0 else t,
    "every other value": lambda t: torch.stack([t, t], -1)[..., 0],
    "unaligned": lambda t: torch.cat([t.new_zeros(1), t.flatten()])[1:].view(t.shape),
}


@pytest.mark.parametrize("layout", STRIDES.values(), ids=STRIDES.keys())
@every_sample
def test_any_strides(device: torch.device, sample: Sample, layout: Callable[[Tensor], Tensor]) -> None:
    inputs = make_inputs(device)
    torch.testing.assert_close(sample.run(inputs, layout), sample.run(inputs))


@every_sample
def test_under_autocast(device: torch.device, sample: Sample) -> None:
    inputs = make_inputs(device)
    with torch.autocast(device.type, dtype=torch.bfloat16):
        outputs = sample.run(inputs)
    assert_same(outputs, sample.run(inputs))


@trained_samples
def test_results_may_be_changed_in_place(device: torch.device, sample: Sample) -> None:
    inputs = make_inputs(device)
    arguments = sample.leaves(inputs)
    output = sample.overload(*arguments)
    output *= 2
    leaves = [arguments[position] for position in sample.trains]
    gradients = torch.autograd.grad(output, leaves, torch.full_like(output, 1.25))
    assert_same(list(gradients), sample.run(inputs)[1:])


@trained_samples
def test_result_requires_grad_only_if_an_input_does(device: torch.device, sample: Sample) -> None:
    arguments = sample.leaves(make_inputs(device))
    leaves = [arguments[position] for position in sample.trains]
    with torch.no_grad():
        plain = sample.overload(*arguments)
    assert not plain.requires_grad
    for leaf in leaves:
        leaf.requires_grad_(False)
    assert not sample.overload(*arguments).requires_grad
    for leaf in leaves:
        leaf.requires_grad_()
        result = sample.overload(*arguments)
        assert result.requires_grad
        assert torch.equal(result, plain)
        leaf.requires_grad_(False)


@pytest.mark.parametrize(
    ("sample", "position"),
    [(one, position) for one in SAMPLES if not is_composed(one.op) for position in one.trains],
    ids=lambda value: value.name if isinstance(value, Sample) else None,
)
@pytest.mark.filterwarnings("ignore:`torch.jit.script` is")  # called by torch itself; deprecated
def test_rejects_other_kinds_of_derivatives(device: torch.device, sample: Sample, position: int) -> None:
    arguments = sample.arguments(make_inputs(device))
    leaf = arguments[position]

    def result(value: Tensor) -> Tensor:
        output: Tensor = sample.overload(*arguments[:position], value, *arguments[position + 1 :])
        return output.sum()

    with forward_ad.dual_level(), pytest.raises(RuntimeError, match="jvp is not implemented"):
        result(forward_ad.make_dual(leaf, torch.ones_like(leaf)))
    with pytest.raises(RuntimeError, match="functorch transforms"):
        torch.func.grad(result)(leaf)


# opcheck makes non-leaf inputs, and from torch 2.14 on reads their `.grad` where pytest sees the warning.
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf Tensor:UserWarning")
@public_samples
def test_opcheck(device: torch.device, sample: Sample) -> None:
    torch.library.opcheck(sample.overload, tuple(sample.leaves(make_inputs(device))))


@pytest.mark.parametrize("sample", [one for one in SAMPLES if not one.trains], ids=name_of)
def test_ops_without_a_derivative_reject_backward(device: torch.device, sample: Sample) -> None:
    arguments = sample.arguments(make_inputs(device))
    leaves = [
        value.detach().clone().requires_grad_()
        if isinstance(value, Tensor) and value.is_floating_point()
        else value
        for value in arguments
    ]
    outputs = as_list(sample.overload(*leaves))
    if not any(isinstance(leaf, Tensor) and leaf.requires_grad for leaf in leaves):
        # Integers cannot ask for a gradient, so nobody can be misled.
        assert not any(output.requires_grad for output in outputs)
        return
    with pytest.raises(RuntimeError, match="not implemented"):
        outputs[0].sum().backward()


class Call(torch.nn.Module):
    """An op with its numbers, as a function of its tensors and lists of tensors."""

    def __init__(self, sample: Sample, arguments: list[object]) -> None:
        super().__init__()
        self.op = sample.overload
        self.arguments = [None if holds_tensors(value) else value for value in arguments]
        self.positions = [i for i, value in enumerate(arguments) if holds_tensors(value)]

    def forward(self, *values: Tensor | list[Tensor]) -> list[Tensor]:
        arguments = list(self.arguments)
        for position, value in zip(self.positions, values, strict=True):
            arguments[position] = value
        return as_list(self.op(*arguments))


def tensors_of(arguments: list[object]) -> list[Tensor | list[Tensor]]:
    """Return the arguments that hold tensors: the inputs of `Call`."""
    return [value for value in arguments if holds_tensors(value)]


@every_sample
def test_torchscript(device: torch.device, sample: Sample) -> None:
    schema = sample.overload._schema
    names = ", ".join(argument.name for argument in schema.arguments)
    typed = ", ".join(f"{argument.name}: {argument.type.annotation_str}" for argument in schema.arguments)
    source = f"def call({typed}):\n    return torch.ops.lensbox.{sample.name_of_op}({names})\n"
    with quiet_torchscript():
        scripted = torch.jit.CompilationUnit(source).call
    for _ in range(3):  # the profiling executor changes the graph after the first runs
        inputs = make_inputs(device)
        arguments = sample.leaves(inputs)
        outputs = sample.with_gradients(as_list(scripted(*arguments)), arguments)
        assert_same(outputs, sample.run(inputs))


@public_samples
def test_compile(device: torch.device, sample: Sample) -> None:
    if is_composed(sample.op):
        pytest.skip("torch.compile sees torch's ops in place of this one, and rounds them in its own way")
    inputs = make_inputs(device)
    arguments = sample.leaves(inputs)
    torch.compiler.reset()
    with warnings.catch_warnings():
        # torch's own: TF32 hints on the GPU, and deprecated calls inside its tracer.
        warnings.simplefilter("ignore")
        compiled = torch.compile(Call(sample, arguments), fullgraph=True, dynamic=True)
        outputs = compiled(*tensors_of(arguments))
    assert_same(sample.with_gradients(outputs, arguments), sample.run(inputs))


@public_samples
def test_export_with_dynamic_shapes(device: torch.device, sample: Sample) -> None:
    arguments, others = (
        sample.arguments(make_inputs(device, images, slots)) for images, slots in ((6, 40), (9, 31))
    )
    tensors = tensors_of(list(arguments))
    shapes = [
        map_tensors(value, lambda tensor: dict.fromkeys(range(tensor.dim()), torch.export.Dim.AUTO))
        for value in tensors
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own, inside its tracer
        program = torch.export.export(
            Call(sample, list(arguments)), tuple(tensors), dynamic_shapes=(tuple(shapes),)
        )
    assert sample.overload in {node.target for node in program.graph.nodes}
    assert_same(program.module()(*tensors_of(list(others))), as_list(sample.overload(*others)))
