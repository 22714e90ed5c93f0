#pragma once

#include <c10/core/Device.h>
#include <lensbox/torch/tensors.h>

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "model/detector_module.h"

// The parts of Detector, each in a source file of its own.
namespace lensbox {

// --- load_module.cpp ---

struct Detector::Parts {
  c10::Device device;
  Metadata metadata;
  std::shared_ptr<const DetectorModule> module;
  DetectGraphs graphs = {};  // none unless asked for
};

// Load an artifact of any format, as Detector::load says. Throws ArtifactError, DeviceError.
Detector::Parts load_module(const std::filesystem::path& path, const LoadOptions& options);

// --- copy_to.cpp ---

// Return the tensors on `device`, with the same strides if there are no gaps in their memory. Tensors on the
// CPU go to a GPU in one asynchronous copy, from one buffer in pinned memory.
std::vector<at::Tensor> copy_to(c10::Device device, const std::vector<at::Tensor>& tensors);

// Copy the tensors' numbers to one buffer of bytes on their device, each tensor at an aligned address.
at::Tensor pack(const std::vector<at::Tensor>& tensors, bool pinned);
// Return views of such a buffer, with the shapes and types of `packed`.
std::vector<at::Tensor> unpack(const at::Tensor& buffer, const std::vector<at::Tensor>& packed);

// Return tensors of one device on the CPU, contiguous, after one copy for all of them. It waits for a GPU,
// whose copy goes to pinned memory.
std::vector<at::Tensor> copy_to_cpu(const std::vector<at::Tensor>& tensors);

// --- detect_batch.cpp ---

// The steps around the method detect, for a batch of photographs.

// Return canvases and geometry on `device`. Throws InputError for a photograph that breaks the rules of
// Photo, ArtifactError.
Prepared prepare(const DetectorModule& module, c10::Device device, const std::vector<Photo>& photos);

// Return the detections of each photograph, after one copy to the CPU, and one more for extras. Throws
// ArtifactError for counts outside of the slots and for labels without a class.
std::vector<std::vector<Detection>> collect(const DetectorModule& module, const Found& found);

// --- detector.cpp ---

// Return the thresholds of score and IoU. Throws InputError.
std::pair<double, double> checked(const Thresholds& thresholds, const Metadata& metadata);

// --- gpu_jpeg.cpp ---

// Reads a few JPEG files on a GPU, in one batch of its decoder, by the ops of lensbox_jpeg, where the pixels
// are libjpeg-turbo's to the bit; nothing for each file that the CPU must decode, or that cannot be read.
using GpuJpegReader =
    std::function<std::vector<std::optional<Photo>>(std::span<const std::filesystem::path>)>;

// Return the reader to use for a detector on `device`, or none if the CPU decodes, by the rules of
// runtime/images/gpu_jpeg.py. Pixels are ready for the current stream. Throws DeviceError if the GPU must
// decode but cannot.
GpuJpegReader gpu_jpeg_reader(c10::Device device, const Reading& reading, Decode decode, size_t batch_size);

// --- photo.cpp ---

// Copy a frame as to_photo does; error messages begin with `name`.
Photo to_photo(const ImageView& view, const Reading& reading, const std::string& name);

// --- tiles.cpp ---

// Throw InputError for a specification out of its range.
void check_tiles(const TileSpec& spec);

}  // namespace lensbox
