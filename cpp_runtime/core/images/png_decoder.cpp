#include <png.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <new>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include "images/decoders.h"

namespace lensbox {
namespace {

// Throw TooManyPixels. pixel_bytes: of a pixel, before it is packed.
void check_png_size(int64_t width, int64_t height, int64_t pixel_bytes, const ImageLimits& limits) {
  check_size(width, height, limits.max_pixels);
  const int64_t bytes = width * height * pixel_bytes;
  if (bytes <= limits.max_png_bytes) return;
  throw TooManyPixels("a PNG image must have at most " + std::to_string(limits.max_png_bytes) +
                      " bytes of pixels, got " + std::to_string(width) + " x " + std::to_string(height) +
                      " of " + std::to_string(pixel_bytes) + " bytes = " + std::to_string(bytes));
}

// Decode with libpng's progressive reader, which stops at the first byte beyond the image's last row. The
// plain reader inflates all data that follow, which may be a thousand times as large as the file.
class PngDecoder {
 public:
  PngDecoder(std::span<const uint8_t> file, const ImageLimits& limits)
      : limits_(limits), file_(file), unread_(file) {
    const bool good = guard_.run([&] {
      png_ = png_create_read_struct(PNG_LIBPNG_VER_STRING, this, stop, stop);
      if (png_ != nullptr) info_ = png_create_info_struct(png_);
    });
    if (good && info_ != nullptr) return;
    png_destroy_read_struct(&png_, nullptr, nullptr);
    if (good) throw std::bad_alloc();
    throw std::runtime_error(std::string("libpng: ") + reason_.data());
  }

  ~PngDecoder() { png_destroy_read_struct(&png_, &info_, nullptr); }
  PngDecoder(const PngDecoder&) = delete;
  PngDecoder& operator=(const PngDecoder&) = delete;

  Pixels decode() {
    const bool good = guard_.run([&] { read_header(); });
    const int64_t width = png_get_image_width(png_, info_);
    const int64_t height = png_get_image_height(png_, info_);
    if (width == 0 || height == 0) fail("its header is damaged");
    const int64_t sample_bytes = png_get_bit_depth(png_, info_) == 16 ? 2 : 1;
    check_png_size(width, height, png_get_channels(png_, info_) * sample_bytes, limits_);
    if (!good || !at_pixels_) fail("damaged or truncated");

    if (!guard_.run([&] { choose_output(); })) fail("damaged or truncated");
    image_ = new_pixels(width, height, png_get_channels(png_, info_));
    if (!guard_.run([&] { process(); }) || !is_complete_) fail("damaged or truncated");
    return std::move(image_);
  }

 private:
  // Read up to the image data.
  void read_header() {
    png_set_crc_action(png_, PNG_CRC_ERROR_QUIT, PNG_CRC_ERROR_QUIT);
    png_set_benign_errors(png_, 0);
    // Read only the checksum of chunks that no pixel depends on, so they may have any size.
    png_set_keep_unknown_chunks(png_, PNG_HANDLE_CHUNK_NEVER, nullptr, -1);
    constexpr std::array<png_byte, 5> kTransparency{'t', 'R', 'N', 'S', 0};
    png_set_keep_unknown_chunks(png_, PNG_HANDLE_CHUNK_NEVER, kTransparency.data(), 1);
    png_set_chunk_malloc_max(png_, 0);
    // check_size has a limit and a message of its own.
    png_set_user_limits(png_, PNG_UINT_31_MAX, PNG_UINT_31_MAX);
    png_set_progressive_read_fn(png_, this, on_pixels, on_row, on_end);
    process();
  }

  // Choose the output: gray, RGB or RGBA of 8 bits.
  void choose_output() {
    const int type = png_get_color_type(png_, info_);
    if (type == PNG_COLOR_TYPE_PALETTE) png_set_palette_to_rgb(png_);
    if (type == PNG_COLOR_TYPE_GRAY) png_set_expand_gray_1_2_4_to_8(png_);
    if (type == PNG_COLOR_TYPE_GRAY_ALPHA) png_set_strip_alpha(png_);
    png_set_strip_16(png_);
    png_set_interlace_handling(png_);
    png_read_update_info(png_, info_);
  }

  void process() {
    // libpng takes a pointer to non-const data, and does not write to it.
    png_process_data(png_, info_, const_cast<png_bytep>(unread_.data()), unread_.size());
  }

  [[noreturn]] void fail(const std::string& what) const {
    if (is_late_) throw DeadlineError();
    throw InputError(what + " (" + reason_.data() + ")");
  }

