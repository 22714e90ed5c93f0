#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/Stream.h>
#include <lensbox/detector.h>

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace lensbox {

// Decodes JPEG files on a GPU by the ops of lensbox_jpeg, where the pixels are libjpeg-turbo's to the bit.
// The rules are those of runtime/images/gpu_jpeg.py.
class GpuJpegDecoder {
 public:
  // ops: the namespace of read_files, headers, decode_luma and decode_rgb.
  GpuJpegDecoder(c10::Device device, const Reading& reading, std::string ops = "lensbox_jpeg");

  // Read a few files, in one batch of the decoder; nothing for each file that the CPU must decode, or that
  // cannot be read. Pixels are ready for the stream that was current when this object was made.
  std::vector<std::optional<Photo>> read(std::span<const std::filesystem::path> paths) const;

 private:
  c10::Device device_;
  c10::Stream stream_;
  Reading reading_;
  std::string ops_;
};

// Return the decoder to use for a detector on `device`, or null for the CPU. Throws DeviceError if
// the GPU must decode but cannot.
std::unique_ptr<const GpuJpegDecoder> gpu_jpeg_decoder(c10::Device device, const Reading& reading,
                                                       Decode decode, size_t batch_size);

// Detect in files as Detector::detect_files does, with options that were checked. decoder: of the GPU, or
// null.
void detect_files(const Detector& detector, std::span<const std::filesystem::path> files,
                  const FilesOptions& options, const Reading& reading, const GpuJpegDecoder* decoder,
                  const std::function<void(size_t, const FileOutcome&)>& report);

}  // namespace lensbox
