#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <c10/util/accumulate.h>
#include <lensbox/error.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "detect/steps.h"
#include "file/errors.h"

namespace lensbox {
namespace {

void check_photo(const Photo& photo) {
  const at::Tensor& pixels = photo.pixels;
  const int64_t channels = pixels.dim() == 3 ? pixels.size(0) : 0;
  const bool is_image = channels == 1 || channels == 3 || channels == 4;
  if (pixels.scalar_type() != at::kByte || !is_image || pixels.numel() == 0) {
    throw InputError(c10::str("pixels must be uint8 [C, H, W] with C = 1, 3 or 4, got ",
                              c10::toString(pixels.scalar_type()), " ", pixels.sizes()));
  }
  if (photo.width < 1 || photo.height < 1) {
    throw InputError(c10::str("width and height must be at least 1, got ", photo.width, " x ", photo.height));
  }
  const auto [x1, y1, x2, y2] = photo.window;
  const bool is_finite = std::ranges::all_of(photo.window, [](float edge) { return std::isfinite(edge); });
  if (is_finite && x1 < x2 && y1 < y2) return;
  throw InputError(
      c10::str("window must be finite numbers x1 < x2 and y1 < y2, got ", x1, ", ", y1, ", ", x2, ", ", y2));
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

// A slot is one of the B * K places of a batch for detections. values: [B, K, ...], contiguous, on the CPU.
ExtraValues extra_of(const at::Tensor& values, int64_t slot, int64_t size) {
  const auto numbers = [&](const auto* first) {
    return std::vector(first + slot * size, first + (slot + 1) * size);
  };
  if (values.scalar_type() == at::kLong) return numbers(values.const_data_ptr<int64_t>());
  return numbers(values.const_data_ptr<float>());
}

int64_t largest_count(const DetectorModule& module, const at::Tensor& counts, int64_t slots) {
  const std::span<const int64_t> all(counts.const_data_ptr<int64_t>(), counts.numel());
  for (const int64_t count : all) {
    if (count >= 0 && count <= slots) continue;
    module.fail("method detect must return counts of 0 to " + std::to_string(slots) + ", got " +
                std::to_string(count));
  }
  return all.empty() ? 0 : std::ranges::max(all);
}

int64_t checked_label(const DetectorModule& module, int64_t label) {
  const int64_t classes = module.outputs().classes;
  if (label < 0 || label >= classes) {
    module.fail("method detect must return labels from 0 to " + std::to_string(classes - 1) +
                ", as there are " + std::to_string(classes) + " classes, got " + std::to_string(label));
  }
  return label;
}

}  // namespace

Prepared prepare(const DetectorModule& module, c10::Device device, const std::vector<Photo>& photos) {
  std::vector<at::Tensor> images;
  for (const Photo& photo : photos) {
    named("photo " + std::to_string(images.size()), [&] { check_photo(photo); });
    images.push_back(photo.pixels);
  }
  images.push_back(windows_of(photos));  // with the images, in one copy
  images = copy_to(device, images);
  const at::Tensor windows = images.back();
  images.pop_back();
  return module.preprocess(images, windows);
}

std::vector<std::vector<Detection>> collect(const DetectorModule& module, const Found& found) {
  const c10::InferenceMode inference_mode;
  const int64_t batch = found.boxes.size(0);
  const int64_t slots = found.boxes.size(1);
  std::vector<at::Tensor> moved{found.boxes.to(at::kFloat), found.scores.to(at::kFloat),
                                found.counts.to(at::kLong)};
  if (found.labels.defined()) moved.push_back(found.labels);
  moved = copy_to_cpu(moved);
  const float* const boxes = moved[0].const_data_ptr<float>();
  const float* const scores = moved[1].const_data_ptr<float>();
  const int64_t* const counts = moved[2].const_data_ptr<int64_t>();
  const int64_t* const labels = found.labels.defined() ? moved[3].const_data_ptr<int64_t>() : nullptr;

  const int64_t most = largest_count(module, moved[2], slots);
  std::vector<at::Tensor> extras;
  for (const at::Tensor& extra : found.extras) {
    extras.push_back(extra.narrow(1, 0, most));  // embeddings may be large: only the slots that are used
  }
  if (most > 0) extras = copy_to_cpu(extras);

  std::vector<std::vector<Detection>> detections(batch);
  for (int64_t b = 0; b < batch; ++b) {
    for (int64_t i = 0; i < counts[b]; ++i) {
      const int64_t slot = b * slots + i;
      const float* const box = boxes + 4 * slot;
      Detection& detection =
          detections[b].emplace_back(Detection{{box[0], box[1], box[2], box[3]}, scores[slot]});
      if (labels != nullptr) detection.label = checked_label(module, labels[slot]);
      for (size_t e = 0; e < extras.size(); ++e) {
        const int64_t size = c10::multiply_integers(module.outputs().extras[e].shape);
        detection.extras.push_back(extra_of(extras[e], b * most + i, size));
      }
    }
  }
  return detections;
}

}  // namespace lensbox
