// What `letterbox` is asked, as its kernels see it: raw memory; no ATen.
#pragma once

#include <cstdint>

#include "fit.h"
#include "host_device.h"

namespace lensbox {

// uint8 [channels, height, width], strides in bytes.
struct ImageView {
  const uint8_t* data;
  int64_t channel_stride, row_stride, column_stride;
  int32_t channels, height, width;
};

// uint8 [B, channels, height, width] and float32 [B, 6], both contiguous.
struct Canvases {
  uint8_t* pixels;
  float* geometry;
  int32_t channels, height, width;
  uint8_t fill;
};

// scale_x, scale_y, offset_x, offset_y, width, height: canvas = image * scale + offset.
LENSBOX_HOST_DEVICE void write_geometry(const ImageView& image, const Fit& fit, float* geometry) {
  geometry[0] = static_cast<float>(static_cast<double>(fit.width) / image.width);
  geometry[1] = static_cast<float>(static_cast<double>(fit.height) / image.height);
  geometry[2] = static_cast<float>(fit.left);
  geometry[3] = static_cast<float>(fit.top);
  geometry[4] = static_cast<float>(image.width);
  geometry[5] = static_cast<float>(image.height);
}

}  // namespace lensbox
