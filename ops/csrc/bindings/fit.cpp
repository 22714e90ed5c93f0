#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>
#include <torch/library.h>

#include <vector>

#include "../backends.h"
#include "../checks.h"
#include "../outputs.h"
#include "../slots.h"

namespace lensbox {
namespace {

LevelTable level_table(const FitOptions& options) {
  LevelTable table = {};
  table.channels = static_cast<int32_t>(options.channels);
  table.is_float32 = options.dtype == at::kFloat;
  for (int32_t i = 0; i < 256 * table.channels; ++i) {
    const float number = normalised_level(i % 256, options.mean[i / 256], options.deviation[i / 256]);
    if (table.is_float32) {
      table.float32[i] = number;
    } else {
      table.bits16[i] = options.dtype == at::kHalf ? c10::Half(number).x : c10::BFloat16(number).x;
    }
  }
  return table;
}

// Check the images' sizes on the canvas, which only a crop makes large.
void check_scaled_sides(const ImageView& image, const Canvases& out) {
  constexpr int64_t kLongest = int64_t{1} << 24;
  const Fit fit = fit_to_canvas(image.width, image.height, out.width, out.height, out.mode);
  TORCH_CHECK_VALUE(fit.width <= kLongest && fit.height <= kLongest, "lensbox::fit: an image of ",
                    image.width, " x ", image.height,
                    " pixels, scaled to cover the canvas, must have sides of at most ", kLongest,
                    " pixels, got ", fit.width, " x ", fit.height);
}

template <typename Backend>
std::tuple<Tensor, Tensor> fit(at::TensorList images, int64_t height, int64_t width, std::string_view fit,
                               std::string_view filter, std::string_view order, int64_t fill,
                               std::optional<at::ArrayRef<double>> mean,
                               std::optional<at::ArrayRef<double>> deviation,
                               std::optional<at::ScalarType> dtype) {
  const FitOptions options =
      check_fit_arguments(images, height, width, fit, filter, order, fill, mean, deviation, dtype);
  const Backend backend(images[0]);
  auto [canvases, geometry] = fit_outputs(images, height, width, options);
  const bool is_bytes = options.dtype == at::kByte;
  const Tensor bytes = is_bytes ? canvases : at::empty(canvases.sizes(), canvases.options().dtype(at::kByte));
  const Canvases out = {bytes.mutable_data_ptr<uint8_t>(),
                        geometry.template mutable_data_ptr<float>(),
                        static_cast<int32_t>(options.channels),
                        static_cast<int32_t>(height),
                        static_cast<int32_t>(width),
                        static_cast<uint8_t>(fill),
                        options.is_bgr,
                        options.mode,
                        options.filter};
  std::vector<ImageView> views;
  views.reserve(images.size());
  for (const Tensor& image : images) {
    views.push_back(image_view(image));
    if (out.mode == FitMode::kCrop) check_scaled_sides(views.back(), out);
  }
  backend.run(Backend::fit, views.data(), static_cast<int64_t>(views.size()), out);
  if (!is_bytes) {
    backend.run(Backend::look_up, level_table(options), out.pixels,
                static_cast<int64_t>(views.size()) * options.channels, height * width,
                canvases.mutable_data_ptr());
  }
  return {canvases, geometry};
}

template <typename Backend>
void register_fit(torch::Library& m) {
  m.impl("fit", fit<Backend>);
}

}  // namespace
}  // namespace lensbox

LENSBOX_BINDINGS(register_fit)
