#pragma once

#include <lensbox/detector.h>

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "backends/outputs.h"
#include "file/artifact_file.h"
#include "images/pixels.h"

namespace lensbox {

// A photograph for a backend: pixels in the CPU's memory, or a photograph that the backend itself has read to
// its device, with width, height and window only.
struct Source {
  DecodedPhoto photo = {};
  std::shared_ptr<const void> on_device = nullptr;
};

// Throw InputError for a photograph without pixels or with a window that is no rectangle. index: in the
// batch.
void check_source(const DecodedPhoto& photo, size_t index);

// Waits for the detections of a batch, and returns them on the CPU, in pixels of the photographs.
using PendingBatch = std::function<FoundNumbers()>;

// Reads a few JPEG files on a device, in one batch of its decoder, where the pixels are libjpeg-turbo's to
// the bit; nothing for each file that the CPU must decode, or that cannot be read.
using DeviceReader =
    std::function<std::vector<std::optional<Source>>(std::span<const std::filesystem::path>)>;

// What computes the methods of a loaded artifact: onnxruntime, or libtorch. Thread-safe, but for capture().
// Methods throw as those of Detector do.
class Backend {
 public:
  virtual ~Backend() = default;

  // Return "cpu" or "cuda:0".
  virtual std::string device() const = 0;
  bool is_on_cpu() const { return device() == "cpu"; }

  // Begin to detect in a batch of at least one photograph. A GPU may go on after the return.
  virtual PendingBatch detect(const std::vector<Source>& photos, double score, double iou) const = 0;

  virtual Loss loss(std::span<const Box> predictions, std::span<const Box> targets) const = 0;

  virtual void capture(const std::vector<int64_t>& batch_sizes, double score, double iou) = 0;

  // Return a reader, or none if the CPU decodes, by the rules of runtime/images/gpu_jpeg.py. Throws
  // DeviceError if the GPU must decode but cannot.
  virtual DeviceReader device_reader(const Reading& reading, Decode decode, size_t batch_size) const = 0;
};

// Throw DeviceError for Decode::kGpu; `reason` says why the device cannot decode.
void refuse_gpu_decoder(Decode decode, const std::string& reason);

// Return the N of "cuda:N", 0 for "cuda" and nothing for "cpu". Throws DeviceError for any other name.
std::optional<int> gpu_index(const std::string& name);

// Return whether there is a loss. TorchScript files always have one; packages and ONNX files lack a loss of
// the detector's own.
bool has_loss(const Metadata& metadata);

// Open an ONNX model in onnxruntime, on the CPU. All callers share its threads. threads: CPU threads for one
// batch. The steps around detect are Lensbox's own, the same that the export gives to a detector without its
// own. Throws ArtifactError if onnxruntime refuses the model or is not there, or if this library was built
// without it.
std::shared_ptr<Backend> load_onnx(const std::filesystem::path& artifact, const ArtifactFile& file,
                                   int threads);

// --- in src/ where the library is built with libtorch, else in without_torch.cpp ---

// Load an artifact of another format than ONNX. device: as checked_device returns it. Throws ArtifactError.
std::shared_ptr<Backend> load_with_torch(const std::filesystem::path& artifact, ArtifactFile file,
                                         const std::string& device, const LoadOptions& options);

// Return "cpu" or "cuda:N" for "cpu", "cuda" (the first GPU), "cuda:N", or "auto" (the first GPU if there is
// one, else the CPU). Throws DeviceError for any other name and for a GPU that is not there.
std::string checked_device(const std::string& name);

// Return the CPU threads of a call that names no number.
int default_threads();

// Return the threads with which libtorch computes; 1 without libtorch.
int threads_of_torch();

bool is_cuda_available();

}  // namespace lensbox
