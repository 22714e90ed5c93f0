#pragma once

#include <lensbox/api.h>
#include <lensbox/detection.h>
#include <lensbox/detector_metadata.h>
#include <lensbox/error.h>
#include <lensbox/file_detections.h>
#include <lensbox/image_view.h>
#include <lensbox/load_options.h>
#include <lensbox/loss.h>
#include <lensbox/self_test.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace lensbox {

class Artifact;

// Of a call of detect, from 0 to 1; by default the artifact's.
struct Thresholds {
  std::optional<double> score = std::nullopt;  // detections with lower scores are left out
  std::optional<double> iou = std::nullopt;  // of NMS: the overlap beyond which the better of two boxes stays
};

// A detector loaded from an artifact. This header and those that it includes need no header of libtorch;
// artifact() is the way to those that do.
//
//   const lensbox::Detector detector = lensbox::Detector::load("detector.pt");
//   for (const lensbox::Detection& found : detector.detect({frame, 1920, 1080, 5760,
//   lensbox::PixelFormat::kRgb8})) ...
//
// Const methods may be called from several threads at once, and find what they find in one. On the CPU each
// call computes in the threads of libtorch (OpenMP), whose number is the program's business:
// OMP_NUM_THREADS=1 is best where several threads detect. The calls of a detector from an ONNX file share as
// many threads of onnxruntime as libtorch had when it was loaded; with one, each computes in its own.
//
// Every method throws lensbox::Error and nothing else: ArtifactError if a method of the artifact fails or
// returns what it must not, InputError for arguments as its comment says, and Error with kInternal for what
// is neither's fault, such as a lack of memory.
class LENSBOX_API Detector {
 public:
  // Reads the file once, checks it by the rules in docs/artifact.md, opens the op library, and loads what was
  // checked. An artifact is a program: see Trust. Throws ArtifactError, DeviceError.
  //
  // On a GPU, computes without TF32, or with it if the artifact says so; where a process has detectors of
  // both kinds, they wait for each other (see Artifact).
  static Detector load(const std::filesystem::path& artifact, const LoadOptions& options = {});

  // A detector that was moved from may only be destroyed or assigned to.
  Detector(Detector&& other) noexcept;
  Detector& operator=(Detector&& other) noexcept;
  ~Detector();

  const DetectorMetadata& metadata() const;

  // Finds objects in an image of any size: best first, in pixels of the image. Throws InputError for a view
  // that breaks the rules of ImageView or has more than 2^26 pixels, and for thresholds outside of 0..1.
  std::vector<Detection> detect(const ImageView& image, const Thresholds& thresholds = {}) const;

  // The same for several images of any sizes at once, for which the detector runs once.
  std::vector<std::vector<Detection>> detect(std::span<const ImageView> images,
                                             const Thresholds& thresholds = {}) const;

  // The same for a JPEG or PNG file, read as metadata().reading says. Throws InputError, also if the file is
  // absent or damaged.
  FileDetections detect_file(const std::filesystem::path& file, const Thresholds& thresholds = {}) const;

  // The same for such a file in memory.
  FileDetections detect_file(std::span<const uint8_t> file, const Thresholds& thresholds = {}) const;

  // The artifact's loss of predictions against as many targets, in pixels. Throws InputError if their numbers
  // differ.
  Loss loss(std::span<const Box> predictions, std::span<const Box> targets) const;

  // Repeats what the artifact's self-test holds, and compares.
  SelfTestReport self_test() const;

  // On a GPU, records what the detector does there, for each of these batch sizes and for these thresholds,
  // as a CUDA graph: replayed, it costs one launch in place of hundreds, with the same answers. A batch is
  // filled up to the next size; larger ones, and those with other thresholds, run as before. On the CPU this
  // changes nothing. Graphs of an earlier call are dropped. Throws InputError for a size below 1, DeviceError
  // if the library was built without CUDA's headers. No other thread may use the detector meanwhile.
  void capture(std::span<const int64_t> batch_sizes, const Thresholds& thresholds = {});

  // What this detector is made of: its methods take and give tensors (<lensbox/torch/artifact.h>).
  const Artifact& artifact() const;

 private:
  struct Parts;
  explicit Detector(std::unique_ptr<Parts> parts);

  std::unique_ptr<Parts> parts_;
};

}  // namespace lensbox
