// The check of ONNX models, for Python. Nothing here is traced.

#include "../onnx_model.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include <algorithm>

#include "../checks.h"

namespace lensbox {
namespace {

// Return the property lensbox.json of a model, uint8 [N]; empty without one. file: uint8 [N].
Tensor onnx_metadata(const Tensor& file) {
  const auto* const bytes = reinterpret_cast<const char*>(bytes_of_file(file));
  std::optional<std::string> found;
  try {
    found = onnx::read_metadata({bytes, static_cast<size_t>(file.numel())});
  } catch (const onnx::ModelError& error) {
    std::string reason = error.what();
    std::replace_if(reason.begin(), reason.end(), [](char c) { return c < ' ' || c > '~'; }, '?');
    TORCH_CHECK_VALUE(false, reason);
  }
  const std::string text = found.value_or("");
  const Tensor metadata = at::empty({static_cast<int64_t>(text.size())}, at::kByte);
  std::copy(text.begin(), text.end(), metadata.mutable_data_ptr<uint8_t>());
  return metadata;
}

}  // namespace
}  // namespace lensbox

TORCH_LIBRARY_FRAGMENT(lensbox_runtime, m) {
  m.def("onnx_metadata(Tensor file) -> Tensor", lensbox::onnx_metadata);
}
