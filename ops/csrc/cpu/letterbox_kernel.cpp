#include <ATen/Parallel.h>
#include <torch/library.h>

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "../letterbox_views.h"
#include "../outputs.h"
#include "filter_table.h"
#include "letterbox_image.h"

namespace lensbox {
namespace {

// Pixels that are worth a thread of their own: about 50 microseconds of work.
constexpr int64_t kGrain = int64_t{1} << 18;

// The tables of a call, one for each pair of sides. Those handed out stay where they are.
class FilterTables {
 public:
  const FilterTable* find(int32_t input, int64_t output) {
    const auto sides = std::make_pair(input, static_cast<int32_t>(output));
    return &tables_.try_emplace(sides, sides.first, sides.second).first->second;
  }

 private:
  std::map<std::pair<int32_t, int32_t>, FilterTable> tables_;
};

// Rows [begin, end) of the image `index`, fitted to its canvas: what a thread does in one go.
struct Band {
  int64_t index;
  int32_t begin, end;
};

// Bands of about equal work. A thread's rows depend on input rows of its neighbours too, which both filter,
// so an image is divided only where there are threads for it.
std::vector<Band> make_bands(const std::vector<FittedImage>& images) {
  int64_t pixels = 0;
  for (const FittedImage& fitted : images) {
    pixels += int64_t{fitted.image.height} * fitted.image.width;
  }
  const int64_t threads = at::in_parallel_region() ? 1 : at::get_num_threads();
  const int64_t share = std::max(kGrain, pixels / threads + 1);
  std::vector<Band> bands;
  for (size_t index = 0; index < images.size(); ++index) {
    const FittedImage& fitted = images[index];
    const int64_t rows = fitted.fit.height;
    const int64_t parts =
        std::clamp<int64_t>(int64_t{fitted.image.height} * fitted.image.width / share, 1, rows);
    for (int64_t part = 0; part < parts; ++part) {
      bands.push_back({static_cast<int64_t>(index), static_cast<int32_t>(rows * part / parts),
                       static_cast<int32_t>(rows * (part + 1) / parts)});
    }
  }
  return bands;
}

std::tuple<Tensor, Tensor> letterbox_cpu(at::TensorList images, int64_t height, int64_t width,
                                         int64_t channels, int64_t fill) {
  const auto outputs = letterbox_outputs(images, height, width, channels, fill);
  const Canvases out = canvases_view(std::get<0>(outputs), std::get<1>(outputs), fill);
  FilterTables tables;
  std::vector<FittedImage> fitted;
  for (const Tensor& tensor : images) {
    const ImageView image = image_view(tensor);
    const Fit fit = fit_to_canvas(image.width, image.height, out.width, out.height);
    write_geometry(image, fit, out.geometry + 6 * fitted.size());
    fitted.push_back(
        {image, fit, tables.find(image.width, fit.width), tables.find(image.height, fit.height)});
  }
  const std::vector<Band> bands = make_bands(fitted);
  at::parallel_for(0, static_cast<int64_t>(bands.size()), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const Band& band = bands[i];
      letterbox_rows(fitted[band.index], out, band.index, band.begin, band.end);
      if (band.begin == 0) pad_above_and_below(fitted[band.index], out, band.index);
    }
  });
  return outputs;
}

}  // namespace
}  // namespace lensbox

TORCH_LIBRARY_IMPL(lensbox, CPU, m) {
  m.impl("letterbox", lensbox::letterbox_cpu);
}
