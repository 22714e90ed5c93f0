#include "jpeg_decoder.h"

#include <lensbox/error.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <new>
#include <string>

// clang-format off: each needs what comes before it, and does not include it.
#include <jpeglib.h>
#include <jerror.h>
// clang-format on

#include "guarded_call.h"
#include "new_image.h"

namespace lensbox {
namespace {

// A scan that refines zeros takes 30 to 60 ns for each block of 8 x 8 pixels, and next to no bytes of the
// file. With these limits that is a second at most; the twenty scans leave room for libjpeg's own progressive
// script, which has 10 for a photograph and 18 for CMYK, at any size.
constexpr int64_t kMaxScannedBlocks = int64_t{1} << 24;
constexpr int64_t kScansAlwaysAllowed = 20;

// Those of libjpeg's warnings after which pixels are missing or wrong. The others tell of oddities that
// change no pixel, such as bytes too many between two segments.
constexpr std::array kDamage{JWRN_HIT_MARKER, JWRN_HUFF_BAD_CODE, JWRN_JPEG_EOF, JWRN_MUST_RESYNC};

int64_t allowed_scans(int64_t width, int64_t height) {
  const int64_t blocks = ((width + 7) / 8) * ((height + 7) / 8);
  return std::max(kScansAlwaysAllowed, kMaxScannedBlocks / blocks);
}

// a * b / 255, rounded: exact for bytes.
int multiply_bytes(int a, int b) {
  const int product = a * b + 128;
  return ((product >> 8) + product) >> 8;
}

// CMYK as JPEG files hold it since Photoshop did: 255 is no ink. The same rounding as Pillow's.
void cmyk_to_rgb(std::span<const uint8_t> cmyk, uint8_t* rgb) {
  for (size_t i = 0; i < cmyk.size(); i += 4) {
    const int white = cmyk[i + 3];
    for (int ink = 0; ink < 3; ++ink) {
      *rgb++ = static_cast<uint8_t>(std::max(0, white - multiply_bytes(255 - cmyk[i + ink], white)));
    }
  }
}

class JpegDecoder {
 public:
  explicit JpegDecoder(std::span<const uint8_t> file) {
    info_.err = jpeg_std_error(&errors_);
    errors_.error_exit = [](j_common_ptr info) { of(info).guard_.stop(); };
    errors_.emit_message = [](j_common_ptr info, int level) {
      constexpr int kWarning = -1;
      const bool damage = std::ranges::find(kDamage, info->err->msg_code) != kDamage.end();
      if (level == kWarning && damage) of(info).guard_.stop();
    };
    progress_.progress_monitor = [](j_common_ptr info) {
      JpegDecoder& decoder = of(info);
      if (decoder.info_.input_scan_number <= decoder.allowed_scans_) return;
      decoder.too_many_scans_ = true;
      decoder.guard_.stop();
    };
    info_.client_data = this;

    const bool good = guard_.run([&] {
      jpeg_create_decompress(&info_);
      info_.progress = &progress_;
      jpeg_mem_src(&info_, file.data(), file.size());
      jpeg_read_header(&info_, TRUE);
    });
    if (!good) {
      // The destructor of an object whose constructor throws is not called.
      const std::string reason = message();
      jpeg_destroy_decompress(&info_);
      throw_if_out_of_memory();
      throw InputError("its header is damaged, or of a kind that is not read (" + reason + ")");
    }
  }

  ~JpegDecoder() { jpeg_destroy_decompress(&info_); }
  JpegDecoder(const JpegDecoder&) = delete;
  JpegDecoder& operator=(const JpegDecoder&) = delete;

  Image decode() {
    check_kind();
    const bool is_cmyk = info_.num_components == 4;
    if (is_cmyk) info_.out_color_space = JCS_CMYK;
    Image image = new_image(info_.image_width, info_.image_height, is_cmyk ? 3 : info_.num_components);
    allowed_scans_ = allowed_scans(image.width, image.height);
    std::vector<uint8_t> cmyk(is_cmyk ? size_t{4} * image.width : 0);

    const bool good = guard_.run([&] {
      // Reads all scans of a file that has several; the others are read with the rows.
      jpeg_start_decompress(&info_);
      while (info_.output_scanline < info_.output_height) {
        const size_t row = info_.output_scanline;
        uint8_t* const pixels = &image.pixels[row * image.width * image.channels];
        JSAMPROW samples = is_cmyk ? cmyk.data() : pixels;
        jpeg_read_scanlines(&info_, &samples, 1);
        if (is_cmyk) cmyk_to_rgb(cmyk, pixels);
      }
      // Up to the end-of-image marker.
      jpeg_finish_decompress(&info_);
    });
    if (!good) fail_to_decode();
    return image;
  }

 private:
  static JpegDecoder& of(j_common_ptr info) { return *static_cast<JpegDecoder*>(info->client_data); }

  void check_kind() const {
    check_size(info_.image_width, info_.image_height);
    if (info_.arith_code) throw InputError("JPEG files with arithmetic coding are not read");
    if (info_.data_precision != 8) {
      throw InputError("a JPEG file must have 8 bits a sample, got " + std::to_string(info_.data_precision));
    }
    const int components = info_.num_components;
    if (components != 1 && components != 3 && components != 4) {
      throw InputError("a JPEG file must have 1, 3 or 4 components, got " + std::to_string(components));
    }
  }

  [[noreturn]] void fail_to_decode() {
    throw_if_out_of_memory();
    if (too_many_scans_) {
      throw InputError("the JPEG file has too many scans: at most " + std::to_string(allowed_scans_) +
                       " are accepted for " + std::to_string(info_.image_width) + " x " +
                       std::to_string(info_.image_height) + " pixels, got " +
                       std::to_string(info_.input_scan_number) + " or more");
    }
    if (errors_.msg_code == JWRN_JPEG_EOF) throw InputError("the JPEG file is truncated");
    throw InputError("damaged or truncated (" + message() + ")");
  }

  void throw_if_out_of_memory() const {
    if (errors_.msg_code == JERR_OUT_OF_MEMORY) throw std::bad_alloc();
  }

  // What libjpeg stopped for.
  std::string message() {
    std::array<char, JMSG_LENGTH_MAX> text{};
    errors_.format_message(reinterpret_cast<j_common_ptr>(&info_), text.data());
    return text.data();
  }

  GuardedCall guard_;
  jpeg_error_mgr errors_{};
  jpeg_progress_mgr progress_{};
  jpeg_decompress_struct info_{};
  int64_t allowed_scans_ = kScansAlwaysAllowed;
  bool too_many_scans_ = false;
};

}  // namespace

Image decode_jpeg(std::span<const uint8_t> file) {
  return JpegDecoder(file).decode();
}

}  // namespace lensbox
