#include "jpeg_structure.h"

#include <cstddef>

namespace lensbox {
namespace {

// Markers of ITU-T T.81, table B.1: each is the byte 0xFF and then one of these.
constexpr uint8_t kStartOfImage = 0xD8;
constexpr uint8_t kEndOfImage = 0xD9;
constexpr uint8_t kTemporary = 0x01;
constexpr uint8_t kFirstRestart = 0xD0;
constexpr uint8_t kLastRestart = 0xD7;

// Markers that stand alone; all others begin a segment with a length.
bool stands_alone(uint8_t marker) {
  return marker == kStartOfImage || marker == kTemporary ||
         (marker >= kFirstRestart && marker <= kLastRestart);
}

}  // namespace

bool is_jpeg(std::span<const uint8_t> file) {
  return file.size() >= 3 && file[0] == 0xFF && file[1] == kStartOfImage && file[2] == 0xFF;
}

bool jpeg_is_complete(std::span<const uint8_t> file) {
  // A segment's length leads to the next marker; a thumbnail inside a segment, with an end of its own, is
  // passed over. The coded data after a start-of-scan segment have no length: in them 0xFF is followed by 0,
  // a fill byte or a restart marker, so anything else is the next marker.
  size_t at = 0;
  while (at + 1 < file.size()) {
    const uint8_t marker = file[at + 1];
    if (file[at] != 0xFF || marker == 0x00 || marker == 0xFF) {
      at += 1;
    } else if (marker == kEndOfImage) {
      return true;
    } else if (stands_alone(marker)) {
      at += 2;
    } else {
      if (at + 3 >= file.size()) return false;
      at += 2 + ((size_t{file[at + 2]} << 8) | file[at + 3]);
    }
  }
  return false;
}

}  // namespace lensbox
