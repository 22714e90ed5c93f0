#include <ATen/Parallel.h>
#include <torch/library.h>

#include <cstring>
#include <vector>

#include "../letterbox_views.h"
#include "../outputs.h"
#include "../triangle_filter.h"

namespace lensbox {
namespace {

// The windows and weights of one pass, those of a window side by side.
struct Filter {
  Filter(int32_t input, int32_t output) {
    for (int32_t i = 0; i < output; ++i) {
      const FilterWindow window = filter_window(i, input, output);
      const double area = filter_area(window);
      windows.push_back(window);
      begins.push_back(weights.size());
      for (int32_t j = 0; j < window.count; ++j) {
        weights.push_back(fixed_weight(filter_height(window, j), area));
      }
    }
  }

  std::vector<FilterWindow> windows;
  std::vector<size_t> begins;
  std::vector<int32_t> weights;
};

uint8_t pixel(const ImageView& image, int32_t channels, int32_t channel, int64_t row, int64_t column) {
  const uint8_t* const at = image.data + row * image.row_stride + column * image.column_stride;
  if (image.channels == 1) return at[0];
  if (channels == 3) return at[channel * image.channel_stride];
  return luma(at[0], at[image.channel_stride], at[2 * image.channel_stride]);
}

// One output pixel from the inputs `step` bytes apart.
uint8_t filtered(const Filter& filter, int64_t index, const uint8_t* inputs, int64_t step) {
  const FilterWindow& window = filter.windows[index];
  int32_t sum = kHalfWeight;
  for (int32_t i = 0; i < window.count; ++i) {
    sum += filter.weights[filter.begins[index] + i] * inputs[(window.first + i) * step];
  }
  return filtered_byte(sum);
}

void letterbox_image(const ImageView& image, const Canvases& out, int64_t index) {
  const Fit fit = fit_to_canvas(image.width, image.height, out.width, out.height);
  write_geometry(image, fit, out.geometry + 6 * index);
  const Filter across(image.width, static_cast<int32_t>(fit.width));
  const Filter down(image.height, static_cast<int32_t>(fit.height));
  const int64_t width = image.width, height = image.height, plane = int64_t{out.height} * out.width;
  std::vector<uint8_t> pixels(width * height), between;
  for (int32_t channel = 0; channel < out.channels; ++channel) {
    for (int64_t y = 0; y < height; ++y) {
      for (int64_t x = 0; x < width; ++x) {
        pixels[y * width + x] = pixel(image, out.channels, channel, y, x);
      }
    }
    uint8_t* const canvas = out.pixels + (index * out.channels + channel) * plane;
    std::memset(canvas, out.fill, plane);
    uint8_t* const corner = canvas + fit.top * out.width + fit.left;
    if (rows_first(width, height, fit)) {
      between.resize(fit.height * width);
      for (int64_t y = 0; y < fit.height; ++y) {
        for (int64_t x = 0; x < width; ++x) {
          between[y * width + x] = filtered(down, y, &pixels[x], width);
        }
      }
      for (int64_t y = 0; y < fit.height; ++y) {
        for (int64_t x = 0; x < fit.width; ++x) {
          corner[y * out.width + x] = filtered(across, x, &between[y * width], 1);
        }
      }
    } else {
      between.resize(height * fit.width);
      for (int64_t y = 0; y < height; ++y) {
        for (int64_t x = 0; x < fit.width; ++x) {
          between[y * fit.width + x] = filtered(across, x, &pixels[y * width], 1);
        }
      }
      for (int64_t y = 0; y < fit.height; ++y) {
        for (int64_t x = 0; x < fit.width; ++x) {
          corner[y * out.width + x] = filtered(down, y, &between[x], fit.width);
        }
      }
    }
  }
}

std::tuple<Tensor, Tensor> letterbox_cpu(at::TensorList images, int64_t height, int64_t width,
                                         int64_t channels, int64_t fill) {
  const auto outputs = letterbox_outputs(images, height, width, channels, fill);
  const Canvases out = canvases_view(std::get<0>(outputs), std::get<1>(outputs), fill);
  at::parallel_for(0, static_cast<int64_t>(images.size()), 1, [&](int64_t begin, int64_t end) {
    for (int64_t index = begin; index < end; ++index) {
      letterbox_image(image_view(images[index]), out, index);
    }
  });
  return outputs;
}

}  // namespace
}  // namespace lensbox

TORCH_LIBRARY_IMPL(lensbox, CPU, m) {
  m.impl("letterbox", lensbox::letterbox_cpu);
}
