#include <algorithm>
#include <array>
#include <cstdio>
#include <functional>
#include <new>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

// clang-format off: each needs what comes before it, and does not include it.
#include <jpeglib.h>
#include <jerror.h>
// clang-format on

#include "fit_words.h"  // of the op library
#include "images/decoders.h"

namespace lensbox {
namespace {

// A scan that refines zeros takes 30 to 60 ns for each block of 8 x 8 pixels, and next to no bytes of the
// file. With these limits that is a second at most; the twenty scans leave room for libjpeg's own progressive
// script, which has 10 for a photograph and 18 for CMYK, at any size.
constexpr int64_t kMaxScannedBlocks = int64_t{1} << 24;
constexpr int64_t kScansAlwaysAllowed = 20;

// libjpeg's warnings after which pixels are missing or wrong. Its other warnings change no pixel, such as
// extra bytes between two segments.
constexpr std::array kDamage{JWRN_BOGUS_PROGRESSION, JWRN_HIT_MARKER, JWRN_HUFF_BAD_CODE, JWRN_JPEG_EOF,
                             JWRN_MUST_RESYNC};

constexpr unsigned kWholeSegment = 0xFFFF;  // bytes

// Throw InputError unless the segments before the first scan are few enough, and the frame among them is of a
// kind that is read. Versions of libjpeg differ in the kinds that they decode. Markers of ITU-T T.81, table
// B.1, are found as libjpeg finds them.
void check_segments(std::span<const uint8_t> file) {
  int64_t count = 0;
  for (size_t at = 0; at + 4 <= file.size();) {
    const uint8_t* const found = std::find(&file[at], file.data() + file.size() - 3, uint8_t{0xFF});
    at = static_cast<size_t>(found - file.data());
    if (at + 4 > file.size()) return;
    const uint8_t marker = file[at + 1];
    const bool is_table = marker == 0xC4 || marker == 0xC8 || marker == 0xCC;
    const bool is_frame = marker >= 0xC0 && marker <= 0xCF && !is_table;
    const bool is_segment = is_frame || is_table || (marker >= 0xD9 && marker != 0xFF);
    if (!is_segment) {
      ++at;
      continue;
    }
    if (marker == 0xD9 || marker == 0xDA) return;  // the end, or a scan
    if (is_frame && marker > 0xC2) {
      throw InputError("a JPEG file must be Huffman-coded, baseline or progressive");
    }
    if (++count > kMaxPieces) {
      throw InputError("a JPEG file must have at most " + std::to_string(kMaxPieces) + " segments");
    }
    at += 2 + std::max<size_t>(2, file[at + 2] << 8 | file[at + 3]);
  }
}

// Return a * b / 255, rounded; exact for bytes.
int multiply_bytes(int a, int b) {
  const int product = a * b + 128;
  return ((product >> 8) + product) >> 8;
}

// Convert CMYK as JPEG files store it since Photoshop: 255 is no ink. Rounds as Pillow does.
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
  JpegDecoder(std::span<const uint8_t> file, const ImageLimits& limits) : limits_(limits) {
    check_segments(file);
    info_.err = jpeg_std_error(&errors_);
    errors_.error_exit = [](j_common_ptr info) { of(info).guard_.stop(); };
    errors_.emit_message = [](j_common_ptr info, int level) {
      constexpr int kWarning = -1;
      const bool damage = std::ranges::find(kDamage, info->err->msg_code) != kDamage.end();
      if (level == kWarning && damage) of(info).guard_.stop();
    };
    progress_.progress_monitor = [](j_common_ptr info) {
      JpegDecoder& decoder = of(info);
      decoder.is_late_ = decoder.limits_.is_over();
      if (decoder.is_late_) decoder.guard_.stop();
      if (decoder.info_.input_scan_number <= decoder.allowed_scans_) return;
      decoder.too_many_scans_ = true;
      decoder.guard_.stop();
    };
    info_.client_data = this;

    const bool good = guard_.run([&] {
      jpeg_create_decompress(&info_);
      info_.progress = &progress_;
      jpeg_mem_src(&info_, file.data(), file.size());
      jpeg_save_markers(&info_, JPEG_APP0 + 1, kWholeSegment);
      jpeg_read_header(&info_, TRUE);
    });
    if (!good) {
      // The destructor of an object whose constructor throws is not called.
      const std::string reason = message();
      jpeg_destroy_decompress(&info_);
      throw_if_out_of_memory();
      throw InputError("its header is damaged or not supported (" + reason + ")");
    }
    orientation_ = exif_orientation(exif());
  }

  ~JpegDecoder() { jpeg_destroy_decompress(&info_); }
  JpegDecoder(const JpegDecoder&) = delete;
  JpegDecoder& operator=(const JpegDecoder&) = delete;

  ImageHeader header() const {
    check_kind();
    return {info_.image_width, info_.image_height, orientation_};
  }

  StoredImage decode(const Reading& reading) {
    check_kind();
    choose_output(reading);
    const bool is_cmyk = info_.out_color_space == JCS_CMYK;
    const int64_t channels = is_cmyk ? 3 : info_.out_color_components;
    Pixels image = new_pixels(info_.output_width, info_.output_height, channels);
    const int64_t blocks = ((info_.image_width + 7) / 8) * ((info_.image_height + 7) / 8);
    allowed_scans_ = std::max(kScansAlwaysAllowed, kMaxScannedBlocks / blocks);
    std::vector<uint8_t> cmyk(is_cmyk ? size_t{4} * info_.output_width : 0);

    const bool good = guard_.run([&] {
      // Read all scans of a progressive file. Files of one scan are read with the rows.
      jpeg_start_decompress(&info_);
      lacks_scans_ = lacks_scans();
      if (lacks_scans_) guard_.stop();
      while (info_.output_scanline < info_.output_height) {
        uint8_t* const pixels = image.row(info_.output_scanline);
        JSAMPROW samples = is_cmyk ? cmyk.data() : pixels;
        jpeg_read_scanlines(&info_, &samples, 1);
        if (is_cmyk) cmyk_to_rgb(cmyk, pixels);
      }
      // Read up to the end-of-image marker.
      jpeg_finish_decompress(&info_);
    });
    if (!good) fail_to_decode();
    return {std::move(image), info_.image_width, info_.image_height, static_cast<int>(info_.scale_denom),
            orientation_};
  }

