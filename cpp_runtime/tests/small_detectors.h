#pragma once

#include <png.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/version.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "file/artifact_file.h"
#include "helpers.h"
#include "model/detector_module.h"

// Return a detector with these methods in TorchScript, of an artifact model.pt.
inline lensbox::DetectorModule scripted(const std::string& code, const lensbox::Outputs& outputs = {}) {
  torch::jit::Module module("Detector");
  module.define(code);
  return {"model.pt", outputs, lensbox::script_methods(module, outputs)};
}

inline constexpr const char* kCode = R"(
def preprocess(self, images: List[Tensor], windows: Optional[Tensor]):
  canvases: List[Tensor] = []
  whole: List[Tensor] = []
  for image in images:
    assert image.size(2) != 99, "the image has 99 columns"
    size = [float(image.size(2)), float(image.size(1))]
    whole.append(torch.tensor([0.0, 0.0] + size + size, device=image.device))
    mean = torch.mean(torch._cast_Float(image.expand([3, -1, -1])), [1, 2])
    canvases.append(torch._cast_Byte(torch.round(mean)).reshape([3, 1, 1]).expand([3, 8, 8]))
  geometry = torch.stack(whole)
  if windows is not None:
    geometry = windows
  return torch.stack(canvases), geometry

def detect(self, canvases, score_threshold: float, iou_threshold: float):
  mean = torch.mean(torch._cast_Float(canvases), [2, 3])
  boxes = torch.stack([mean[:, 0] * 0, mean[:, 0] * 0, mean[:, 0], mean[:, 1]], 1)
  scores = mean[:, 2:] / 255
  counts = torch._cast_Int(scores[:, 0] > score_threshold)
  return {"boxes": boxes.unsqueeze(1), "scores": scores, "counts": counts}

def restore(self, boxes, geometry):
  return boxes / 255 * geometry[:, 4:].repeat([1, 2]).unsqueeze(1)

def loss(self, predictions, targets):
  assert float(predictions.flatten()[0]) != -1.0, "the first prediction is -1"
  return (predictions - targets).abs().mean()
)";

inline constexpr const char* kMetadata = R"JSON({
  "format_version": 3, "name": "mean color", "lensbox_version": "0.1.0", "torch_version": ")JSON" TORCH_VERSION
                                         R"JSON(",
  "weights_sha256": "00", "input": {}, "output": {},
  "canvas": {"height": 8, "width": 8, "channels": 3, "fill": 0},
  "reading": {"orientation": "exif", "jpeg_oversampling": 2},
  "ops": [], "methods": ["preprocess", "detect", "restore", "loss"],
  "defaults": {"score_threshold": 0.125, "iou_threshold": 0.5},
  "self_test": {
    "image": {"shape": [3, 1, 1], "pixels": [51, 102, 204]}, "score_threshold": 0.25, "iou_threshold": 0.5,
    "expected": {"boxes": [[0, 0, 0.2, 0.4]], "scores": [0.8]},
    "loss": {"predictions": [[0, 0, 1, 1]], "targets": [[0, 0, 2, 2]], "expected": 0.5},
    "tolerance": {"cpu": {"boxes": 0.001, "scores": 0.001, "loss": 0.001},
                  "cuda": {"boxes": 0.001, "scores": 0.001, "loss": 0.001}}}})JSON";

// Write an artifact of a detector that needs no op library. Its canvas is RGB, of 8 x 8 pixels, each of the
// image's mean color. In an image it finds one detection: the box (0, 0, mean red, mean green), of which 255
// is as wide and high as the image, with the score mean blue / 255. It finds nothing if that is not above the
// threshold. It fails for an image of 99 columns. The loss is the mean absolute difference; it fails for
// boxes that begin with -1.
inline void save_small_artifact(const std::filesystem::path& path) {
  torch::jit::Module module("__torch__.Detector");
  module.define(kCode);
  module.save(path.string(), {{"lensbox.json", kMetadata}});
  std::ifstream stream(path, std::ios::binary);
  std::string archive{std::istreambuf_iterator<char>(stream), {}};
  // Its seal, as runtime/file/seal.py writes it: the last two bytes are the length of the comment.
  archive.replace(archive.size() - 2, 2, std::string("\x4f\0", 2) + "lensbox.sha256=");
  std::ofstream(path, std::ios::binary) << archive + lensbox::sha256(archive);
}

// Return an RGB PNG file of one row of pixels, whose samples count up by 7.
inline std::string png_file(uint32_t width) {
  std::vector<uint8_t> samples(size_t{3} * width);
  for (size_t i = 0; i < samples.size(); ++i) {
    samples[i] = static_cast<uint8_t>(7 * i);
  }
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  image.width = width;
  image.height = 1;
  image.format = PNG_FORMAT_RGB;
  png_alloc_size_t size = 4096;
  std::string bytes(size, '\0');
  png_image_write_to_memory(&image, bytes.data(), &size, 0, samples.data(), 0, nullptr);
  return bytes.substr(0, size);
}
