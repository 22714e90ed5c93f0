// Upsamples chroma and converts YCbCr to RGB on the CPU, to prove the arithmetic that GPUs share.

#include "../jpeg_color.h"
#include "launchers.h"

namespace lensbox {

void lensbox_cpu_convert_jpeg_colors(const JpegColors* images, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    for (int32_t y = 0; y < images[i].height; ++y) {
      for (int32_t x = 0; x < images[i].width; ++x)
        jpeg_convert(images[i], x, y);
    }
  }
}

}  // namespace lensbox
