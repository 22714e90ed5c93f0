#include <ATen/ATen.h>
#include <lensbox/error.h>
#include <lensbox/image_io.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <limits>
#include <span>

#include "jpeg_decoder.h"
#include "png_decoder.h"

namespace lensbox {
namespace {

namespace fs = std::filesystem;

constexpr uintmax_t kMaxFileSize = std::numeric_limits<int>::max();

[[noreturn]] void fail(const fs::path& path, const std::string& reason) {
  throw InputError("image " + path.string() + ": " + reason);
}

constexpr std::array<uint8_t, 3> kJpegSignature{0xFF, 0xD8, 0xFF};
constexpr std::array<uint8_t, 8> kPngSignature{0x89, 'P', 'N', 'G', '\r', '\n', 0x1A, '\n'};

bool begins_with(std::span<const uint8_t> file, std::span<const uint8_t> signature) {
  return file.size() >= signature.size() && std::ranges::equal(file.first(signature.size()), signature);
}

Image decode(std::span<const uint8_t> file) {
  if (begins_with(file, kJpegSignature)) return decode_jpeg(file);
  if (begins_with(file, kPngSignature)) return decode_png(file);
  throw InputError("neither a JPEG nor a PNG file");
}

std::vector<uint8_t> read_bytes(const fs::path& path) {
  std::error_code error;
  if (!fs::exists(path, error)) fail(path, "no such file");
  if (!fs::is_regular_file(path, error)) fail(path, "not a file");
  const uintmax_t size = fs::file_size(path, error);
  if (error) fail(path, "cannot be read");
  if (size == 0) fail(path, "the file is empty");
  if (size > kMaxFileSize) fail(path, "at most " + std::to_string(kMaxFileSize) + " bytes are accepted");
  std::vector<uint8_t> bytes(size);
  std::ifstream stream(path, std::ios::binary);
  if (!stream.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(size))) {
    fail(path, "cannot be read");
  }
  return bytes;
}

}  // namespace

Image read_image(const fs::path& path) {
  const std::vector<uint8_t> bytes = read_bytes(path);
  try {
    return decode(bytes);
  } catch (const InputError& error) {
    fail(path, error.what());
  }
}

at::Tensor to_tensor(const Image& image) {
  // from_blob does not write to the memory; it only has no const form.
  auto* const pixels = const_cast<uint8_t*>(image.pixels.data());
  return at::from_blob(pixels, {image.height, image.width, image.channels}, at::kByte)
      .permute({2, 0, 1})
      .clone(at::MemoryFormat::Contiguous);
}

}  // namespace lensbox
