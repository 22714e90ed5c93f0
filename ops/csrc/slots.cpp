#include "slots.h"

#include <algorithm>
#include <utility>

namespace lensbox {
namespace {

constexpr std::pair<at::ScalarType, DType> kDTypes[] = {
    {at::kDouble, DType::kFloat64},    {at::kFloat, DType::kFloat32}, {at::kHalf, DType::kFloat16},
    {at::kBFloat16, DType::kBFloat16}, {at::kByte, DType::kUInt8},    {at::kShort, DType::kInt16},
    {at::kInt, DType::kInt32},         {at::kLong, DType::kInt64},    {at::kBool, DType::kBool}};

// A leading dimension, or several leading dimensions that one stride spans.
struct LeadingDim {
  int64_t size, stride;
};

// Return the leading dimensions, merged if one stride spans them, without dimensions of size 1.
c10::SmallVector<LeadingDim, kMaxSlotDims> merged_dims(const at::Tensor& tensor, int64_t leading) {
  c10::SmallVector<LeadingDim, kMaxSlotDims> dims;
  if (tensor.numel() == 0) return dims;  // the strides may be any numbers, too large to compute with
  for (int64_t d = 0; d < leading; ++d) {
    const int64_t size = tensor.size(d), stride = tensor.stride(d);
    if (size == 1) continue;
    if (!dims.empty() && dims.back().stride == size * stride) {
      dims.back() = {dims.back().size * size, stride};
    } else {
      dims.push_back({size, stride});
    }
  }
  return dims;
}

SlotView make_view(const at::Tensor& tensor, int64_t leading) {
  const auto dims = merged_dims(tensor, leading);
  TORCH_INTERNAL_ASSERT(dims.size() <= kMaxSlotDims, "viewable() was not called");
  SlotView view;
  view.data = const_cast<void*>(tensor.const_data_ptr());  // kernels write to outputs only
  const auto dtype = kernel_dtype(tensor.scalar_type());
  TORCH_CHECK_TYPE(dtype.has_value(), "lensbox: unsupported dtype ", tensor.scalar_type());
  view.dtype = *dtype;
  for (const LeadingDim& dim : dims) {
    view.sizes[view.ndim] = dim.size;
    view.strides[view.ndim++] = dim.stride;
  }
  return view;
}

}  // namespace

std::optional<DType> kernel_dtype(at::ScalarType dtype) {
  for (const auto& [candidate, of_kernels] : kDTypes) {
    if (candidate == dtype) return of_kernels;
  }
  return std::nullopt;
}

at::Tensor viewable(const at::Tensor& tensor, int64_t trailing) {
  const int64_t leading = tensor.dim() - trailing;
  if (leading <= static_cast<int64_t>(kMaxSlotDims)) return tensor;
  return merged_dims(tensor, leading).size() <= kMaxSlotDims ? tensor : tensor.contiguous();
}

at::Tensor expand_leading(const at::Tensor& boxes, c10::SymIntArrayRef leading, int64_t trailing) {
  at::SymDimVector shape(leading.begin(), leading.end());
  for (int64_t d = boxes.dim() - trailing; d < boxes.dim(); ++d) {
    shape.push_back(boxes.sym_size(d));
  }
  return viewable(boxes.expand_symint(shape), 1);
}

SlotView box_slots(const at::Tensor& boxes) {
  SlotView view = make_view(boxes, boxes.dim() - 1);
  if (boxes.numel() > 0) view.last_stride = boxes.stride(-1);
  const int64_t vector_bytes = std::min<int64_t>(16, 4 * boxes.element_size());
  view.packed = view.last_stride == 1 && (view.ndim == 0 || (view.ndim == 1 && view.strides[0] == 4)) &&
                reinterpret_cast<uintptr_t>(view.data) % vector_bytes == 0;
  return view;
}

SlotView number_slots(const at::Tensor& numbers) {
  SlotView view = make_view(numbers, numbers.dim());
  view.packed = view.ndim == 0 || (view.ndim == 1 && view.strides[0] == 1);
  return view;
}

}  // namespace lensbox
