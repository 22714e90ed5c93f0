// Reads the header of a JPEG file, walks its coded data, and makes RGB of its planes. The walk and the colors
// are for tests: they prove the arithmetic that GPUs share.

#include <algorithm>
#include <cstring>
#include <iterator>
#include <string_view>
#include <vector>

#include "../jpeg_color.h"
#include "../jpeg_walk.h"
#include "launchers.h"

namespace lensbox {
namespace {

// Markers of ITU-T T.81, table B.1: each is the byte 0xFF and then one of these.
constexpr uint8_t kBaselineFrame = 0xC0, kHuffmanTables = 0xC4, kRestart = 0xD0, kStart = 0xD8, kEnd = 0xD9,
                  kScan = 0xDA, kQuantTables = 0xDB, kRestartInterval = 0xDD, kApplication = 0xE0,
                  kExif = 0xE1, kAdobe = 0xEE, kComment = 0xFE;
constexpr std::string_view kExifHeader("Exif\0\0", 6);

constexpr int32_t kMaxSide = 8192;
constexpr int64_t kMaxPixels = int64_t{1} << 24;
constexpr int32_t kMaxSegments = 200;

int32_t big_endian16(const uint8_t* bytes) {
  return bytes[0] << 8 | bytes[1];
}

class HeaderReader {
 public:
  HeaderReader(const uint8_t* file, size_t size, uint8_t* out, JpegScan& scan)
      : file_(file), at_(file), end_(file + size), out_(out), scan_(scan) {}

  bool run() {
    if (end_ - at_ < 2 || at_[0] != 0xFF || at_[1] != kStart) return false;
    keep(2);
    for (int32_t segments = 0; segments < kMaxSegments; ++segments) {
      if (end_ - at_ < 4 || at_[0] != 0xFF) return false;
      const uint8_t marker = at_[1];
      const int32_t length = big_endian16(at_ + 2);
      if (length < 2 || end_ - at_ < 2 + length) return false;
      if (marker == kScan) return read_scan(at_ + 4, length - 2) && (keep(2 + length), find_end());
      if (marker == kComment || (marker >= kApplication && marker <= kApplication + 15)) {
        // Adobe's segment may say that the colors are not YCbCr.
        if (marker == kAdobe || (marker == kApplication && length < 16)) return false;
        if (marker == kExif && scan_.exif_begin == 0) find_exif(length - 2);
        at_ += 2 + length;
      } else {
        if (!read_segment(marker, at_ + 4, length - 2)) return false;
        keep(2 + length);
      }
    }
    return false;
  }

  int64_t kept() const { return kept_; }

 private:
  void keep(int64_t bytes) {
    if (out_ != nullptr) std::memcpy(out_ + kept_, at_, static_cast<size_t>(bytes));
    kept_ += bytes;
    at_ += bytes;
  }

  // EXIF data follow their header in the content of a segment.
  void find_exif(int32_t size) {
    const auto header = static_cast<int32_t>(kExifHeader.size());
    if (size < header || std::memcmp(at_ + 4, kExifHeader.data(), kExifHeader.size()) != 0) return;
    scan_.exif_begin = static_cast<int32_t>(at_ - file_) + 4 + header;
    scan_.exif_end = static_cast<int32_t>(at_ - file_) + 4 + size;
  }

  bool read_segment(uint8_t marker, const uint8_t* content, int32_t size) {
    switch (marker) {
      case kQuantTables:
        return read_quant_tables(content, size);
      case kHuffmanTables:
        return read_huffman_tables(content, size);
      case kRestartInterval:
        if (size == 2) scan_.restart_interval = big_endian16(content);
        return size == 2;
      case kBaselineFrame:
        return read_frame(content, size);
      default:
        return false;
    }
  }

  // Tables of 8 bits alone.
  bool read_quant_tables(const uint8_t* content, int32_t size) {
    if (size == 0 || size % 65 != 0) return false;
    for (; size > 0; size -= 65, content += 65) {
      if (content[0] > 3 || std::find(content + 1, content + 65, 0) != content + 65) return false;
      std::copy_n(content + 1, 64, scan_.quant[content[0]]);
      has_quant_[content[0]] = true;
    }
    return true;
  }

