#include <torch/library.h>

#include <vector>

#include "../backends.h"
#include "../outputs.h"
#include "../slots.h"

namespace lensbox {
namespace {

template <typename Backend>
std::tuple<Tensor, Tensor> letterbox(at::TensorList images, int64_t height, int64_t width, int64_t channels,
                                     int64_t fill) {
  const auto outputs = letterbox_outputs(images, height, width, channels, fill);
  const Backend backend(images[0]);
  std::vector<ImageView> views;
  views.reserve(images.size());
  for (const Tensor& image : images)
    views.push_back(image_view(image));
  backend.run(Backend::letterbox, views.data(), static_cast<int64_t>(views.size()),
              canvases_view(std::get<0>(outputs), std::get<1>(outputs), fill));
  return outputs;
}

template <typename Backend>
void register_letterbox(torch::Library& m) {
  m.impl("letterbox", letterbox<Backend>);
}

}  // namespace
}  // namespace lensbox

LENSBOX_BINDINGS(register_letterbox)
