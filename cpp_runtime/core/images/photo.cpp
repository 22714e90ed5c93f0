#include <sys/mman.h>

#include <array>
#include <string>
#include <string_view>
#include <utility>

#include "fit.h"  // of the op library
#include "images/decoders.h"

namespace lensbox {

namespace {

// Return whether a file begins like a JPEG file; else it begins like a PNG file. Throws InputError.
bool is_jpeg(std::span<const uint8_t> file) {
  if (file.empty()) throw InputError("the file is empty");
  const std::string_view bytes(reinterpret_cast<const char*>(file.data()), file.size());
  if (bytes.starts_with("\xFF\xD8\xFF")) return true;
  if (bytes.starts_with("\x89PNG\r\n\x1A\n")) return false;
  throw InputError("neither a JPEG nor a PNG file");
}

}  // namespace

DecodedPhoto decode_photo(std::span<const uint8_t> file, const Reading& reading, const ImageLimits& limits) {
  StoredImage stored = is_jpeg(file) ? decode_jpeg(file, reading, limits) : decode_png(file, limits);
  return turn_upright(std::move(stored), reading.orientation);
}

ImageHeader read_header(std::span<const uint8_t> file, const ImageLimits& limits) {
  return is_jpeg(file) ? jpeg_header(file, limits) : png_header(file, limits);
}

void check_sides(int64_t width, int64_t height) {
  if (width <= kLongestSide && height <= kLongestSide) return;
  throw TooManyPixels("the image must have sides of at most " + std::to_string(kLongestSide) +
                      " pixels, got " + std::to_string(width) + " x " + std::to_string(height));
}

void check_size(int64_t width, int64_t height, int64_t max_pixels) {
  check_sides(width, height);
  if (width * height <= max_pixels) return;
  throw TooManyPixels("the image must have at most " + std::to_string(max_pixels) + " pixels, got " +
                      std::to_string(width) + " x " + std::to_string(height) + " = " +
                      std::to_string(width * height));
}

// Ask Linux for large pages for a large image, as numpy and torch do: a fault for each 4 KiB takes a third of
// the time of decoding.
static void prefer_large_pages(uint8_t* memory, size_t size) {
  constexpr size_t kLarge = size_t{1} << 22;
  constexpr uintptr_t kPage = 1 << 12;
  if (size < kLarge) return;
  const size_t unaligned = (kPage - reinterpret_cast<uintptr_t>(memory) % kPage) % kPage;
  madvise(memory + unaligned, size - unaligned, MADV_HUGEPAGE);  // without it, the memory is as good
}

Pixels new_pixels(int64_t width, int64_t height, int64_t channels) {
  const int64_t stride = width * channels;
  const auto size = static_cast<size_t>(height * stride);
  // Not make_shared, which would write zeros.
  std::shared_ptr<uint8_t[]> memory(new uint8_t[size]);
  prefer_large_pages(memory.get(), size);
  uint8_t* const data = memory.get();
  return {std::move(memory), data, width, height, channels, stride};
}

DecodedPhoto whole_photo(Pixels pixels) {
  const int64_t width = pixels.width;
  const int64_t height = pixels.height;
  return {
      std::move(pixels), width, height, {0.0F, 0.0F, static_cast<float>(width), static_cast<float>(height)}};
}

}  // namespace lensbox
