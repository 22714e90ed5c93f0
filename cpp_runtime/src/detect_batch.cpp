#include "detect_batch.h"

#include <ATen/ATen.h>
#include <lensbox/error.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <utility>

#include "copy_to.h"

namespace lensbox {
namespace {

// uint8, [C, H, W]
void check_pixels(const at::Tensor& pixels, const std::string& name) {
  const int64_t channels = pixels.dim() == 3 ? pixels.size(0) : 0;
  const bool is_image = channels == 1 || channels == 3 || channels == 4;
  if (pixels.scalar_type() == at::kByte && is_image && pixels.numel() > 0) return;
  throw InputError(name + ": pixels must be uint8 [C, H, W] with C = 1, 3 or 4, got " +
                   c10::toString(pixels.scalar_type()) + " " + c10::str(pixels.sizes()));
}

void check_window(const Photo& photo, const std::string& name) {
  if (photo.width < 1 || photo.height < 1) {
    throw InputError(name + ": width and height must be at least 1, got " + std::to_string(photo.width) +
                     " x " + std::to_string(photo.height));
  }
  const auto [x1, y1, x2, y2] = photo.window;
  const bool is_finite = std::ranges::all_of(photo.window, [](float edge) { return std::isfinite(edge); });
  if (is_finite && x1 < x2 && y1 < y2) return;
  throw InputError(name + ": window must be finite numbers x1 < x2 and y1 < y2, got " +
                   c10::str(x1, ", ", y1, ", ", x2, ", ", y2));
}

bool is_whole(const Photo& photo) {
  const Photo whole = Photo::of(photo.pixels);
  return whole.width == photo.width && whole.height == photo.height && whole.window == photo.window;
}

// float32 [B, 6]
at::Tensor windows_of(const std::vector<Photo>& photos) {
  std::vector<float> values;
  for (const Photo& photo : photos) {
    values.insert(values.end(), photo.window.begin(), photo.window.end());
    values.push_back(static_cast<float>(photo.width));
    values.push_back(static_cast<float>(photo.height));
  }
  return at::tensor(values, at::kFloat).reshape({-1, 6});
}

// The numbers of a tensor as 32-bit words, bit by bit, so that all sorts of them can travel together.
at::Tensor words(const at::Tensor& tensor, at::ScalarType type) {
  return tensor.to(type).contiguous().view(at::kInt).flatten();
}

}  // namespace

Prepared prepare(const DetectorModule& module, const Metadata& metadata, c10::Device device,
                 const std::vector<Photo>& photos) {
  const bool single = metadata.format_version == kSingleImageFormat;
  std::vector<at::Tensor> images;
  for (const Photo& photo : photos) {
    const std::string name = "photo " + std::to_string(images.size());
    check_pixels(photo.pixels, name);
    check_window(photo, name);
    if (single && !is_whole(photo)) {
      throw InputError(name +
                       ": an artifact of format 1 looks at whole photographs at full size, got a part");
    }
    images.push_back(photo.pixels.to(device));
  }
  return single ? module.preprocess_each(images) : module.preprocess(images, windows_of(photos));
}

Found restore(const DetectorModule& module, const Metadata& metadata, const Found& found,
              const at::Tensor& geometry) {
  const bool single = metadata.format_version == kSingleImageFormat;
  return {single ? module.restore_each(found.boxes, geometry) : module.restore(found.boxes, geometry),
          found.scores, found.counts};
}

std::vector<std::vector<Detection>> collect(const DetectorModule& module, const Found& found) {
  const int64_t batch = found.boxes.size(0);
  const int64_t slots = found.boxes.size(1);
  const at::Tensor all = at::cat({words(found.boxes, at::kFloat), words(found.scores, at::kFloat),
                                  words(found.counts, at::kInt)})
                             .cpu();
  const at::Tensor floats = all.view(at::kFloat);
  const float* box = floats.const_data_ptr<float>();
  const float* score = box + 4 * batch * slots;
  const int32_t* const counts = all.const_data_ptr<int32_t>() + 5 * batch * slots;

  std::vector<std::vector<Detection>> detections(batch);
  for (int64_t b = 0; b < batch; ++b, box += 4 * slots, score += slots) {
    if (counts[b] < 0 || counts[b] > slots) {
      module.fail("method detect must return counts of 0 to " + std::to_string(slots) + ", got " +
                  std::to_string(counts[b]));
    }
    for (int64_t i = 0; i < counts[b]; ++i) {
      const float* const edges = box + 4 * i;
      detections[b].push_back({{edges[0], edges[1], edges[2], edges[3]}, score[i]});
    }
  }
  return detections;
}

}  // namespace lensbox
