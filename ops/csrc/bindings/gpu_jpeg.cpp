// Decodes JPEG files on a GPU, from bytes to planes: nvJPEG's hardware decodes them while a kernel finds out
// which ones are sound.

#include <ATen/Context.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <dlfcn.h>
#include <torch/library.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <future>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "../backends.h"
#include "../checks.h"

namespace lensbox {
namespace {

#ifdef LENSBOX_WITH_CUDA
// The GPUs whose decoder was compared with libjpeg-turbo, and the version of nvJPEG that was used.
constexpr const char* kComparedArchitecture = "sm_90";  // H100, H200
constexpr const char* kLibrary = "libnvjpeg.so.13";

// nvJPEG's decoder of a device serves one call at a time.
std::mutex& decoder_mutex() {
  static std::mutex mutex;
  return mutex;
}

at::Device numbered(at::Device device) {
  TORCH_CHECK_VALUE(device.is_cuda(), "lensbox_jpeg: device must be a CUDA device, got ", device);
  return device.has_index() ? device : at::Device(at::kCUDA, c10::cuda::current_device());
}

// Return where nvJPEG may be: by its name, then where pip installs it beside libtorch.
std::vector<std::string> nvjpeg_libraries() {
  namespace fs = std::filesystem;
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
    if (name.rfind("libnvjpeg", 0) == 0 && name.find(".so.13") != std::string::npos)
      libraries.push_back(entry->path().string());
  }
  return libraries;
}

// Open nvJPEG once for each device. Return whether the device's decoder is open.
bool open_nvjpeg(at::Device device) {
  static std::map<c10::DeviceIndex, bool> opened;
  const c10::cuda::CUDAGuard guard(device);
  const std::lock_guard<std::mutex> lock(decoder_mutex());
  const auto [found, is_new] = opened.try_emplace(device.index(), false);
  if (is_new) {
    for (const std::string& library : nvjpeg_libraries())
      found->second = found->second || lensbox_cuda_open_nvjpeg(library.c_str());
  }
  return found->second;
}

std::string gpu_fault(at::Device device) {
  int major = 0, minor = 0;
  C10_CUDA_CHECK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device.index()));
  C10_CUDA_CHECK(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device.index()));
  const std::string architecture = "sm_" + std::to_string(major) + std::to_string(minor);
  if (architecture != kComparedArchitecture)
    return "a GPU of architecture " + architecture + " is not known to decode as the CPU does";
  if (open_nvjpeg(device)) return "";
  return std::string("nvJPEG (") + kLibrary + ") was not found, or finds no JPEG decoder in the GPU";
}

// The streams of a device, beside those that compute, and before these: their kernels are short. torch keeps
// memory of one stream for reuse there.
struct Streams {
  c10::cuda::CUDAStream checking, decoding;
};

Streams streams_of(c10::DeviceIndex device) {
  static std::map<c10::DeviceIndex, Streams> streams;
  const std::lock_guard<std::mutex> lock(decoder_mutex());
  const auto found = streams.find(device);
  if (found != streams.end()) return found->second;
  constexpr bool kIsUrgent = true;
  return streams
      .emplace(device, Streams{c10::cuda::getStreamFromPool(kIsUrgent, device),
                               c10::cuda::getStreamFromPool(kIsUrgent, device)})
      .first->second;
}

// What a stream has been given until now. The destructor waits for it if `wait` has not.
class Work {
 public:
  explicit Work(cudaStream_t stream) {
    C10_CUDA_CHECK(cudaEventCreateWithFlags(&done_, cudaEventBlockingSync | cudaEventDisableTiming));
    const cudaError_t error = cudaEventRecord(done_, stream);
    if (error != cudaSuccess) cudaEventDestroy(done_);
    C10_CUDA_CHECK(error);
  }
  Work(const Work&) = delete;
  Work& operator=(const Work&) = delete;
  ~Work() {
    cudaEventSynchronize(done_);
    cudaEventDestroy(done_);
  }

  // Wait awake for up to `kAwake`, then asleep: a thread that sleeps may wake 0.1 ms late.
  void wait() const {
    constexpr std::chrono::milliseconds kAwake(2);
    const auto until = std::chrono::steady_clock::now() + kAwake;
    cudaError_t error = cudaEventQuery(done_);
    while (error == cudaErrorNotReady) {
      static_cast<void>(cudaGetLastError());  // else a later check of a launch would find this
      std::this_thread::yield();
      const bool sleeps = std::chrono::steady_clock::now() > until;
      error = sleeps ? cudaEventSynchronize(done_) : cudaEventQuery(done_);
    }
    C10_CUDA_CHECK(error);
  }

 private:
  cudaEvent_t done_ = nullptr;
};

constexpr int64_t aligned(int64_t bytes) {
  return (bytes + 255) / 256 * 256;
}

// Copies of the files that were accepted, in pinned memory.
struct Copies {
  Tensor memory;                 // first the scans, then the places, then the files
  std::vector<size_t> position;  // in the list of all files
  std::vector<size_t> sizes;
  int64_t count = 0;
  JpegScan* scans;
  JpegPlace* places;
  int64_t device_bytes;  // of the memory and the workspaces behind it
};

