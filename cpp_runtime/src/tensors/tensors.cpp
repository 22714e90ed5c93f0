// The functions of lensbox/torch/tensors.h. Of an ONNX file, which the core runs in the CPU's memory, tensors
// are copied.

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <lensbox/torch/tensors.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <utility>

#include "backends/onnx_backend.h"
#include "detect/steps.h"
#include "tensors/tensor_steps.h"
#include "tensors/torch_backend.h"

namespace lensbox {
namespace {

// Call the function of the two whose backend the detector has.
template <class OfTorch, class OfOnnx>
auto with_backend(const Detector& detector, OfTorch of_torch, OfOnnx of_onnx) {
  const Backend& backend = *detector.parts().backend;
  if (const auto* torch = dynamic_cast<const TorchBackend*>(&backend)) return of_torch(*torch);
  return of_onnx(dynamic_cast<const OnnxBackend&>(backend));
}

std::vector<Source> decoded_sources(const std::vector<Photo>& photos) {
  std::vector<Source> sources;
  for (const Photo& photo : photos) {
    sources.push_back({decoded(photo, sources.size())});
  }
  return sources;
}

at::Tensor tensor_of(const OutputNumbers& numbers) {
  return std::visit([&](const auto& values) { return at::tensor(values).reshape(numbers.sizes); },
                    numbers.values);
}

Found tensors_of(const FoundNumbers& numbers) {
  Found found{tensor_of(numbers.boxes), tensor_of(numbers.scores), tensor_of(numbers.counts)};
  if (!numbers.labels.sizes.empty()) found.labels = tensor_of(numbers.labels);
  std::ranges::transform(numbers.extras, std::back_inserter(found.extras), tensor_of);
  return found;
}

void check_canvases(const at::Tensor& canvases, const Canvas& canvas) {
  const bool fits =
      canvases.dim() == 4 && canvases.numel() > 0 &&
      canvases.sizes().slice(1) == at::IntArrayRef{canvas.channels, canvas.height, canvas.width};
  if (fits && canvases.scalar_type() == at::kByte) return;
  throw InputError(c10::str("canvases must be uint8 [B, ", canvas.channels, ", ", canvas.height, ", ",
                            canvas.width, "] with B at least 1, got ", c10::toString(canvases.scalar_type()),
                            " ", canvases.sizes()));
}

void check_boxes(const at::Tensor& predictions, const at::Tensor& targets) {
  if (predictions.sizes() != targets.sizes()) {
    throw InputError(c10::str("predictions and targets must have the same shape, got ", predictions.sizes(),
                              " and ", targets.sizes()));
  }
  if (predictions.dim() < 2 || predictions.size(-1) != 4) {
    throw InputError(c10::str("predictions must be [N, 4] or [B, N, 4], got ", predictions.sizes()));
  }
}

LossAndGradient loss_of(const Detector& detector, const at::Tensor& predictions, const at::Tensor& targets,
                        bool with_gradient) {
  check_boxes(predictions, targets);
  const auto of_torch = [&](const TorchBackend& backend) {
    return backend.loss(predictions, targets, with_gradient);
  };
  const auto of_onnx = [&](const OnnxBackend& backend) -> LossAndGradient {
    const bool in_double = predictions.scalar_type() == at::kDouble || targets.scalar_type() == at::kDouble;
    const auto plain = [&](const at::Tensor& boxes) {
      return boxes.detach().cpu().to(in_double ? at::kDouble : at::kFloat).contiguous();
    };
    const at::Tensor one = plain(predictions), other = plain(targets);
    const at::Tensor gradient = with_gradient ? at::empty_like(one) : at::Tensor();
    const double value = backend.loss(one.const_data_ptr(), other.const_data_ptr(), one.numel() / 4,
                                      in_double, with_gradient ? gradient.mutable_data_ptr() : nullptr);
    return {{value, count_slots(targets)},
            with_gradient ? gradient.to(predictions.scalar_type()) : at::Tensor()};
  };
  return with_backend(detector, of_torch, of_onnx);
}

void require_whole(const Photo& photo) {
  const std::array<float, 4> whole{0, 0, static_cast<float>(photo.width), static_cast<float>(photo.height)};
  if (photo.pixels.dim() != 3 || photo.pixels.size(1) != photo.height ||
      photo.pixels.size(2) != photo.width || photo.window != whole) {
    throw InputError(
        "photo must be a whole photograph at full size for tiles: read it with jpeg_oversampling 0");
  }
}

}  // namespace

int64_t count_slots(const at::Tensor& targets) {
  return targets.select(-1, 3).count_nonzero().item<int64_t>();
}

c10::Device device_of(const Detector& detector) {
  return c10::Device(detector.device());
}

Found detect_tensors(const Detector& detector, const std::vector<Photo>& photos,
                     const Thresholds& thresholds) {
  if (photos.empty()) throw InputError("photos must be at least one, got none");
  const auto limits = checked(thresholds, detector.metadata());
  const auto of_torch = [&](const TorchBackend& backend) {
    return backend.detect_tensors(photos, limits.first, limits.second);
  };
  const auto of_onnx = [&](const OnnxBackend& backend) {
    const c10::InferenceMode inference_mode;
    return tensors_of(backend.detect(decoded_sources(photos), limits.first, limits.second)());
  };
  return with_backend(detector, of_torch, of_onnx);
}

Found detect_canvases(const Detector& detector, const at::Tensor& canvases, const Thresholds& thresholds) {
  check_canvases(canvases, detector.metadata().reading.canvas);
  const auto limits = checked(thresholds, detector.metadata());
  const auto of_torch = [&](const TorchBackend& backend) {
    return backend.find(canvases, limits.first, limits.second);
  };
  const auto of_onnx = [&](const OnnxBackend& backend) {
    const c10::InferenceMode inference_mode;
    const at::Tensor plain = canvases.cpu().contiguous();
    return tensors_of(
        backend.find(plain.const_data_ptr<uint8_t>(), plain.size(0), limits.first, limits.second));
  };
  return with_backend(detector, of_torch, of_onnx);
}

std::vector<std::vector<Detection>> detect_photos(const Detector& detector, const std::vector<Photo>& photos,
                                                  const Thresholds& thresholds) {
  std::vector<Source> sources;
  with_backend(
      detector,
      [&](const TorchBackend&) {
        std::ranges::transform(photos, std::back_inserter(sources), source_on_device);
      },
      [&](const OnnxBackend&) { sources = decoded_sources(photos); });
  return detect_sources(detector.parts(), sources, thresholds);
}

std::vector<Detection> detect_tiles(const Detector& detector, const Photo& photo, const TileSpec& tiles,
                                    const Thresholds& thresholds) {
  check_tiles(tiles);
  require_whole(photo);
  const auto of_torch = [&](const TorchBackend&) {
    const auto cut = [&](const int64_t* window) {
      Photo tile = photo;
      tile.pixels = photo.pixels.slice(1, window[1], window[3]).slice(2, window[0], window[2]);
      return source_on_device(tile);
    };
    const DecodedPhoto size{{}, photo.width, photo.height, photo.window};
    return detect_in_tiles(detector.parts(), size, cut, tiles, thresholds);
  };
  const auto of_onnx = [&](const OnnxBackend&) {
    return detect_in_tiles(detector.parts(), decoded(photo, 0), tiles, thresholds);
  };
  return with_backend(detector, of_torch, of_onnx);
}

Loss compute_loss(const Detector& detector, const at::Tensor& predictions, const at::Tensor& targets) {
  return loss_of(detector, predictions, targets, /*with_gradient=*/false).loss;
}

LossAndGradient loss_and_gradient(const Detector& detector, const at::Tensor& predictions,
                                  const at::Tensor& targets) {
  return loss_of(detector, predictions, targets, /*with_gradient=*/true);
}

}  // namespace lensbox
