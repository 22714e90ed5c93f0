#pragma once

// The tensor half of the library: a Detector's results as at::Tensor, on its device. These functions pass on
// torch's own exceptions as they are.

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <lensbox/detector.h>

#include <array>
#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

namespace lensbox {

// A photograph, or a part of one, perhaps at less than full size. Boxes found in it are in pixels of the
// whole photograph, upright, at full size.
struct LENSBOX_API Photo {
  at::Tensor pixels = {};  // uint8 [C, h, w], C = 1, 3 or 4, on any device, with any strides
  int64_t width = 0;       // of the whole photograph
  int64_t height = 0;
  std::array<float, 4> window = {};  // x1, y1, x2, y2: the part of the photograph that the pixels show

  // Return a whole photograph at full size. Throws InputError unless `pixels` has three dimensions.
  static Photo of(at::Tensor pixels);
};

// Read a JPEG or PNG file for a canvas. Throws InputError if the file is absent, empty, of another format,
// damaged, truncated or too large; a reduced size lifts no limit.
LENSBOX_API Photo read_photo(const std::filesystem::path& path, const Reading& reading);

// Read a JPEG or PNG file from memory.
LENSBOX_API Photo read_photo(std::span<const uint8_t> file, const Reading& reading);

// Copy a frame. Formats other than kGray8 become RGB, or, if they have luma and the canvas is gray, gray.
// Throws InputError for a view that breaks the rules of ImageView or has more than kMaxImagePixels pixels.
LENSBOX_API Photo to_photo(const ImageView& view, const Reading& reading);

// The detections of a batch of B, on the device of the detector. Of the K slots of each image, the first
// `counts` hold a detection, best first; the values of the other slots mean nothing.
struct Found {
  at::Tensor boxes;                     // [B, K, 4]: x1, y1, x2, y2 in pixels
  at::Tensor scores;                    // [B, K]
  at::Tensor counts;                    // [B]
  at::Tensor labels = {};               // int64 [B, K]; undefined if there are no classes
  std::vector<at::Tensor> extras = {};  // float32 or int64 [B, K, ...], in the order of Metadata::extras
};

struct LossAndGradient {
  Loss loss;
  at::Tensor gradient;  // with respect to the predictions, of their shape and type, on the CPU
};

LENSBOX_API c10::Device device_of(const Detector& detector);

// Detect in photographs: for each photograph, best first, in its own pixels. Throws InputError for a
// photograph that breaks the rules of Photo, ArtifactError if a method of the artifact fails.
LENSBOX_API std::vector<std::vector<Detection>> detect_photos(const Detector& detector,
                                                              const std::vector<Photo>& photos,
                                                              const Thresholds& thresholds = {});

// Detect in photographs and return tensors, without waiting for a GPU: the results are ready for the next
// work on the current stream. They are made in inference mode, so autograd does not take them.
LENSBOX_API Found detect_tensors(const Detector& detector, const std::vector<Photo>& photos,
                                 const Thresholds& thresholds = {});

// Detect in one photograph, at full size, and in its tiles. Throws InputError, ArtifactError.
LENSBOX_API std::vector<Detection> detect_tiles(const Detector& detector, const Photo& photo,
                                                const TileSpec& tiles, const Thresholds& thresholds = {});

// Detect in canvases: uint8 [B, c, h, w] as metadata().reading.canvas says, such as letterbox makes, copied
// to the device if they lie elsewhere. Boxes are in pixels of the canvases. Throws InputError for other
// tensors, ArtifactError.
LENSBOX_API Found detect_canvases(const Detector& detector, const at::Tensor& canvases,
                                  const Thresholds& thresholds = {});

// Compute the artifact's loss without gradients.
// predictions, targets: float32 or float64 of one shape, [N, 4] or [B, N, 4], boxes as xyxy in pixels.
// Throws InputError if the shapes do not fit, ArtifactError if the artifact has no loss or it fails.
LENSBOX_API Loss compute_loss(const Detector& detector, const at::Tensor& predictions,
                              const at::Tensor& targets);

// Compute the loss and its gradient. Throws ArtifactError also if the loss has no gradient.
LENSBOX_API LossAndGradient loss_and_gradient(const Detector& detector, const at::Tensor& predictions,
                                              const at::Tensor& targets);

}  // namespace lensbox
