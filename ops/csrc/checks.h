// The checks that ops share, the same for all backends. A failed check names the op, the argument, the rule
// and the value. Shapes may be symbolic; no check reads a tensor's values.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

namespace lensbox {

using at::Tensor;

bool is_box_dtype(at::ScalarType dtype);
void check_box_dtype(const char* op, const char* name, const Tensor& boxes);
void check_floating_dtype(const char* op, const char* name, const Tensor& tensor);

// Check that the last dimension holds four coordinates.
void check_last_dimension(const char* op, const char* name, const Tensor& boxes);

void check_same_device(const char* op, const char* name, const Tensor& tensor, const char* other_name,
                       const Tensor& other);

// eps is in square pixels. Below 1e-18 a gradient of finite boxes could overflow (see box_math.h).
void check_eps(const char* op, double eps);

// Return the numbers of a tensor on the CPU one after another, in its shape, for a function that reads memory
// and that no backend's kernel stands above. Other kernels are given such tensors by torch.
Tensor plain_memory(const Tensor& tensor);

// Return the bytes of a JPEG file, contiguous uint8 [N] on the CPU.
const uint8_t* bytes_of_file(const Tensor& file);

// Check that the gradient of an output has its dtype and shape, and the device of `input`.
void check_grad(const char* op, const Tensor& grad, at::ScalarType dtype, c10::SymIntArrayRef shape,
                const char* input_name, const Tensor& input);

// Return a contiguous tensor for the gradient of `input`, output_mask[position], or a tensor without elements
// if it is not wanted. Asking for the gradient of integers is an error.
Tensor gradient_of(const char* op, int position, const char* name, const Tensor& input,
                   c10::SymIntArrayRef shape, bool wanted);

// Return the dtype of the arithmetic: float64 if a tensor of boxes or weights holds float64, else float32.
at::ScalarType math_dtype(const Tensor& a, const Tensor& b,
                          const std::optional<Tensor>& weight = std::nullopt);

}  // namespace lensbox
