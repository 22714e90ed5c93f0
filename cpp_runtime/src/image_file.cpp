#include "image_file.h"

#include <lensbox/error.h>

#include <algorithm>
#include <array>
#include <limits>

#include "jpeg_decoder.h"
#include "open_file.h"
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

StoredImage decode(std::span<const uint8_t> file, const ReadOptions& options) {
  if (begins_with(file, kJpegSignature)) return decode_jpeg(file, options);
  if (begins_with(file, kPngSignature)) return decode_png(file);
  throw InputError("neither a JPEG nor a PNG file");
}

std::vector<uint8_t> read_bytes(const fs::path& path) {
  OpenedFile opened = open_file(path);
  if (!opened.fault.empty()) fail(path, opened.fault);
  std::error_code error;
  const uintmax_t size = fs::file_size(path, error);
  if (error) fail(path, "cannot be read");
  if (size == 0) fail(path, "the file is empty");
  if (size > kMaxFileSize) fail(path, "at most " + std::to_string(kMaxFileSize) + " bytes are accepted");
  std::vector<uint8_t> bytes(size);
  if (!opened.stream.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(size))) {
    fail(path, "cannot be read");
  }
  return bytes;
}

}  // namespace

UprightImage decode_image_file(std::span<const uint8_t> file, const ReadOptions& options) {
  return turn_upright(decode(file, options), options.reading.orientation);
}

UprightImage read_image_file(const fs::path& path, const ReadOptions& options) {
  const std::vector<uint8_t> bytes = read_bytes(path);
  try {
    return decode_image_file(bytes, options);
  } catch (const InputError& error) {
    fail(path, error.what());
  }
}

}  // namespace lensbox
