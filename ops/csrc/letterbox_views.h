// From tensors to what the kernels of `letterbox` see.
#pragma once

#include <ATen/core/Tensor.h>

#include "letterbox_problem.h"

namespace lensbox {

ImageView image_view(const at::Tensor& image);

Canvases canvases_view(const at::Tensor& canvases, const at::Tensor& geometry, int64_t fill);

}  // namespace lensbox
