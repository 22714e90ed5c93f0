#pragma once

#include <lensbox/error.h>
#include <lensbox/image_view.h>
#include <lensbox/metadata.h>

#include <csetjmp>
#include <cstdint>
#include <span>

#include "images/limits.h"
#include "images/pixels.h"

namespace lensbox {

enum class FitMode : int32_t;  // of the op library

// An image as its file stores it.
struct StoredImage {
  Pixels pixels;  // 1 / reduction of the full size, rounded up
  int64_t width;  // at full size
  int64_t height;
  int reduction;    // 1, 2, 4 or 8
  int orientation;  // EXIF's, 1..8
};

// The functions below throw InputError with the reason alone, which names no file.

// Read a JPEG or PNG file for a canvas. Throws InputError if the file is empty, of another format, damaged or
// truncated; TooManyPixels, also for a reduced size; DeadlineError.
DecodedPhoto decode_photo(std::span<const uint8_t> file, const Reading& reading,
                          const ImageLimits& limits = {});

// What the header of a JPEG or PNG file says.
struct ImageHeader {
  int64_t width;  // as stored
  int64_t height;
  int orientation;  // EXIF's, 1..8
};

// Read the header alone. Throws InputError and TooManyPixels.
ImageHeader read_header(std::span<const uint8_t> file, const ImageLimits& limits);

// Copy a frame. Formats other than kGray8 become RGB, or, if they have luma and the canvas is gray, gray.
// Throws InputError for a view that breaks the rules of ImageView or has more than kMaxImagePixels pixels.
DecodedPhoto read_frame(const ImageView& view, const Reading& reading);

// Return the count of pairs of pixels along a side; an odd last pixel is in a pair of its own.
constexpr int64_t pairs_of(int64_t side) {
  return (side + 1) / 2;
}

// Return the bytes of a row of a frame; of kNv12, of its luma.
int64_t row_bytes(PixelFormat format, int64_t width);

// Throw TooManyPixels if a side is longer than `fit` takes.
void check_sides(int64_t width, int64_t height);

// Throw TooManyPixels if an image of that size is too large to be read.
void check_size(int64_t width, int64_t height, int64_t max_pixels = kMaxImagePixels);

// Return pixels that are not initialised.
Pixels new_pixels(int64_t width, int64_t height, int64_t channels);

// Return a photograph that is whole, at full size.
DecodedPhoto whole_photo(Pixels pixels);

// Decode a JPEG file with libjpeg-turbo, at the scale that the reading asks for, and for a gray canvas the
// luma alone. Refused, besides what is damaged, truncated or too large: arithmetic coding, lossless files, 12
// bits, two components, more than kMaxPieces segments, or more scans than README.md allows for the size.
StoredImage decode_jpeg(std::span<const uint8_t> file, const Reading& reading, const ImageLimits& limits);
ImageHeader jpeg_header(std::span<const uint8_t> file, const ImageLimits& limits);

// Return the canvas's way of fit. Throws std::invalid_argument for a word that the op `fit` does not know.
FitMode fit_mode_of(const Canvas& canvas);

// Return the greatest of 8, 4, 2 and 1 by which decode_jpeg divides the sides of an image, as stored, so that
// the photograph still has `jpeg_oversampling` times as many pixels a side as it needs in the canvas.
int jpeg_reduction(int64_t width, int64_t height, int exif_orientation, const Reading& reading);

// Decode a PNG file with libpng. Gray, RGB and RGBA stay as they are; gray with alpha loses the alpha, 16
// bits become 8, palettes become RGB, and transparent colors are not read. Refused: any wrong checksum, all
// that libpng would only warn of, and more than kMaxPieces chunks.
StoredImage decode_png(std::span<const uint8_t> file, const ImageLimits& limits);
// Checks no checksum.
ImageHeader png_header(std::span<const uint8_t> file, const ImageLimits& limits);

// Rotate or mirror an image as its EXIF orientation says, or leave it as stored.
DecodedPhoto turn_upright(StoredImage stored, Orientation orientation);

// Return the orientation, 1..8, in EXIF data, a TIFF structure; 1 (as stored) if there is none, or if the
// data are damaged or truncated before it.
int exif_orientation(std::span<const uint8_t> tiff);

// How a stored picture becomes upright: it is mirrored, then its rows may become columns.
struct Turn {
  bool mirror_x;  // left and right
  bool mirror_y;  // top and bottom
  bool swap;      // along the main diagonal
};

// Return the turn for an EXIF orientation, 1..8.
Turn turn_of(int exif_orientation, Orientation orientation);

// Calls of a C library whose error callback must not return: the callback leaves by stop(), and run() then
// returns false. Code inside run(), callbacks included, must own no object with a destructor, because longjmp
// passes over it; buffers and messages belong to the caller of run().
class GuardedCall {
 public:
  template <class Function>
  bool run(Function function) {
    if (setjmp(jump_) != 0) return false;
    function();
    return true;
  }

  [[noreturn]] void stop() { std::longjmp(jump_, 1); }

 private:
  std::jmp_buf jump_;
};

}  // namespace lensbox
