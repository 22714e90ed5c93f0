#include <ATen/ops/empty.h>
#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>
#include <torch/library.h>

#include <array>
#include <cmath>
#include <string>
#include <string_view>
#include <vector>

#include "../backends.h"
#include "../checks.h"
#include "../dispatch.h"
#include "../fit_words.h"

namespace lensbox {
namespace {

using Numbers = std::optional<at::ArrayRef<double>>;

// How `fit` makes canvases, which have no size and no memory yet.
struct FitOptions {
  Canvases canvases;
  at::ScalarType dtype;
  std::array<float, 3> mean, deviation;  // of the canvas's channels
};

void check_canvas_arguments(at::TensorList images, int64_t height, int64_t width, int64_t fill) {
  for (size_t i = 0; i < images.size(); ++i) {
    const Tensor& image = images[i];
    const std::string name = "images[" + std::to_string(i) + "]";
    TORCH_CHECK_TYPE(image.scalar_type() == at::kByte, kFit, ": ", name, " must be uint8, got ",
                     image.scalar_type());
    TORCH_CHECK_VALUE(
        image.dim() == 3 && (image.sym_size(0) == 1 || image.sym_size(0) == 3 || image.sym_size(0) == 4),
        kFit, ": ", name, " must have the shape [C, H, W] with C = 1, 3 or 4, got ", image.sym_sizes());
    TORCH_CHECK_VALUE(image.sym_size(1) >= 1 && image.sym_size(2) >= 1, kFit, ": ", name,
                      " must have at least one row and one column, got ", image.sym_sizes());
    TORCH_CHECK_VALUE(image.sym_size(1) <= kLongestSide && image.sym_size(2) <= kLongestSide, kFit, ": ",
                      name, " must have sides of at most ", kLongestSide, " pixels, got ", image.sym_sizes());
    check_same_device(kFit, name.c_str(), image, "images[0]", images[0]);
  }
  TORCH_CHECK_VALUE(height >= 1 && height <= kLongestCanvas, kFit, ": height must be between 1 and ",
                    kLongestCanvas, ", got ", height);
  TORCH_CHECK_VALUE(width >= 1 && width <= kLongestCanvas, kFit, ": width must be between 1 and ",
                    kLongestCanvas, ", got ", width);
  TORCH_CHECK_VALUE(fill >= 0 && fill <= 255, kFit, ": fill must be between 0 and 255, got ", fill);
}

// Return the value that belongs to a word of `fit`.
template <typename Value, size_t kCount>
Value value_of(const char* name, std::string_view word, const Word<Value> (&words)[kCount]) {
  std::string known;
  for (const auto& [candidate, value] : words) {
    if (candidate == word) return value;
    known += (known.empty() ? "" : ", ") + std::string(candidate);
  }
  C10_THROW_ERROR(ValueError, c10::str(kFit, ": ", name, " must be one of ", known, ", got ", word));
}

// Return one number for each channel; `other` if none are given.
std::array<float, 3> numbers_of_channels(const char* name, Numbers numbers, int64_t channels, float other) {
  std::array<float, 3> found = {other, other, other};
  if (!numbers.has_value()) return found;
  TORCH_CHECK_VALUE(static_cast<int64_t>(numbers->size()) == channels, kFit, ": ", name, " must hold ",
                    channels, " numbers, one for each channel, got ", *numbers);
  for (size_t i = 0; i < numbers->size(); ++i) {
    found[i] = static_cast<float>((*numbers)[i]);
    TORCH_CHECK_VALUE(std::isfinite(found[i]), kFit, ": ", name, " must be finite in float32, got ",
                      *numbers);
  }
  return found;
}

FitOptions checked_options(std::string_view fit, std::string_view filter, std::string_view order,
                           const Numbers& mean, const Numbers& deviation,
                           std::optional<at::ScalarType> dtype) {
  FitOptions options = {};
  options.canvases.mode = value_of("fit", fit, kFitModes);
  options.canvases.filter = value_of("filter", filter, kFilters);
  const auto channels = options.canvases.channels = value_of("order", order, kChannelsOfOrder);
  options.canvases.is_bgr = order == "bgr";
  const bool is_scaled = mean.has_value() || deviation.has_value();
  options.dtype = dtype.value_or(is_scaled ? at::kFloat : at::kByte);
  TORCH_CHECK_TYPE(options.dtype == at::kByte || options.dtype == at::kFloat || options.dtype == at::kHalf ||
                       options.dtype == at::kBFloat16,
                   kFit, ": dtype must be uint8, float32, float16 or bfloat16, got ", options.dtype);
  TORCH_CHECK_VALUE(options.dtype != at::kByte || !is_scaled, kFit,
                    ": dtype must be floating-point where mean or std is given, got ", options.dtype);
  options.mean = numbers_of_channels("mean", mean, channels, 0.0f);
  options.deviation = numbers_of_channels("std", deviation, channels, 1.0f);
  for (float number : options.deviation)
    TORCH_CHECK_VALUE(number > 0.0f, kFit, ": std must be above 0, got ", number);
  return options;
}

LevelTable level_table(const FitOptions& options) {
  LevelTable table = {};
  table.channels = options.canvases.channels;
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

template <typename Backend>
std::tuple<Tensor, Tensor> fit(at::TensorList images, int64_t height, int64_t width, std::string_view fit,
                               std::string_view filter, std::string_view order, int64_t fill, Numbers mean,
                               Numbers deviation, std::optional<at::ScalarType> dtype) {
  check_canvas_arguments(images, height, width, fill);
  const FitOptions options = checked_options(fit, filter, order, mean, deviation, dtype);
  const Backend backend(images[0]);
  const auto count = static_cast<int64_t>(images.size());
  const auto tensors = at::TensorOptions().device(images[0].device());
  const Tensor canvases =
      at::empty({count, options.canvases.channels, height, width}, tensors.dtype(options.dtype));
  const Tensor geometry = at::empty({count, 6}, tensors.dtype(at::kFloat));
  if constexpr (Backend::kHasKernels) {
    const bool is_bytes = options.dtype == at::kByte;
    const Tensor bytes = is_bytes ? canvases : at::empty(canvases.sizes(), tensors.dtype(at::kByte));
    Canvases out = options.canvases;
    out.pixels = bytes.mutable_data_ptr<uint8_t>();
    out.geometry = geometry.mutable_data_ptr<float>();
    out.height = static_cast<int32_t>(height);
    out.width = static_cast<int32_t>(width);
    out.fill = static_cast<uint8_t>(fill);
    std::vector<ImageView> views;
    views.reserve(images.size());
    for (const Tensor& image : images) {
      views.push_back({image.const_data_ptr<uint8_t>(), image.stride(0), image.stride(1), image.stride(2),
                       static_cast<int32_t>(image.size(0)), static_cast<int32_t>(image.size(1)),
                       static_cast<int32_t>(image.size(2))});
      const std::string fault = fit_fault(views.back(), out);
      TORCH_CHECK_VALUE(fault.empty(), fault);
    }
    backend.run(Backend::fit, views.data(), count, out);
    if (!is_bytes) {
      backend.run(Backend::look_up, level_table(options), out.pixels, count * out.channels, height * width,
                  canvases.mutable_data_ptr());
    }
  }
  return {canvases, geometry};
}

// The dispatcher finds the backend of `fit` by its images. Without images the dispatcher would print its
// tables instead of the error. At the key BackendSelect, torch lets calls without tensors choose a backend
// (for example torch.empty). Every call passes here, and calls with images go on. (A kernel for no key at
// all, `Undefined`, would count as a definition by other ops, which torch.compile prefers to the kernels.)
template <typename... Arguments>
std::tuple<Tensor, Tensor> fit_with_images(c10::DispatchKeySet keys, at::TensorList images,
                                           Arguments... arguments) {
  TORCH_CHECK_VALUE(!images.empty(), kFit, ": images must hold at least one image, got none");
  constexpr c10::DispatchKeySet below(c10::DispatchKeySet::FULL_AFTER, c10::DispatchKey::BackendSelect);
  static const auto op = find_op<std::tuple<Tensor, Tensor>(at::TensorList, Arguments...)>(kFit);
  return op.redispatch(keys & below, images, arguments...);
}

template <typename Backend>
void register_fit(torch::Library& m) {
  m.impl("fit", fit<Backend>);
}

}  // namespace
}  // namespace lensbox

LENSBOX_BINDINGS(register_fit)

TORCH_LIBRARY_IMPL(lensbox, BackendSelect, m) {
  using lensbox::Numbers;
  m.impl("fit",
         lensbox::fit_with_images<int64_t, int64_t, std::string_view, std::string_view, std::string_view,
                                  int64_t, Numbers, Numbers, std::optional<at::ScalarType>>);
}
