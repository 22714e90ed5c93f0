#include <lensbox/error.h>
#include <lensbox/image_io.h>
#include <png.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <string>
#include <utility>

#include "guarded_call.h"
#include "new_image.h"

namespace lensbox {
namespace {

namespace fs = std::filesystem;

// A file beside `path` that takes its name when it is complete, and else is removed.
class PartialFile {
 public:
  explicit PartialFile(const fs::path& path) : path_(path) {
    // A process that was killed leaves its file, and its number comes again: in a container, every time.
    constexpr int kMostLeft = 1000;
    const std::string start = path.string() + "." + std::to_string(getpid());
    for (int left = 0; left < kMostLeft; ++left) {
      std::string name = start;
      if (left > 0) name.append("-").append(std::to_string(left));
      name += ".partial";
      stream_ = std::fopen(name.c_str(), "wbx");
      if (stream_ != nullptr) partial_ = name;
      if (stream_ != nullptr || errno != EEXIST) return;
    }
  }

  ~PartialFile() {
    if (stream_ != nullptr) std::fclose(stream_);
    std::error_code ignored;
    if (!partial_.empty()) fs::remove(partial_, ignored);
  }

  PartialFile(const PartialFile&) = delete;
  PartialFile& operator=(const PartialFile&) = delete;

  // Null if the file could not be made.
  std::FILE* stream() const { return stream_; }

  // Whether all that was written has reached the file, which has its name then.
  bool finish() {
    // Some file systems say only now that the disk is full.
    if (std::fclose(std::exchange(stream_, nullptr)) != 0) return false;
    std::error_code error;
    fs::rename(partial_, path_, error);
    if (!error) partial_.clear();
    return !error;
  }

 private:
  fs::path path_;
  fs::path partial_;  // empty if there is none
  std::FILE* stream_ = nullptr;
};

class PngEncoder {
 public:
  PngEncoder() = default;
  ~PngEncoder() { png_destroy_write_struct(&png_, &info_); }
  PngEncoder(const PngEncoder&) = delete;
  PngEncoder& operator=(const PngEncoder&) = delete;

  // Whether all of it was written.
  bool encode(const Image& image, std::FILE* stream) {
    constexpr std::array kColorTypes{PNG_COLOR_TYPE_GRAY, PNG_COLOR_TYPE_GRAY_ALPHA, PNG_COLOR_TYPE_RGB,
                                     PNG_COLOR_TYPE_RGB_ALPHA};
    return guard_.run([&] {
      png_ = png_create_write_struct(PNG_LIBPNG_VER_STRING, this, stop, ignore);
      if (png_ == nullptr) guard_.stop();
      info_ = png_create_info_struct(png_);
      if (info_ == nullptr) guard_.stop();
      png_init_io(png_, stream);
      png_set_IHDR(png_, info_, image.width, image.height, 8, kColorTypes.at(image.channels - 1),
                   PNG_INTERLACE_NONE, PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
      // A quarter of the time of zlib's own choice, for files that are a tenth larger.
      png_set_compression_level(png_, 2);
      png_write_info(png_, info_);
      const size_t row_bytes = size_t{1} * image.width * image.channels;
      for (int row = 0; row < image.height; ++row) {
        png_write_row(png_, &image.pixels[row * row_bytes]);
      }
      png_write_end(png_, info_);
    });
  }

 private:
  static void stop(png_structp png, png_const_charp) {
    static_cast<PngEncoder*>(png_get_error_ptr(png))->guard_.stop();
  }

  static void ignore(png_structp, png_const_charp) {}

  GuardedCall guard_;
  png_structp png_ = nullptr;
  png_infop info_ = nullptr;
};

}  // namespace

void write_png(const fs::path& path, const Image& image) {
  check_image(image);
  PartialFile file(path);
  if (file.stream() == nullptr || !PngEncoder().encode(image, file.stream()) || !file.finish()) {
    throw InputError("image " + path.string() + ": cannot be written");
  }
}

}  // namespace lensbox
