#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <vector>

namespace lensbox {

// Return the tensors on `device`, with the same strides if there are no gaps in their memory. Tensors on the
// CPU go to a GPU in one asynchronous copy, from one buffer in pinned memory.
std::vector<at::Tensor> copy_to(c10::Device device, const std::vector<at::Tensor>& tensors);

// Copy the tensors' numbers to one buffer of bytes on the CPU, each tensor at an aligned address.
at::Tensor pack(const std::vector<at::Tensor>& tensors, bool pinned);
// Return views of such a buffer, with the shapes and types of `packed`.
std::vector<at::Tensor> unpack(const at::Tensor& buffer, const std::vector<at::Tensor>& packed);

// Return tensors of one device on the CPU, contiguous, after one copy for all of them. It waits for a GPU,
// whose copy goes to pinned memory.
std::vector<at::Tensor> copy_to_cpu(const std::vector<at::Tensor>& tensors);

}  // namespace lensbox
