#include "tensors/torch_backend.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/StreamGuard.h>
#include <lensbox/error.h>

#include <algorithm>
#include <optional>

#include "tensors/tensor_steps.h"

namespace lensbox {
namespace {

// The threads and the stream of a call, which ends with what the thread had before.
class CallSettings {
 public:
  CallSettings(c10::Device device, int threads, void* stream) : before_(at::get_num_threads()) {
    if (threads > 0 && threads != before_) at::set_num_threads(threads);
    // torch's id of a stream that it did not make is the pointer (c10/cuda/CUDAStream.cpp).
    if (stream != nullptr && device.is_cuda()) {
      on_stream_.emplace(c10::Stream(c10::Stream::UNSAFE, device, reinterpret_cast<int64_t>(stream)));
    }
  }
  CallSettings(const CallSettings&) = delete;
  CallSettings& operator=(const CallSettings&) = delete;
  ~CallSettings() {
    if (at::get_num_threads() != before_) at::set_num_threads(before_);
  }

 private:
  int before_;
  std::optional<c10::StreamGuard> on_stream_;
};

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

std::vector<Photo> photos_of(const std::vector<Source>& sources) {
  std::vector<Photo> photos;
  for (const Source& source : sources) {
    if (source.on_device == nullptr) {
      photos.push_back(to_photo(source.photo));
      continue;
    }
    const auto& pixels = *static_cast<const at::Tensor*>(source.on_device.get());
    photos.push_back({pixels, source.photo.width, source.photo.height, source.photo.window});
  }
  return photos;
}

// Return the numbers of a contiguous tensor on the CPU, float or int64.
OutputNumbers numbers_of(const at::Tensor& tensor) {
  const auto all = [&](const auto* first) { return std::vector(first, first + tensor.numel()); };
  OutputNumbers numbers{tensor.sizes().vec()};
  if (tensor.scalar_type() == at::kLong) {
    numbers.values = all(tensor.const_data_ptr<int64_t>());
  } else {
    numbers.values = all(tensor.const_data_ptr<float>());
  }
  return numbers;
}

// Return float32 [N, 4], a copy.
at::Tensor tensor_of(std::span<const Box> boxes) {
  at::Tensor tensor = at::empty({static_cast<int64_t>(boxes.size()), 4}, at::kFloat);
  std::ranges::copy(boxes, reinterpret_cast<Box*>(tensor.mutable_data_ptr<float>()));
  return tensor;
}

}  // namespace

void check_photo(const Photo& photo, size_t index) {
  const at::Tensor& pixels = photo.pixels;
  const int64_t channels = pixels.dim() == 3 ? pixels.size(0) : 0;
  const bool is_image = channels == 1 || channels == 3 || channels == 4;
  if (pixels.scalar_type() != at::kByte || !is_image || pixels.numel() == 0) {
    throw InputError(c10::str("photo ", index, ": pixels must be uint8 [C, H, W] with C = 1, 3 or 4, got ",
                              c10::toString(pixels.scalar_type()), " ", pixels.sizes()));
  }
  check_source({{}, photo.width, photo.height, photo.window}, index);
}

Source source_on_device(const Photo& photo) {
  return {{{}, photo.width, photo.height, photo.window}, std::make_shared<const at::Tensor>(photo.pixels)};
}

Prepared prepare(const DetectorModule& module, c10::Device device, const std::vector<Photo>& photos) {
  std::vector<at::Tensor> images;
  for (const Photo& photo : photos) {
    check_photo(photo, images.size());
    images.push_back(photo.pixels);
  }
  images.push_back(windows_of(photos));  // with the images, in one copy
  images = copy_to(device, images);
  const at::Tensor windows = images.back();
  images.pop_back();
  return module.preprocess(images, windows);
}

FoundNumbers fetch(const std::filesystem::path& artifact, const Found& found) {
  const c10::InferenceMode inference_mode;
  std::vector<at::Tensor> moved{found.boxes.to(at::kFloat), found.scores.to(at::kFloat),
                                found.counts.to(at::kLong)};
  if (found.labels.defined()) moved.push_back(found.labels);
  moved = copy_to_cpu(moved);
  FoundNumbers numbers{numbers_of(moved[0]), numbers_of(moved[1]), numbers_of(moved[2])};
  if (found.labels.defined()) numbers.labels = numbers_of(moved[3]);

  const int64_t most = largest_count(artifact, numbers.counts, found.boxes.size(1));
  std::vector<at::Tensor> extras;
  for (const at::Tensor& extra : found.extras) {
    extras.push_back(extra.narrow(1, 0, most));  // embeddings may be large: only the slots that are used
  }
  if (most > 0) extras = copy_to_cpu(extras);
  for (const at::Tensor& extra : extras) {
    numbers.extras.push_back(most > 0 ? numbers_of(extra) : OutputNumbers{extra.sizes().vec()});
  }
  return numbers;
}

PendingBatch TorchBackend::detect(const std::vector<Source>& photos, double score, double iou) const {
  return [this, found = detect_tensors(photos_of(photos), score, iou)] {
    const CallSettings settings(device_, 0, stream_);
    return fetch(module_->path(), found);
  };
}

Found TorchBackend::detect_tensors(const std::vector<Photo>& photos, double score, double iou) const {
  const CallSettings settings(device_, threads_, stream_);
  const c10::InferenceMode inference_mode;
  const Prepared prepared = prepare(*module_, device_, photos);
  return module_->restore(find(prepared.canvases, score, iou), prepared.geometry);
}

Found TorchBackend::find(const at::Tensor& canvases, double score, double iou) const {
  const CallSettings settings(device_, threads_, stream_);
  const c10::InferenceMode inference_mode;
  const at::Tensor there = canvases.to(device_);
  if (graphs_) {
    if (auto found = graphs_(there, score, iou)) return *std::move(found);
  }
  return module_->detect(there, score, iou);
}

Loss TorchBackend::loss(std::span<const Box> predictions, std::span<const Box> targets) const {
  return loss(tensor_of(predictions), tensor_of(targets), /*with_gradient=*/false).loss;
}

LossAndGradient TorchBackend::loss(const at::Tensor& predictions, const at::Tensor& targets,
                                   bool with_gradient) const {
  const CallSettings settings(device_, threads_, stream_);
  // Leave inference mode, if the caller is in it: its tensors have no gradient, so copies are made.
  const c10::InferenceMode inference_mode(!with_gradient);
  const at::AutoGradMode gradient_mode(with_gradient);
  const auto copy = [&](const at::Tensor& boxes) {
    return boxes.to(device_, /*non_blocking=*/false, /*copy=*/true);
  };
  const auto [value, gradient] =
      module_->loss(copy(predictions).requires_grad_(with_gradient), copy(targets));
  return {{value, count_slots(targets)}, with_gradient ? gradient.cpu() : at::Tensor()};
}

void TorchBackend::capture(const std::vector<int64_t>& batch_sizes, double score, double iou) {
  if (!device_.is_cuda()) return;
  const CallSettings settings(device_, threads_, stream_);
  const c10::InferenceMode inference_mode;
  // Record with a canvas that the artifact makes from a photograph.
  const Photo dot = Photo::of(at::zeros({1, 1, 1}, at::kByte));
  const at::Tensor canvas = prepare(*module_, device_, {dot}).canvases;
  graphs_ = record_graphs(*module_, canvas, batch_sizes, score, iou);
}

DeviceReader TorchBackend::device_reader(const Reading& reading, Decode decode, size_t batch_size) const {
  const CallSettings settings(device_, threads_, stream_);
  return gpu_jpeg_reader(device_, reading, decode, batch_size);
}

}  // namespace lensbox
