// Kernels that belong to no backend: they call another op, or raise an error that says why no op can run.

#include "dispatch.h"

#include <torch/library.h>

namespace lensbox {
namespace {

// The dispatcher finds the backend of `fit` by its images. Without images the dispatcher would print its
// tables instead of the error. At the key BackendSelect, torch lets calls without tensors choose a backend
// (for example torch.empty). Every call passes here, and calls with images go on. (A kernel for no key at
// all, `Undefined`, would count as a definition by other ops, which torch.compile prefers to the kernels.)
template <typename... Arguments>
std::tuple<Tensor, Tensor> fit_with_images(c10::DispatchKeySet keys, at::TensorList images,
                                           Arguments... arguments) {
  TORCH_CHECK_VALUE(!images.empty(), "lensbox::fit: images must hold at least one image, got none");
  constexpr c10::DispatchKeySet below(c10::DispatchKeySet::FULL_AFTER, c10::DispatchKey::BackendSelect);
  static const auto op = find_op<std::tuple<Tensor, Tensor>(at::TensorList, Arguments...)>("lensbox::fit");
  return op.redispatch(keys & below, images, arguments...);
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

constexpr const char* kOps[] = {"giou",
                                "_giou_backward",
                                "pairwise_giou",
                                "_pairwise_giou_backward",
                                "_masked_giou_loss_forward",
                                "_masked_giou_loss_backward",
                                "masked_giou_loss_and_grad",
                                "_jagged_giou_loss_forward",
                                "_jagged_giou_loss_backward",
                                "padded_nms",
                                "padded_nms.tensor_thresholds",
                                "fit"};

}  // namespace
}  // namespace lensbox

#ifndef LENSBOX_WITH_CUDA
TORCH_LIBRARY_IMPL(lensbox, CUDA, m) {
  for (const char* op : lensbox::kOps) {
    m.impl(op, torch::CppFunction::makeFromBoxedFunction<&lensbox::refuse_cuda_tensors>());
  }
}
#endif

// Register above the kernels for nested tensors, strided and jagged, whose messages say less.
TORCH_LIBRARY_IMPL(lensbox, AutogradNestedTensor, m) {
  for (const char* op : lensbox::kOps) {
    m.impl(op, torch::CppFunction::makeFromBoxedFunction<&lensbox::refuse_nested_tensors>());
  }
  for (const char* op : {"masked_giou_loss", "jagged_giou_loss"}) {
    m.impl(op, torch::CppFunction::makeFromBoxedFunction<&lensbox::refuse_nested_tensors>());
  }
}

TORCH_LIBRARY_IMPL(lensbox, BackendSelect, m) {
  using lensbox::fit_with_images;
  using Numbers = std::optional<at::ArrayRef<double>>;
  m.impl("fit", fit_with_images<int64_t, int64_t, std::string_view, std::string_view, std::string_view,
                                int64_t, Numbers, Numbers, std::optional<at::ScalarType>>);
}
