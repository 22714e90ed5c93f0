#include <ATen/ATen.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <lensbox/error.h>
#include <lensbox/torch/tensors.h>

#include <utility>

#include "images/decoders.h"
#include "model/op_library.h"
#include "tensors/tensor_steps.h"

namespace lensbox {
namespace {

namespace fs = std::filesystem;

constexpr size_t kLeastBatch = 16;  // as in runtime/images/gpu_jpeg.py
constexpr const char* kDecoderFault = "lensbox_jpeg::decoder_fault";

// Return why the device cannot decode, or "".
std::string reason_against(c10::Device device) {
  if (!device.is_cuda()) return "the detector is on the device " + device.str();
  if (!c10::Dispatcher::singleton().findSchema({kDecoderFault, ""})) {
    return "the op library, which calls nvJPEG, is not loaded";
  }
  return call_op(kDecoderFault, device).toStringRef();
}

// Turn pixels [C, h, w] upright. The memory stays interleaved.
at::Tensor turned(const at::Tensor& stored, Turn turn) {
  if (!turn.mirror_x && !turn.mirror_y && !turn.swap) return stored;
  std::vector<int64_t> mirrored;
  if (turn.mirror_y) mirrored.push_back(0);
  if (turn.mirror_x) mirrored.push_back(1);
  const at::Tensor image = stored.permute({1, 2, 0}).flip(mirrored);
  return (turn.swap ? image.transpose(0, 1) : image).contiguous().permute({2, 0, 1});
}

// Read a few files, with pixels that are ready for the stream.
std::vector<std::optional<Source>> read(std::span<const fs::path> paths, const Reading& reading,
                                        const c10::Stream& stream) {
  std::vector<std::string> names;
  for (const fs::path& path : paths) {
    names.push_back(path.string());
  }
  const auto files = call_op("lensbox_jpeg::read_files", names).toTensorVector();
  // int64 [F, 4]: width, height, begin and end of the EXIF data; zeros for a file that the CPU must decode
  const at::Tensor headers = call_op("lensbox_jpeg::headers", files).toTensor();
  const int64_t* header = headers.const_data_ptr<int64_t>();
  std::vector<at::Tensor> accepted;
  std::vector<std::pair<size_t, int>> places;  // of the accepted files in `paths`, and their orientations
  for (size_t i = 0; i < paths.size(); ++i, header += 4) {
    if (header[0] == 0) continue;
    const uint8_t* const bytes = files[i].const_data_ptr<uint8_t>();
    const int orientation = exif_orientation({bytes + header[2], bytes + header[3]});
    if (jpeg_reduction(header[0], header[1], orientation, reading) != 1) continue;
    accepted.push_back(files[i]);
    places.emplace_back(i, orientation);
  }

  std::vector<std::optional<Source>> photos(paths.size());
  if (accepted.empty()) return photos;
  const c10::StreamGuard guard(stream);
  const char* const decode =
      reading.canvas.channels == 1 ? "lensbox_jpeg::decode_luma" : "lensbox_jpeg::decode_rgb";
  const auto found = call_op(decode, accepted, stream.device()).toTensorVector();
  for (size_t i = 0; i < accepted.size(); ++i) {
    if (found.at(i).numel() == 0) continue;
    const auto [place, orientation] = places[i];
    photos[place] = source_on_device(Photo::of(turned(found[i], turn_of(orientation, reading.orientation))));
  }
  return photos;
}

}  // namespace

DeviceReader gpu_jpeg_reader(c10::Device device, const Reading& reading, Decode decode, size_t batch_size) {
  if (decode == Decode::kCpu || (decode == Decode::kAuto && batch_size < kLeastBatch)) return nullptr;
  const std::string reason = reason_against(device);
  if (reason.empty()) {
    const c10::Stream stream = c10::impl::VirtualGuardImpl(device.type()).getStream(device);
    return [=](std::span<const fs::path> paths) { return read(paths, reading, stream); };
  }
  refuse_gpu_decoder(decode, reason);
  return nullptr;
}

}  // namespace lensbox
