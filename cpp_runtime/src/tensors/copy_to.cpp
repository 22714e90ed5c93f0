#include <ATen/ATen.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "tensors/tensor_steps.h"

namespace lensbox {
namespace {

constexpr int64_t kAlignment = 256;  // bytes, as torch's memory on GPUs

int64_t aligned(int64_t size) {
  return (size + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace

std::vector<at::Tensor> copy_to(c10::Device device, const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> moved;
  for (const at::Tensor& tensor : tensors) {
    if (device.is_cuda() && tensor.is_cpu()) moved.push_back(tensor);
  }
  if (!moved.empty()) {
    // torch keeps pinned memory for later calls, and reuses it only once the copy is over.
    moved = unpack(pack(moved, /*pinned=*/true).to(device, /*non_blocking=*/true), moved);
  }

  std::vector<at::Tensor> there;
  auto next = moved.begin();
  for (const at::Tensor& tensor : tensors) {
    there.push_back(device.is_cuda() && tensor.is_cpu() ? *next++ : tensor.to(device));
  }
  return there;
}

at::Tensor pack(const std::vector<at::Tensor>& tensors, bool pinned) {
  const at::TensorOptions options = tensors[0].options().dtype(at::kByte);
  const at::Tensor gap = at::empty({kAlignment}, options);
  std::vector<at::Tensor> bytes;
  for (const at::Tensor& tensor : tensors) {
    const at::Tensor dense = tensor.is_non_overlapping_and_dense() ? tensor : tensor.contiguous();
    bytes.push_back(dense.as_strided({dense.numel()}, {1}).view(at::kByte));
    bytes.push_back(gap.narrow(0, 0, aligned(bytes.back().numel()) - bytes.back().numel()));
  }
  at::Tensor buffer = at::empty({0}, options.pinned_memory(pinned));
  return at::cat_out(buffer, bytes);
}

std::vector<at::Tensor> unpack(const at::Tensor& buffer, const std::vector<at::Tensor>& packed) {
  std::vector<at::Tensor> views;
  int64_t begin = 0;
  for (const at::Tensor& tensor : packed) {
    const auto size = static_cast<int64_t>(tensor.nbytes());
    const at::Tensor numbers = buffer.narrow(0, begin, size).view(tensor.scalar_type());
    views.push_back(tensor.is_non_overlapping_and_dense()
                        ? numbers.as_strided(tensor.sizes(), tensor.strides())
                        : numbers.view(tensor.sizes()));
    begin += aligned(size);
  }
  return views;
}

std::vector<at::Tensor> copy_to_cpu(const std::vector<at::Tensor>& tensors) {
  if (tensors.empty()) return {};
  std::vector<at::Tensor> rows;
  for (const at::Tensor& tensor : tensors) {
    rows.push_back(tensor.contiguous());
  }
  at::Tensor all = pack(rows, /*pinned=*/false);
  if (const c10::Device device = all.device(); !device.is_cpu()) {
    // To pinned memory: a copy to other memory keeps all other threads from calling CUDA until it is over.
    all = all.to(at::kCPU, /*non_blocking=*/true);
    c10::impl::VirtualGuardImpl(device.type()).getStream(device).synchronize();
  }
  return unpack(all, rows);
}

}  // namespace lensbox
