#pragma once

#include <c10/core/Device.h>
#include <lensbox/torch/tensors.h>

#include <filesystem>
#include <vector>

#include "backends/backend.h"
#include "model/detector_module.h"

namespace lensbox {

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

// --- photo.cpp ---

// Return a photograph whose tensor shares the memory of the pixels.
Photo to_photo(const DecodedPhoto& photo);

// Copy the pixels of a photograph to the CPU. Throws InputError as detect_photos does; index: in the batch.
DecodedPhoto decoded(const Photo& photo, size_t index);

// --- torch_backend.cpp ---

// Throw InputError for a photograph that breaks the rules of Photo.
void check_photo(const Photo& photo, size_t index);

// Return a photograph for a TorchBackend, which takes its tensor.
Source source_on_device(const Photo& photo);

// Return canvases and geometry on `device`. Throws InputError for a photograph that breaks the rules of
// Photo, ArtifactError.
Prepared prepare(const DetectorModule& module, c10::Device device, const std::vector<Photo>& photos);

// Return detections on the CPU, after one copy for all, and one more for extras. Throws ArtifactError for
// counts outside of the slots.
FoundNumbers fetch(const std::filesystem::path& artifact, const Found& found);

// Return the number of target boxes that are not padding.
int64_t count_slots(const at::Tensor& targets);

// --- gpu_jpeg.cpp ---

// Return the reader of JPEG files on a GPU, by the ops of lensbox_jpeg. Pixels are ready for the current
// stream.
DeviceReader gpu_jpeg_reader(c10::Device device, const Reading& reading, Decode decode, size_t batch_size);

}  // namespace lensbox
