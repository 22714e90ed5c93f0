// `letterbox` finds its backend by its images, so without any the dispatcher would print its tables instead
// of what is wrong. BackendSelect is where torch has calls without tensors choose a backend (those of
// torch.empty, say): every call passes here, and those with images go on. (A kernel for no key at all,
// `Undefined`, would count as a definition by other ops, which torch.compile prefers to the kernels.)

#include <torch/library.h>

#include "checks.h"
#include "ops.h"

namespace lensbox {
namespace {

std::tuple<Tensor, Tensor> letterbox_with_images(c10::DispatchKeySet keys, at::TensorList images,
                                                 int64_t height, int64_t width, int64_t channels,
                                                 int64_t fill) {
  if (images.empty()) check_letterbox_arguments(images, height, width, channels, fill);  // throws
  constexpr c10::DispatchKeySet below(c10::DispatchKeySet::FULL_AFTER, c10::DispatchKey::BackendSelect);
  static auto op = find_op<std::tuple<Tensor, Tensor>(at::TensorList, int64_t, int64_t, int64_t, int64_t)>(
      "lensbox::letterbox");
  return op.redispatch(keys & below, images, height, width, channels, fill);
}

}  // namespace
}  // namespace lensbox

TORCH_LIBRARY_IMPL(lensbox, BackendSelect, m) {
  m.impl("letterbox", lensbox::letterbox_with_images);
}
