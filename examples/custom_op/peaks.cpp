// example::peaks on the CPU: keep values that are the largest among their neighbours, set the rest to 0.
// And on Meta, whose tensors have a shape and no values.

#include "peaks.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <torch/library.h>

namespace {

void check(const at::Tensor& heat) {
  TORCH_CHECK_VALUE(heat.dim() == 3, "heat must have the shape [B, H, W], got ", heat.sym_sizes());
  TORCH_CHECK_VALUE(heat.scalar_type() == at::kFloat, "heat must be float32, got ", heat.scalar_type());
}

at::Tensor peaks_cpu(const at::Tensor& heat) {
  check(heat);
  const at::Tensor input = heat.contiguous();
  at::Tensor output = at::empty_like(input);
  const int64_t height = input.size(1);
  const int64_t width = input.size(2);
  for (int64_t image = 0; image < input.size(0); ++image) {
    const float* from = input.const_data_ptr<float>() + image * height * width;
    float* to = output.mutable_data_ptr<float>() + image * height * width;
    for (int64_t cell = 0; cell < height * width; ++cell) {
      to[cell] = peak_at(from, height, width, cell / width, cell % width);
    }
  }
  return output;
}

// Return the output without values. torch.export and torch.compile call this kernel to learn the shape, with
// sizes that may be symbols.
at::Tensor peaks_meta(const at::Tensor& heat) {
  check(heat);
  return at::empty_symint(heat.sym_sizes(), heat.options());
}

}  // namespace

TORCH_LIBRARY(example, library) {
  library.def("peaks(Tensor heat) -> Tensor");
}
TORCH_LIBRARY_IMPL(example, CPU, library) {
  library.impl("peaks", peaks_cpu);
}
TORCH_LIBRARY_IMPL(example, Meta, library) {
  library.impl("peaks", peaks_meta);
}
