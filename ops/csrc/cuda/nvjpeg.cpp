// Decodes JPEG files with nvJPEG, which is opened when it is first needed.
//
// Only with the decoder in hardware: its planes are libjpeg-turbo's to the bit. nvJPEG's own CUDA kernels are
// off by one level in almost every file, and slower.

#include <dlfcn.h>

#include <map>

#include "launchers.h"

namespace lensbox {
namespace {

// As nvJPEG's documentation declares them; the interface is the same in versions 12 and 13.
constexpr int kSuccess = 0, kHardware = 3, kPlanes = 1, kLuma = 2;

struct Library {
  int (*create)(int backend, void* device_allocator, void* pinned_allocator, unsigned flags, void** handle);
  int (*create_state)(void* handle, void** state);
  int (*initialize)(void* handle, void* state, int batch_size, int max_cpu_threads, int output_format);
  int (*decode)(void* handle, void* state, const unsigned char* const* files, const size_t* sizes,
                JpegPlanes* out, cudaStream_t stream);
};

struct Decoder {
  void *handle, *state;
  int64_t batch_size;  // that `state` is initialized for, as is the format
  int format;
};

// Neither is ever closed: threads may decode until the process ends.
Library library = {};
std::map<int, Decoder> decoders;  // by device

template <typename Function>
bool find(void* opened, const char* name, Function*& function) {
  function = reinterpret_cast<Function*>(dlsym(opened, name));
  return function != nullptr;
}

bool open_library(const char* name) {
  if (library.decode != nullptr) return true;
  void* const opened = dlopen(name, RTLD_NOW | RTLD_LOCAL);
  Library found = {};
  if (opened == nullptr || !find(opened, "nvjpegCreateEx", found.create) ||
      !find(opened, "nvjpegJpegStateCreate", found.create_state) ||
      !find(opened, "nvjpegDecodeBatchedInitialize", found.initialize) ||
      !find(opened, "nvjpegDecodeBatched", found.decode)) {
    return false;
  }
  library = found;
  return true;
}

}  // namespace

bool lensbox_cuda_open_nvjpeg(const char* name) {
  int device = 0;
  if (cudaGetDevice(&device) != cudaSuccess || !open_library(name)) return false;
  if (decoders.count(device) > 0) return true;
  Decoder decoder = {};
  if (library.create(kHardware, nullptr, nullptr, 0, &decoder.handle) != kSuccess ||
      library.create_state(decoder.handle, &decoder.state) != kSuccess) {
    return false;
  }
  decoders[device] = decoder;
  return true;
}

bool lensbox_cuda_decode_jpegs(const uint8_t* const* files, const size_t* sizes, JpegPlanes* images,
                               int64_t count, bool with_chroma, cudaStream_t stream) {
  int device = 0;
  if (cudaGetDevice(&device) != cudaSuccess) return false;
  const auto found = decoders.find(device);
  if (found == decoders.end()) return false;
  Decoder& decoder = found->second;
  const int format = with_chroma ? kPlanes : kLuma;
  if (decoder.batch_size != count || decoder.format != format) {
    decoder.batch_size = 0;
    if (library.initialize(decoder.handle, decoder.state, static_cast<int>(count), 1, format) != kSuccess) {
      return false;
    }
    decoder.batch_size = count;
    decoder.format = format;
  }
  const int status = library.decode(decoder.handle, decoder.state, files, sizes, images, stream);
  if (status != kSuccess) decoder.batch_size = 0;
  return status == kSuccess;
}

}  // namespace lensbox
