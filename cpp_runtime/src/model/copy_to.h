#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <vector>

namespace lensbox {

// The same tensors on `device`, with the same strides if there are no gaps in their memory. Those that go
// from the CPU to a GPU travel in one copy, from one buffer in pinned memory, and nothing waits for it.
std::vector<at::Tensor> copy_to(c10::Device device, const std::vector<at::Tensor>& tensors);

// The two halves of it. pack: the tensors' numbers in one buffer on the CPU, bytes, each from a round address
// on.
at::Tensor pack(const std::vector<at::Tensor>& tensors, bool pinned);
// Views of such a buffer, of the shapes and types of `packed`.
std::vector<at::Tensor> unpack(const at::Tensor& buffer, const std::vector<at::Tensor>& packed);

// Tensors of one device on the CPU, contiguous, after one copy for all of them.
std::vector<at::Tensor> copy_to_cpu(const std::vector<at::Tensor>& tensors);

}  // namespace lensbox