  static PngDecoder& of(png_structp png) { return *static_cast<PngDecoder*>(png_get_progressive_ptr(png)); }

  // Leave process(), so that memory for the image is taken outside libpng.
  static void on_pixels(png_structp png, png_infop) {
    PngDecoder& decoder = of(png);
    decoder.at_pixels_ = true;
    decoder.unread_ = decoder.file_.last(png_process_data_pause(png, 0));
  }

  // An interlaced image has several passes, and no new pixels for some rows of them.
  static void on_row(png_structp png, png_bytep pixels, png_uint_32 row, int) {
    PngDecoder& decoder = of(png);
    decoder.is_late_ = decoder.limits_.is_over();
    if (decoder.is_late_) decoder.guard_.stop();
    if (pixels == nullptr) return;
    png_progressive_combine_row(png, decoder.image_.row(row), pixels);
  }

  // libpng accepts a complete stream with too few rows.
  static void on_end(png_structp png, png_infop info) {
    constexpr int kPasses = 7;
    const bool interlaced = png_get_interlace_type(png, info) != PNG_INTERLACE_NONE;
    of(png).is_complete_ = interlaced ? png_get_current_pass_number(png) >= kPasses
                                      : png_get_current_row_number(png) >= png_get_image_height(png, info);
  }

  // Treat warnings of libpng as errors, such as a wrong checksum.
  static void stop(png_structp png, png_const_charp reason) {
    PngDecoder& decoder = *static_cast<PngDecoder*>(png_get_error_ptr(png));
    std::snprintf(decoder.reason_.data(), decoder.reason_.size(), "%s", reason);
    decoder.guard_.stop();
  }

  const ImageLimits limits_;
  GuardedCall guard_;
  std::span<const uint8_t> file_;
  std::span<const uint8_t> unread_;
  png_structp png_ = nullptr;
  png_infop info_ = nullptr;
  Pixels image_;
  bool at_pixels_ = false;
  bool is_late_ = false;
  bool is_complete_ = false;
  std::array<char, 128> reason_{"it ends too early"};
};

constexpr size_t kSignature = 8;
constexpr size_t kFrame = 12;  // of a chunk: length, name and checksum

// Return the content of the first eXIf chunk before the image data, or nothing. libpng checks all chunks, and
// would copy this chunk. Throws InputError for too many chunks.
std::span<const uint8_t> exif_chunk(std::span<const uint8_t> file) {
  std::span<const uint8_t> exif;
  bool has_exif = false;
  bool at_pixels = false;
  int64_t count = 0;
  for (size_t at = kSignature; at + kFrame <= file.size();) {
    const size_t length = png_get_uint_32(&file[at]);
    const std::string_view name(reinterpret_cast<const char*>(&file[at + 4]), 4);
    if (name == "IEND" || length > file.size() - at - kFrame) break;
    if (++count > kMaxPieces) {
      throw InputError("a PNG file must have at most " + std::to_string(kMaxPieces) + " chunks");
    }
    at_pixels |= name == "IDAT";
    if (name == "eXIf" && !has_exif && !at_pixels) {
      exif = file.subspan(at + 8, length);
      has_exif = true;
    }
    at += kFrame + length;
  }
  return exif;
}

// Throw InputError unless the first chunk is a header. libpng reads chunks before the header if it is told to
// skip them.
void check_first_chunk(std::span<const uint8_t> file) {
  constexpr std::array<uint8_t, 4> kHeader{'I', 'H', 'D', 'R'};
  if (file.size() < 16 || !std::ranges::equal(file.subspan(12, 4), kHeader)) {
    throw InputError("its header is damaged");
  }
}

}  // namespace

StoredImage decode_png(std::span<const uint8_t> file, const ImageLimits& limits) {
  check_first_chunk(file);
  const int orientation = exif_orientation(exif_chunk(file));
  Pixels image = PngDecoder(file, limits).decode();
  const int64_t width = image.width;
  const int64_t height = image.height;
  return {std::move(image), width, height, 1, orientation};
}

ImageHeader png_header(std::span<const uint8_t> file, const ImageLimits& limits) {
  check_first_chunk(file);
  if (file.size() < kSignature + kFrame + 13) throw InputError("its header is damaged");
  const int64_t width = png_get_uint_32(&file[16]);
  const int64_t height = png_get_uint_32(&file[20]);
  if (width == 0 || height == 0) throw InputError("its header is damaged");
  check_png_size(width, height, 1, limits);
  return {width, height, exif_orientation(exif_chunk(file))};
}

}  // namespace lensbox
