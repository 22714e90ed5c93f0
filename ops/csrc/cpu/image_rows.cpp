#include "image_rows.h"

#include <cstring>

#include "../triangle_filter.h"
#include "gray_rows.h"

namespace lensbox {

bool ImageRows::holds_colours(const ImageView& image) {
  return image.channels >= 3 && image.channel_stride == 1 &&
         (image.column_stride == 3 || image.column_stride == 4);
}

ImageRows::ImageRows(const ImageView& image, int32_t canvas_channels) : image_(image) {
  const bool colours = canvas_channels == 3 && image.channels >= 3;
  pixel_bytes_ = colours ? static_cast<int32_t>(image.column_stride) : 1;
  in_memory_ = colours || (image.channels == 1 && image.column_stride == 1);
}

void ImageRows::write(int64_t row, int64_t column, int64_t count, uint8_t* out) const {
  const uint8_t* const at = pixel(row, column);
  const int64_t step = image_.column_stride, colour = image_.channel_stride;
  if (in_memory_) {
    std::memcpy(out, at, bytes(count));
  } else if (image_.channels == 1) {
    for (int64_t i = 0; i < count; ++i) {
      out[i] = at[i * step];
    }
  } else if (holds_colours(image_)) {
    gray_of_interleaved(at, step, count, out);
  } else if (step == 1) {
    gray_of_planes(at, at + colour, at + 2 * colour, count, out);
  } else {
    for (int64_t i = 0; i < count; ++i) {
      const uint8_t* const levels = at + i * step;
      out[i] = luma(levels[0], levels[colour], levels[2 * colour]);
    }
  }
}

}  // namespace lensbox