 private:
  static JpegDecoder& of(j_common_ptr info) { return *static_cast<JpegDecoder*>(info->client_data); }

  // Return the content of the first segment with EXIF data, or nothing.
  std::span<const uint8_t> exif() const {
    constexpr std::array<uint8_t, 6> kExif{'E', 'x', 'i', 'f', 0, 0};
    for (jpeg_saved_marker_ptr marker = info_.marker_list; marker != nullptr; marker = marker->next) {
      const std::span<const uint8_t> content(marker->data, marker->data_length);
      const bool is_exif =
          content.size() >= kExif.size() && std::ranges::equal(content.first(kExif.size()), kExif);
      if (is_exif) return content.subspan(kExif.size());
    }
    return {};
  }

  void check_kind() const {
    check_size(info_.image_width, info_.image_height, limits_.max_pixels);
    if (info_.data_precision != 8) {
      throw InputError("a JPEG file must have 8 bits a sample, got " + std::to_string(info_.data_precision));
    }
    const int components = info_.num_components;
    if (components != 1 && components != 3 && components != 4) {
      throw InputError("a JPEG file must have 1, 3 or 4 components, got " + std::to_string(components));
    }
  }

  // Return whether coefficients are unknown or incomplete. libjpeg guesses them from the neighbours, and each
  // version of it guesses otherwise.
  bool lacks_scans() const {
    for (int i = 0; i < info_.num_components; ++i) {
      if (info_.comp_info[i].quant_table == nullptr) return true;  // set by the first scan of the component
      if (info_.progressive_mode && std::ranges::any_of(info_.coef_bits[i], std::identity{})) return true;
    }
    return false;
  }

  void choose_output(const Reading& reading) {
    if (info_.num_components == 4) info_.out_color_space = JCS_CMYK;
    if (reading.canvas.channels == 1 && info_.num_components != 4) info_.out_color_space = JCS_GRAYSCALE;
    info_.scale_num = 1;
    info_.scale_denom = jpeg_reduction(info_.image_width, info_.image_height, orientation_, reading);
    if (!guard_.run([&] { jpeg_calc_output_dimensions(&info_); })) fail_to_decode();
  }

  [[noreturn]] void fail_to_decode() {
    if (is_late_) throw DeadlineError();
    throw_if_out_of_memory();
    if (too_many_scans_) {
      throw InputError("the JPEG file has too many scans: at most " + std::to_string(allowed_scans_) +
                       " are accepted for " + std::to_string(info_.image_width) + " x " +
                       std::to_string(info_.image_height) + " pixels, got " +
                       std::to_string(info_.input_scan_number) + " or more");
    }
    if (lacks_scans_) throw InputError("scans are missing in the JPEG file");
    if (errors_.msg_code == JWRN_JPEG_EOF) throw InputError("the JPEG file is truncated");
    throw InputError("damaged or truncated (" + message() + ")");
  }

  void throw_if_out_of_memory() const {
    if (errors_.msg_code == JERR_OUT_OF_MEMORY) throw std::bad_alloc();
  }

  // Return why libjpeg stopped.
  std::string message() {
    std::array<char, JMSG_LENGTH_MAX> text{};
    errors_.format_message(reinterpret_cast<j_common_ptr>(&info_), text.data());
    return text.data();
  }

  const ImageLimits limits_;
  GuardedCall guard_;
  jpeg_error_mgr errors_{};
  jpeg_progress_mgr progress_{};
  jpeg_decompress_struct info_{};
  int orientation_ = 1;
  int64_t allowed_scans_ = kScansAlwaysAllowed;
  bool is_late_ = false;
  bool too_many_scans_ = false;
  bool lacks_scans_ = false;
};

}  // namespace

FitMode fit_mode_of(const Canvas& canvas) {
  for (const auto& [word, mode] : kFitModes) {
    if (word == canvas.fit) return mode;
  }
  throw std::invalid_argument("canvas.fit must be a way of fit, got " + canvas.fit);
}

int jpeg_reduction(int64_t width, int64_t height, int exif_orientation, const Reading& reading) {
  const int64_t oversampling = reading.jpeg_oversampling;
  if (oversampling == 0) return 1;
  if (turn_of(exif_orientation, reading.orientation).swap) std::swap(width, height);
  const Canvas& canvas = reading.canvas;
  const Fit fit = fit_to_canvas(width, height, canvas.width, canvas.height, fit_mode_of(canvas));
  for (const int divisor : {8, 4, 2}) {
    const bool is_enough = (width + divisor - 1) / divisor >= oversampling * fit.width &&
                           (height + divisor - 1) / divisor >= oversampling * fit.height;
    if (is_enough) return divisor;
  }
  return 1;
}

StoredImage decode_jpeg(std::span<const uint8_t> file, const Reading& reading, const ImageLimits& limits) {
  return JpegDecoder(file, limits).decode(reading);
}

ImageHeader jpeg_header(std::span<const uint8_t> file, const ImageLimits& limits) {
  return JpegDecoder(file, limits).header();
}

}  // namespace lensbox