  bool read_huffman_tables(const uint8_t* content, int32_t size) {
    while (size > 0) {
      if (size < 17) return false;
      int32_t total = 0;
      for (int32_t i = 1; i <= 16; ++i)
        total += content[i];
      const int32_t kind = content[0] >> 4, number = content[0] & 15;
      if (kind > 1 || number > 1 || total > 256 || size < 17 + total) return false;
      if (!read_code(scan_.tables[kind][number], content + 1, content + 17, total, kind == 0)) return false;
      has_huffman_[kind][number] = true;
      content += 17 + total;
      size -= 17 + total;
    }
    return true;
  }

  // counts: of the codes of 1 to 16 bits. Returns whether they are a prefix code that leaves all ones unused,
  // those of more than kQuickBits bits begin with six ones, and all symbols are those of baseline files.
  static bool read_code(JpegTable& table, const uint8_t* counts, const uint8_t* symbols, int32_t total,
                        bool is_dc) {
    for (int32_t i = 0; i < total; ++i) {
      const int32_t size = symbols[i] & 15, zeros = symbols[i] >> 4;
      if (is_dc ? symbols[i] > 11 : size > 10 || (size == 0 && zeros != 0 && zeros != 15)) return false;
    }
    std::fill(std::begin(table.symbols), std::end(table.symbols), uint8_t{0});
    std::copy_n(symbols, total, table.symbols);
    int32_t code = 0, index = 0;
    for (int32_t length = 1; length <= 16; ++length, code <<= 1) {
      const bool is_long = length > kQuickBits && counts[length - 1] > 0;
      if (is_long && code << (16 - length) < kFirstLong) return false;
      table.offsets[length] = index - code;
      code += counts[length - 1];
      index += counts[length - 1];
      if (code >= 1 << length) return false;
      table.ends[length] = code << (16 - length);
    }
    return true;
  }

  // Gray, or YCbCr with chroma of full or half resolution along each axis.
  bool read_frame(const uint8_t* content, int32_t size) {
    if (scan_.count != 0 || size < 6 || content[0] != 8) return false;
    const int32_t height = big_endian16(content + 1), width = big_endian16(content + 3), count = content[5];
    if ((count != 1 && count != 3) || size != 6 + 3 * count) return false;
    if (width < 1 || height < 1 || width > kMaxSide || height > kMaxSide) return false;
    if (int64_t{width} * height > kMaxPixels) return false;
    for (int32_t i = 0; i < count; ++i) {
      const uint8_t* const one = content + 6 + 3 * i;
      const int32_t across = one[1] >> 4, down = one[1] & 15, most = i == 0 && count == 3 ? 2 : 1;
      if (one[0] != i + 1 || across < 1 || down < 1 || across > most || down > most || one[2] > 3)
        return false;
      scan_.components[i] = {across * down, one[2], 0, 0, 0};
      if (i > 0) continue;
      scan_.across = across;
      scan_.down = down;
      const int32_t columns = 8 * across, rows = 8 * down;
      scan_.units = ((width + columns - 1) / columns) * ((height + rows - 1) / rows);
    }
    scan_.width = width;
    scan_.height = height;
    scan_.count = count;
    return true;
  }

  // One scan of all components.
  bool read_scan(const uint8_t* content, int32_t size) {
    if (scan_.count == 0 || size != 4 + 2 * scan_.count || content[0] != scan_.count) return false;
    for (int32_t i = 0; i < scan_.count; ++i) {
      JpegComponent& component = scan_.components[i];
      const int32_t dc = content[2 + 2 * i] >> 4, ac = content[2 + 2 * i] & 15;
      if (content[1 + 2 * i] != i + 1 || dc > 1 || ac > 1) return false;
      if (!has_huffman_[0][dc] || !has_huffman_[1][ac] || !has_quant_[component.quant]) return false;
      component.dc = dc;
      component.ac = ac;
      component.max_dc = kMaxJpegNorm / scan_.quant[component.quant][0];
    }
    const uint8_t* const spectrum = content + 1 + 2 * scan_.count;
    return spectrum[0] == 0 && spectrum[1] == 63 && spectrum[2] == 0;
  }

