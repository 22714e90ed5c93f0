// The schemas of all ops, and the kernels that refuse what no op computes, registered for the whole list.

#include <torch/csrc/autograd/autograd_not_implemented_fallback.h>
#include <torch/library.h>

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

namespace lensbox {
namespace {

using Schemas = std::initializer_list<const char*>;

// Names that begin with an underscore are internal: forward and backward halves that the autograd formulas
// call, so that torch.compile can see through them.
constexpr Schemas kWithDerivative = {  // in autograd/
    "giou(Tensor boxes1, Tensor boxes2, float eps=1e-7) -> Tensor",
    "pairwise_giou(Tensor boxes1, Tensor boxes2, float eps=1e-7) -> Tensor",
    "masked_giou_loss(Tensor pred, Tensor target, Tensor? weight=None, float eps=1e-7) -> Tensor",
    "jagged_giou_loss(Tensor pred, Tensor targets, Tensor offsets, float eps=1e-7) -> Tensor"};

// Suppression has no derivative either. To train through kept boxes, index the inputs with `indices`.
constexpr Schemas kWithoutDerivative = {
    "_giou_backward(Tensor grad, Tensor boxes1, Tensor boxes2, float eps, bool[2] output_mask)"
    " -> (Tensor, Tensor)",
    "_pairwise_giou_backward(Tensor grad, Tensor boxes1, Tensor boxes2, float eps, bool[2] output_mask)"
    " -> (Tensor, Tensor)",

    "_masked_giou_loss_forward(Tensor pred, Tensor target, Tensor? weight, float eps)"
    " -> (Tensor loss, Tensor normalizer)",
    "_masked_giou_loss_backward(Tensor grad, Tensor pred, Tensor target, Tensor? weight, Tensor? loss,"
    " Tensor normalizer, float eps, bool[3] output_mask) -> (Tensor, Tensor, Tensor)",
    "masked_giou_loss_and_grad(Tensor pred, Tensor target, Tensor? weight=None, float eps=1e-7)"
    " -> (Tensor loss, Tensor grad)",

    "_jagged_giou_loss_forward(Tensor pred, Tensor targets, Tensor offsets, float eps)"
    " -> (Tensor loss, Tensor normalizer)",
    "_jagged_giou_loss_backward(Tensor grad, Tensor pred, Tensor targets, Tensor offsets,"
    " Tensor normalizer, float eps, bool[2] output_mask) -> (Tensor, Tensor)",

    "padded_nms(Tensor boxes, Tensor scores, float iou_threshold, float score_threshold,"
    " SymInt max_candidates, SymInt max_detections, Tensor? categories=None)"
    " -> (Tensor boxes, Tensor scores, Tensor indices, Tensor counts)",
    "padded_nms.tensor_thresholds(Tensor boxes, Tensor scores, Tensor iou_threshold,"
    " Tensor score_threshold, SymInt max_candidates, SymInt max_detections, Tensor? categories=None)"
    " -> (Tensor boxes, Tensor scores, Tensor indices, Tensor counts)",

    "fit(Tensor[] images, int height, int width, str fit='letterbox', str filter='bilinear',"
    " str order='rgb', int fill=0, float[]? mean=None, float[]? std=None, ScalarType? dtype=None)"
    " -> (Tensor canvases, Tensor geometry)"};

// Composed of torch's ops: without kernels of their own.
constexpr Schemas kComposed = {"restore_boxes(Tensor boxes, Tensor geometry) -> Tensor",
                               "restore_points(Tensor points, Tensor geometry) -> Tensor",
                               "geometry_of_windows(Tensor geometry, Tensor windows) -> Tensor"};

// Return the name of an op, with that of its overload.
std::string name_of(std::string_view schema) {
  return std::string(schema.substr(0, schema.find('(')));
}

void refuse_nested_tensors(const c10::OperatorHandle& op, torch::jit::Stack* /*stack*/) {
  TORCH_CHECK_TYPE(
      false, op.schema().name(),
      ": tensors must not be nested, got a nested tensor. Pad them with torch.nested.to_padded_tensor,"
      " or use jagged_giou_loss with PackedTargets");
}

#ifndef LENSBOX_WITH_CUDA
void refuse_cuda_tensors(const c10::OperatorHandle& op, torch::jit::Stack* /*stack*/) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      false, op.schema().name(),
      ": this liblensbox_ops was built without CUDA. Build it where torch has CUDA and nvcc"
      " is on PATH, with LENSBOX_CUDA=ON.");
}
#endif

// Register a kernel for each op that has kernels.
template <c10::BoxedKernel::BoxedKernelFunction* kernel>
void implement_with(torch::Library& m) {
  for (const Schemas& schemas : {kWithDerivative, kWithoutDerivative}) {
    for (const char* schema : schemas) {
      m.impl(name_of(schema).c_str(), torch::CppFunction::makeFromBoxedFunction<kernel>());
    }
  }
}

}  // namespace
}  // namespace lensbox

TORCH_LIBRARY(lensbox, m) {
  using namespace lensbox;
  const std::vector<at::Tag> usual = {at::Tag::pt2_compliant_tag};
  // What the host reads, a CUDA graph cannot capture.
  const std::vector<at::Tag> reads_on_host = {at::Tag::pt2_compliant_tag, at::Tag::cudagraph_unsafe};
  for (const Schemas& schemas : {kWithDerivative, kWithoutDerivative, kComposed}) {
    for (const char* schema : schemas) {
      m.def(schema, name_of(schema) == "padded_nms.tensor_thresholds" ? reads_on_host : usual);
    }
  }
}

// Asking for a derivative is an error that says so.
TORCH_LIBRARY_IMPL(lensbox, Autograd, m) {
  for (const char* schema : lensbox::kWithoutDerivative) {
    m.impl(lensbox::name_of(schema).c_str(), torch::autograd::autogradNotImplementedFallback());
  }
}

// Register above the kernels for nested tensors, strided and jagged, whose messages say less.
TORCH_LIBRARY_IMPL(lensbox, AutogradNestedTensor, m) {
  lensbox::implement_with<lensbox::refuse_nested_tensors>(m);
}

#ifndef LENSBOX_WITH_CUDA
TORCH_LIBRARY_IMPL(lensbox, CUDA, m) {
  lensbox::implement_with<lensbox::refuse_cuda_tensors>(m);
}
#endif
