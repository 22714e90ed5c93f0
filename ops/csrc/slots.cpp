#include "slots.h"

#include <algorithm>

#include "shapes.h"

namespace lensbox {
namespace {

DType to_dtype(at::ScalarType dtype) {
  switch (dtype) {
    case at::ScalarType::Double:
      return DType::kFloat64;
    case at::ScalarType::Float:
      return DType::kFloat32;
    case at::ScalarType::Half:
      return DType::kFloat16;
    case at::ScalarType::BFloat16:
      return DType::kBFloat16;
    case at::ScalarType::Byte:
      return DType::kUInt8;
    case at::ScalarType::Short:
      return DType::kInt16;
    case at::ScalarType::Int:
      return DType::kInt32;
    case at::ScalarType::Long:
      return DType::kInt64;
    case at::ScalarType::Bool:
      return DType::kBool;
    default:
      TORCH_CHECK_TYPE(false, "lensbox: unsupported dtype ", dtype);
  }
}

// Copies the leading dimensions into the view, dropping those of size 1 and merging those that one stride
// spans.
void set_leading_dims(SlotView& view, const at::Tensor& tensor, int64_t leading) {
  for (int64_t d = 0; d < leading; ++d) {
    const int64_t size = tensor.size(d);
    const int64_t stride = tensor.stride(d);
    if (size == 1) continue;
    const int32_t last = view.ndim - 1;
    if (last >= 0 && view.strides[last] == size * stride) {
      view.sizes[last] *= size;
      view.strides[last] = stride;
      continue;
    }
    TORCH_CHECK(view.ndim < kMaxSlotDims, "lensbox: a tensor may have at most ", kMaxSlotDims,
                " leading dimensions with strides of their own, got strides ", tensor.strides(),
                "; make it contiguous");
    view.sizes[view.ndim] = size;
    view.strides[view.ndim] = stride;
    ++view.ndim;
  }
}

}  // namespace

SlotView box_slots(const at::Tensor& boxes) {
  SlotView view;
  view.data = boxes.data_ptr();
  view.dtype = to_dtype(boxes.scalar_type());
  view.last_stride = boxes.stride(-1);
  set_leading_dims(view, boxes, boxes.dim() - 1);
  const int64_t vector_bytes = std::min<int64_t>(16, 4 * boxes.element_size());
  view.packed = view.last_stride == 1 && (view.ndim == 0 || (view.ndim == 1 && view.strides[0] == 4)) &&
                reinterpret_cast<uintptr_t>(view.data) % vector_bytes == 0;
  return view;
}

SlotView number_slots(const at::Tensor& numbers) {
  SlotView view;
  view.data = numbers.data_ptr();
  view.dtype = to_dtype(numbers.scalar_type());
  set_leading_dims(view, numbers, numbers.dim());
  view.packed = view.ndim == 0 || (view.ndim == 1 && view.strides[0] == 1);
  return view;
}

PairwiseProblem pairwise_problem(const at::Tensor& boxes1, const at::Tensor& boxes2) {
  const auto batch = broadcast_leading(boxes1, boxes2, 2);
  int64_t images = 1;
  for (const c10::SymInt& size : batch) {
    images *= size.expect_int();
  }
  return {box_slots(expand_leading(boxes1, batch, 2)), box_slots(expand_leading(boxes2, batch, 2)), images,
          boxes1.size(-2), boxes2.size(-2)};
}

}  // namespace lensbox
