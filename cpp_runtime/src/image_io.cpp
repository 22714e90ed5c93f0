#include <ATen/ATen.h>
#include <lensbox/error.h>
#include <lensbox/image_io.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <limits>
#include <memory>
#include <span>

#include "jpeg_structure.h"

// Static, so that a program may link its own copy of stb too.
#define STB_IMAGE_STATIC
#define STB_IMAGE_IMPLEMENTATION
#define STBI_ONLY_JPEG
#define STBI_ONLY_PNG
#define STBI_NO_STDIO
#define STBI_FAILURE_USERMSG
#include <stb_image.h>

#define STB_IMAGE_WRITE_STATIC
#define STB_IMAGE_WRITE_IMPLEMENTATION
#define STBI_WRITE_NO_STDIO
#include <stb_image_write.h>

namespace lensbox {
namespace {

namespace fs = std::filesystem;

constexpr uintmax_t kMaxFileSize = std::numeric_limits<int>::max();  // stb_image counts bytes in an int

[[noreturn]] void fail(const fs::path& path, const std::string& reason) {
  throw InputError("image " + path.string() + ": " + reason);
}

bool is_png(std::span<const uint8_t> file) {
  constexpr std::array<uint8_t, 8> kSignature{0x89, 'P', 'N', 'G', '\r', '\n', 0x1A, '\n'};
  return file.size() >= kSignature.size() && std::equal(kSignature.begin(), kSignature.end(), file.begin());
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
  const int length = static_cast<int>(bytes.size());

  if (!is_jpeg(bytes) && !is_png(bytes)) fail(path, "neither a JPEG nor a PNG file");

  // The header alone first: an absurd size is refused before anything is allocated for it.
  Image image{};
  if (!stbi_info_from_memory(bytes.data(), length, &image.width, &image.height, &image.channels)) {
    fail(path, std::string("its header is damaged, or tells of too large an image (") +
                   stbi_failure_reason() + ")");
  }
  if (int64_t{image.width} * image.height > kMaxImagePixels) {
    fail(path, "at most " + std::to_string(kMaxImagePixels) + " pixels are accepted, got " +
                   std::to_string(image.width) + " x " + std::to_string(image.height));
  }
  if (is_jpeg(bytes) && !jpeg_is_complete(bytes)) fail(path, "the JPEG file is truncated");

  const int wanted_channels = image.channels == 2 ? 1 : image.channels;
  const std::unique_ptr<stbi_uc, decltype(&stbi_image_free)> pixels(
      stbi_load_from_memory(bytes.data(), length, &image.width, &image.height, &image.channels,
                            wanted_channels),
      stbi_image_free);
  if (!pixels) fail(path, std::string("damaged or truncated (") + stbi_failure_reason() + ")");
  image.channels = wanted_channels;
  const size_t size = size_t{1} * image.width * image.height * image.channels;
  image.pixels.assign(pixels.get(), pixels.get() + size);
  return image;
}

void write_png(const fs::path& path, const Image& image) {
  int length = 0;
  const std::unique_ptr<unsigned char, decltype(&std::free)> png(
      stbi_write_png_to_mem(image.pixels.data(), image.width * image.channels, image.width, image.height,
                            image.channels, &length),
      std::free);
  std::ofstream stream(path, std::ios::binary);
  if (png) stream.write(reinterpret_cast<const char*>(png.get()), length);
  stream.close();
  if (!png || !stream) fail(path, "cannot be written");
}

at::Tensor to_tensor(const Image& image) {
  // from_blob does not write to the memory; it only has no const form.
  auto* const pixels = const_cast<uint8_t*>(image.pixels.data());
  return at::from_blob(pixels, {image.height, image.width, image.channels}, at::kByte)
      .permute({2, 0, 1})
      .clone(at::MemoryFormat::Contiguous);
}

}  // namespace lensbox
