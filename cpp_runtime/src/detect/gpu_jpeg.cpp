#include "detect/gpu_jpeg.h"

#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <dlfcn.h>
#include <lensbox/error.h>
#include <lensbox/torch/tensors.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <utility>

#include "images/decoders.h"
#include "model/machine.h"

namespace lensbox {
namespace {

namespace fs = std::filesystem;

// As in runtime/images/gpu_jpeg.py.
constexpr size_t kLeastBatch = 16;
constexpr const char* kComparedArchitecture = "sm_90";  // H100, H200
constexpr const char* kOpenNvjpeg = "lensbox_jpeg::open_nvjpeg";
constexpr const char* kLibrary = "libnvjpeg.so.13";

std::optional<c10::OperatorHandle> find_op(const std::string& name) {
  return c10::Dispatcher::singleton().findSchema({name, ""});
}

// Call an op of the op library, which this library does not link.
template <class... Arguments>
c10::IValue call_op(const std::string& name, Arguments&&... arguments) {
  const auto op = find_op(name);
  TORCH_CHECK(op, "the op ", name, " is not registered: load a newer op library");
  torch::jit::Stack stack{c10::IValue(std::forward<Arguments>(arguments))...};
  op->callBoxed(stack);
  return stack.back();
}

// Return where nvJPEG may be: by its name, then where pip installs it beside libtorch.
std::vector<std::string> nvjpeg_libraries() {
  std::vector<std::string> libraries{kLibrary};
  Dl_info torch;
  if (dladdr(reinterpret_cast<const void*>(&at::globalContext), &torch) == 0) return libraries;
  std::error_code error;
  // .../site-packages/torch/lib/libtorch_cpu.so
  const fs::path packages = fs::canonical(torch.dli_fname, error).parent_path().parent_path().parent_path();
  if (error) return libraries;
  libraries.push_back((packages / "nvidia/cu13/lib" / kLibrary).string());
  for (auto entry = fs::directory_iterator(packages / "torchvision.libs", error);
       !error && entry != fs::directory_iterator(); entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (name.starts_with("libnvjpeg") && name.ends_with(".so.13"))
      libraries.push_back(entry->path().string());
  }
  return libraries;
}

// Open nvJPEG once for each device. Returns whether the device's decoder is open.
bool open_nvjpeg(c10::Device device) {
  static std::mutex mutex;
  static std::map<c10::DeviceIndex, bool> opened;
  const std::lock_guard lock(mutex);
  const auto [found, is_new] = opened.try_emplace(device.index(), false);
  if (is_new) {
    found->second = std::ranges::any_of(nvjpeg_libraries(), [&](const std::string& library) {
      return call_op(kOpenNvjpeg, library, device).toBool();
    });
  }
  return found->second;
}

// Return why the GPU cannot decode, or "".
std::string reason_against(c10::Device device) {
  if (!device.is_cuda()) return "the detector is on the device " + device.str();
  if (const std::string gpu = gpu_architecture(device); gpu != kComparedArchitecture) {
    return "a GPU of architecture " + gpu + " is not known to decode as the CPU does";
  }
  if (!find_op(kOpenNvjpeg)) return "the op library, which calls nvJPEG, is not loaded";
  if (!open_nvjpeg(device)) {
    return std::string("nvJPEG (") + kLibrary + ") was not found, or finds no JPEG decoder in the GPU";
  }
  return "";
}

}  // namespace

GpuJpegDecoder::GpuJpegDecoder(c10::Device device, const Reading& reading, std::string ops)
    : device_(device),
      stream_(c10::impl::VirtualGuardImpl(device.type()).getStream(device)),
      reading_(reading),
      ops_(std::move(ops)) {}

std::vector<std::optional<CodedPhoto>> GpuJpegDecoder::coded(std::span<const fs::path> paths) const {
  std::vector<std::string> names;
  for (const fs::path& path : paths) {
    names.push_back(path.string());
  }
  const auto files = call_op(ops_ + "::read_files", names).toTensorVector();
  // int64 [F, 4]: width, height, begin and end of the EXIF data; zeros for a file that the CPU must decode
  const at::Tensor headers = call_op(ops_ + "::headers", files).toTensor();
  const int64_t* header = headers.const_data_ptr<int64_t>();
  std::vector<std::optional<CodedPhoto>> photos(paths.size());
  for (size_t i = 0; i < paths.size(); ++i, header += 4) {
    const int64_t width = header[0];
    const int64_t height = header[1];
    if (width == 0) continue;
    const uint8_t* const bytes = files[i].const_data_ptr<uint8_t>();
    const int orientation = exif_orientation({bytes + header[2], bytes + header[3]});
    const bool swap = reading_.orientation == Orientation::kExif && swaps_sides(orientation);
    if (jpeg_reduction(swap ? height : width, swap ? width : height, reading_) == 1) {
      photos[i] = CodedPhoto{paths[i], files[i], orientation};
    }
  }
  return photos;
}

std::vector<std::optional<Photo>> GpuJpegDecoder::decode(const std::vector<CodedPhoto>& photos) const {
  std::vector<std::optional<Photo>> decoded(photos.size());
  if (photos.empty()) return decoded;
  const c10::StreamGuard guard(stream_);
  std::vector<at::Tensor> files;
  for (const CodedPhoto& photo : photos) {
    files.push_back(photo.file);
  }
  const char* const decode = reading_.canvas.channels == 1 ? "::decode_luma" : "::decode_rgb";
  const auto found = call_op(ops_ + decode, files, device_).toTensorVector();
  for (size_t i = 0; i < photos.size(); ++i) {
    if (found.at(i).numel() == 0) continue;
    const at::Tensor pixels = found[i].permute({1, 2, 0});
    decoded[i] = turn_upright({pixels, pixels.size(1), pixels.size(0), 1, photos[i].orientation},
                              reading_.orientation);
  }
  return decoded;
}

std::unique_ptr<const GpuJpegDecoder> gpu_jpeg_decoder(c10::Device device, const Reading& reading,
                                                       Decode decode, size_t batch_size) {
  if (decode == Decode::kCpu) return nullptr;
  if (decode == Decode::kAuto && batch_size < kLeastBatch) return nullptr;
  const std::string reason = reason_against(device);
  if (reason.empty()) return std::make_unique<const GpuJpegDecoder>(device, reading);
  if (decode == Decode::kGpu) throw DeviceError("decode must be auto or cpu here, got gpu: " + reason);
  return nullptr;
}

}  // namespace lensbox