// Call `work` with the indices below `count`, in a few threads if there are many.
template <class Work>
void for_each_index(size_t count, const Work& work) {
  constexpr size_t kLeast = 8, kMost = 4;  // indices of a thread; threads
  const size_t threads = std::clamp<size_t>(count / kLeast, 1, kMost);
  const auto share = [&](size_t first) {
    for (size_t i = first; i < count; i += threads)
      work(i);
  };
  std::vector<std::future<void>> others;
  for (size_t i = 1; i < threads; ++i)
    others.push_back(std::async(std::launch::async, share, i));
  share(0);
  for (std::future<void>& other : others)
    other.get();
}

Copies copied(at::TensorList files) {
  const auto most = static_cast<int64_t>(files.size());
  const int64_t scan_bytes = aligned(most * static_cast<int64_t>(sizeof(JpegScan)));
  int64_t bytes = scan_bytes + aligned(most * static_cast<int64_t>(sizeof(JpegPlace)));
  std::vector<const uint8_t*> contents;
  std::vector<int64_t> begins, sizes(files.size());
  for (const Tensor& file : files) {
    contents.push_back(bytes_of_file(file));
    begins.push_back(bytes);
    bytes += aligned(file.numel());
  }
  Copies copies;
  copies.memory = at::empty({bytes}, at::TensorOptions().dtype(at::kByte).pinned_memory(true));
  uint8_t* const memory = copies.memory.mutable_data_ptr<uint8_t>();
  copies.scans = reinterpret_cast<JpegScan*>(memory);
  copies.places = reinterpret_cast<JpegPlace*>(memory + scan_bytes);
  copies.device_bytes = bytes;
  for_each_index(files.size(), [&](size_t i) {
    sizes[i] = lensbox_cpu_read_jpeg(contents[i], static_cast<size_t>(files[i].numel()), memory + begins[i],
                                     copies.scans[i]);
  });
  for (size_t i = 0; i < files.size(); ++i) {
    if (sizes[i] == 0) continue;
    const JpegScan& scan = copies.scans[copies.count] = copies.scans[i];
    copies.position.push_back(i);
    copies.sizes.push_back(static_cast<size_t>(sizes[i]));
    copies.places[copies.count++] = {begins[i], copies.device_bytes};
    const JpegWorkspace workspace = jpeg_workspace(scan);
    copies.device_bytes += aligned(4 * (workspace.words + workspace.ends));
  }
  return copies;
}

// Whether each copied file is sound, bool [count] in pinned memory, once the work is done.
struct Check {
  Tensor is_well_formed;
  Work work;
};

Check start_check(const Copies& copies, const c10::cuda::CUDAStream& stream) {
  const c10::cuda::CUDAStreamGuard guard(stream);
  const Tensor memory =
      at::empty({copies.device_bytes}, at::TensorOptions().device(stream.device()).dtype(at::kByte));
  const Tensor is_well_formed =
      at::empty({copies.count}, at::TensorOptions().dtype(at::kBool).pinned_memory(true));
  const uint8_t* const host = copies.memory.const_data_ptr<uint8_t>();
  uint8_t* const device = memory.mutable_data_ptr<uint8_t>();
  C10_CUDA_CHECK(cudaMemcpyAsync(device, host, copies.memory.nbytes(), cudaMemcpyHostToDevice, stream));
  const int64_t scan_bytes = reinterpret_cast<const uint8_t*>(copies.places) - host;
  C10_CUDA_CHECK(lensbox_cuda_check_jpegs(device, reinterpret_cast<const JpegPlace*>(device + scan_bytes),
                                          reinterpret_cast<const JpegScan*>(device), copies.count,
                                          is_well_formed.mutable_data_ptr<bool>(), stream));
  return Check{is_well_formed, Work(stream)};
}

// A plane of the chroma has ceil(height / down) rows of ceil(width / across) samples.
int32_t chroma_width(const JpegScan& scan) {
  return (scan.width + scan.across - 1) / scan.across;
}

int64_t chroma_bytes(const JpegScan& scan) {
  return aligned(int64_t{(scan.height + scan.down - 1) / scan.down} * chroma_width(scan));
}

// The pixels of the copied files, uint8 [C, H, W] each, once the work is done.
struct Decoding {
  std::vector<Tensor> pixels;  // empty if nvJPEG refuses
  Tensor chroma, colors;       // in use until then
  Work work;
};

