#include "letterbox_views.h"

namespace lensbox {

ImageView image_view(const at::Tensor& image) {
  return {image.const_data_ptr<uint8_t>(),
          image.stride(0),
          image.stride(1),
          image.stride(2),
          static_cast<int32_t>(image.size(0)),
          static_cast<int32_t>(image.size(1)),
          static_cast<int32_t>(image.size(2))};
}

Canvases canvases_view(const at::Tensor& canvases, const at::Tensor& geometry, int64_t fill) {
  return {canvases.data_ptr<uint8_t>(),           geometry.data_ptr<float>(),
          static_cast<int32_t>(canvases.size(1)), static_cast<int32_t>(canvases.size(2)),
          static_cast<int32_t>(canvases.size(3)), static_cast<uint8_t>(fill)};
}

}  // namespace lensbox