  // Restart markers must be in order and as many as they should be, and no other may come before the end. A
  // block has two codes or more, of a bit or more: a shorter file would take memory for pixels that it lacks.
  bool find_end() {
    const int32_t restarts = scan_.segments() - 1;
    int32_t found = 0;
    for (const uint8_t* from = at_; end_ - from >= 2;) {
      const auto* const mark =
          static_cast<const uint8_t*>(std::memchr(from, 0xFF, static_cast<size_t>(end_ - from - 1)));
      if (mark == nullptr) return false;
      if (mark[1] == kEnd) {
        scan_.begin = static_cast<int32_t>(kept_);
        scan_.end = static_cast<int32_t>(kept_ + (mark - at_));
        const int64_t bits = 8 * int64_t{mark - at_};
        keep(mark + 2 - at_);
        return found == restarts && 2 * int64_t{scan_.units} * blocks_of_unit(scan_) <= bits;
      }
      if (mark[1] != 0 && (mark[1] != kRestart + found++ % 8 || found > restarts)) return false;
      from = mark + 2;
    }
    return false;
  }

  const uint8_t *file_, *at_, *end_;
  uint8_t* out_;
  JpegScan& scan_;
  int64_t kept_ = 0;
  bool has_quant_[4] = {}, has_huffman_[2][2] = {};
};

}  // namespace

int64_t lensbox_cpu_read_jpeg(const uint8_t* file, size_t size, uint8_t* out, JpegScan& scan) {
  scan = {};
  if (size > size_t{kMaxJpegBytes}) return 0;
  HeaderReader reader(file, size, out, scan);
  return reader.run() ? reader.kept() : 0;
}

bool lensbox_cpu_is_well_formed_jpeg(const uint8_t* file, const JpegScan& scan, int32_t part_count) {
  std::vector<Step> quick(4 * kSteps);
  for (int32_t i = 0; i < 4 * kSteps; ++i)
    quick[static_cast<size_t>(i)] = quick_step(scan, i);
  const JpegWorkspace workspace = jpeg_workspace(scan);
  std::vector<uint32_t> memory(static_cast<size_t>(workspace.words + workspace.ends));
  uint32_t *const words = memory.data(), *const ends = words + workspace.words;
  const int32_t bytes = (scan.end + part_count - scan.begin) / part_count;
  JpegCount copied = {};
  for (int32_t begin = scan.begin; begin <= scan.end; begin += bytes)
    copied = copy_jpeg_data(file, begin, std::min(begin + bytes, scan.end + 1), copied, words, ends);
  const JpegData data = {words, ends, scan.segments()};
  const auto count = static_cast<size_t>(part_count);
  std::vector<JpegRange> ranges;
  std::vector<uint32_t> begins;
  for (int32_t i = 0; i < part_count; ++i) {
    ranges.push_back(range_of_part(data, i, part_count));
    begins.push_back(ranges.back().begin << 3);
  }
  std::vector<JpegPath> paths(count, JpegPath::unknown());
  std::vector<bool> is_changed(count, true);
  while (std::find(is_changed.begin(), is_changed.end(), true) != is_changed.end()) {
    for (size_t i = 0; i < count; ++i)
      if (is_changed[i]) find_path(scan, quick.data(), data, begins[i], ranges[i], paths[i]);
    for (size_t i = 1; i < count; ++i) {
      is_changed[i] = paths[i - 1].end != begins[i];
      begins[i] = paths[i - 1].end;
    }
    is_changed[0] = false;
  }
  std::vector<JpegPart> parts(count);
  for (size_t i = 0; i < count; ++i)
    check_part(scan, quick.data(), data, begins[i], ranges[i], parts[i]);
  return is_well_formed_whole(scan, data, parts.data(), part_count, paths.back().end);
}

void lensbox_cpu_convert_jpeg_colors(const JpegColors* images, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    for (int32_t y = 0; y < images[i].height; ++y) {
      for (int32_t x = 0; x < images[i].width; ++x)
        jpeg_convert(images[i], x, y);
    }
  }
}

}  // namespace lensbox
