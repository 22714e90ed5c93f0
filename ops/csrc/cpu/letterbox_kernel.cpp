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

// Pixels, of images and canvases, that are worth a thread of their own: some 50 microseconds of work.
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

int64_t work(const FittedImage& fitted) {
  return int64_t{fitted.image.height} * fitted.image.width + fitted.fit.height * fitted.fit.width;
}

// Rows [begin, end) of the image `index`, fitted to its canvas: what a thread does in one go.
struct Band {
  int64_t index;
  int32_t begin, end;
};

// Where two bands meet, both filter the rows of the image that both depend on. So an image is divided only
// where it is more than a thread's share of the work.
std::vector<Band> make_bands(const std::vector<FittedImage>& images, int64_t share) {
  std::vector<Band> bands;
  for (size_t index = 0; index < images.size(); ++index) {
    const int64_t rows = images[index].fit.height;
    const int64_t parts = std::clamp<int64_t>(work(images[index]) / share, 1, rows);
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
  int64_t all_work = 0;
  for (const FittedImage& image : fitted) {
    all_work += work(image);
  }
  const int64_t threads = at::in_parallel_region() ? 1 : at::get_num_threads();
  const std::vector<Band> bands = make_bands(fitted, std::max(kGrain, all_work / threads));
  const auto count = static_cast<int64_t>(bands.size());
  const int64_t grain = std::max<int64_t>(1, kGrain / (all_work / count));
  at::parallel_for(0, count, grain, [&](int64_t begin, int64_t end) {
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
