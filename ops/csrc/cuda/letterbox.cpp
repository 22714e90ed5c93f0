#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/library.h>

#include <vector>

#include "../outputs.h"
#include "../slots.h"
#include "launchers.h"

namespace lensbox {
namespace {

std::tuple<Tensor, Tensor> letterbox_cuda(at::TensorList images, int64_t height, int64_t width,
                                          int64_t channels, int64_t fill) {
  const auto outputs = letterbox_outputs(images, height, width, channels, fill);
  const c10::cuda::CUDAGuard device(images[0].device());
  std::vector<ImageView> views;
  views.reserve(images.size());
  for (const Tensor& image : images)
    views.push_back(image_view(image));
  C10_CUDA_CHECK(launch_letterbox(views.data(), static_cast<int64_t>(views.size()),
                                  canvases_view(std::get<0>(outputs), std::get<1>(outputs), fill),
                                  c10::cuda::getCurrentCUDAStream()));
  return outputs;
}

}  // namespace
}  // namespace lensbox

TORCH_LIBRARY_IMPL(lensbox, CUDA, m) {
  m.impl("letterbox", lensbox::letterbox_cuda);
}