// C is 3 for a file with colors if with_colors, else 1 (luma). used_on: the stream that reads the pixels.
Decoding start_decoding(const Copies& copies, bool with_colors, const c10::cuda::CUDAStream& used_on,
                        const c10::cuda::CUDAStream& stream) {
  const c10::cuda::CUDAStreamGuard guard(stream);
  const auto options = at::TensorOptions().device(stream.device()).dtype(at::kByte);
  int64_t pixel_bytes = 0, all_chroma_bytes = 0;
  for (int64_t i = 0; i < copies.count; ++i) {
    const JpegScan& scan = copies.scans[i];
    const int64_t channels = with_colors ? scan.count : 1;
    pixel_bytes += aligned(channels * scan.height * scan.width);
    if (channels == 3) all_chroma_bytes += 2 * chroma_bytes(scan);
  }
  const Tensor chroma_memory = at::empty({all_chroma_bytes}, options);
  const Tensor memory = at::empty({pixel_bytes}, options);
  memory.record_stream(used_on);
  uint8_t* chroma = chroma_memory.mutable_data_ptr<uint8_t>();
  int64_t begin = 0;
  std::vector<const uint8_t*> files;
  std::vector<JpegPlanes> images;
  std::vector<JpegColors> colors;
  std::vector<Tensor> found;
  for (int64_t i = 0; i < copies.count; ++i) {
    const JpegScan& scan = copies.scans[i];
    const int64_t channels = with_colors ? scan.count : 1, plane = int64_t{scan.height} * scan.width;
    uint8_t* const pixels = memory.mutable_data_ptr<uint8_t>() + begin;
    JpegPlanes image = {{pixels}, {static_cast<size_t>(scan.width)}};
    if (channels == 3) {
      for (int j = 1; j < 3; ++j, chroma += chroma_bytes(scan)) {
        image.planes[j] = chroma;
        image.widths[j] = static_cast<size_t>(chroma_width(scan));
      }
      colors.push_back(
          {pixels, {image.planes[1], image.planes[2]}, scan.width, scan.height, scan.across, scan.down});
    }
    files.push_back(copies.memory.const_data_ptr<uint8_t>() + copies.places[i].file);
    images.push_back(image);
    found.push_back(memory.as_strided({channels, scan.height, scan.width}, {plane, scan.width, 1}, begin));
    begin += aligned(channels * plane);
  }
  // Before the decoder starts, since this copy waits for the stream with a core awake.
  const auto bytes = static_cast<int64_t>(colors.size() * sizeof(JpegColors));
  const Tensor copied_colors = at::from_blob(colors.data(), {bytes}, at::kByte).to(options.device());
  if (!lensbox_cuda_decode_jpegs(files.data(), copies.sizes.data(), images.data(), copies.count,
                                 !colors.empty(), stream)) {
    found.clear();
  } else if (!colors.empty()) {
    C10_CUDA_CHECK(
        lensbox_cuda_convert_jpeg_colors(static_cast<const JpegColors*>(copied_colors.const_data_ptr()),
                                         static_cast<int64_t>(colors.size()), stream));
  }
  return Decoding{found, chroma_memory, copied_colors, Work(stream)};
}

// Return the pixels, uint8 [C, H, W], of each file that nvJPEG decodes as the CPU does, and an empty tensor
// for each other file. The pixels are ready for any stream; they may be freed while the current stream still
// reads them. A file is decoded while it is checked, and its pixels are dropped if it is not sound.
std::vector<Tensor> decoded(at::TensorList files, at::Device device, bool with_colors) {
  const c10::cuda::CUDAGuard guard(numbered(device));
  const auto options = at::TensorOptions().device(guard.current_device()).dtype(at::kByte);
  std::vector<Tensor> found(files.size(), at::empty({0}, options));
  const Copies copies = copied(files);
  if (copies.count == 0) return found;
  const Streams streams = streams_of(guard.current_device().index());
  const Check check = start_check(copies, streams.checking);
  const c10::cuda::CUDAStream used_on = c10::cuda::getCurrentCUDAStream();
  const std::lock_guard<std::mutex> lock(decoder_mutex());
  const Decoding decoding = start_decoding(copies, with_colors, used_on, streams.decoding);
  check.work.wait();
  decoding.work.wait();
  for (size_t i = 0; i < decoding.pixels.size(); ++i) {
    if (check.is_well_formed.const_data_ptr<bool>()[i]) found[copies.position[i]] = decoding.pixels[i];
  }
  return found;
}
#else
std::vector<Tensor> decoded(at::TensorList /*files*/, at::Device /*device*/, bool /*with_colors*/) {
  TORCH_CHECK_NOT_IMPLEMENTED(false, "lensbox_jpeg: files are decoded by CUDA, and this liblensbox_ops was ",
                              "built without CUDA");
}
#endif

// Return why a device cannot decode JPEG files, or "".
std::string decoder_fault(at::Device device) {
  if (!device.is_cuda()) return "the detector is on the device " + device.str();
#ifdef LENSBOX_WITH_CUDA
  return gpu_fault(numbered(device));
#else
  return "this liblensbox_ops was built without CUDA";
#endif
}

template <bool with_colors>
std::vector<Tensor> decode(at::TensorList files, at::Device device) {
  return decoded(files, device, with_colors);
}

}  // namespace
}  // namespace lensbox

TORCH_LIBRARY_FRAGMENT(lensbox_jpeg, m) {
  m.def("decoder_fault(Device device) -> str", lensbox::decoder_fault);
  m.def("decode_luma(Tensor[] files, Device device) -> Tensor[]", lensbox::decode<false>);
  m.def("decode_rgb(Tensor[] files, Device device) -> Tensor[]", lensbox::decode<true>);
}
