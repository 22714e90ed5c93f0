// A baseline JPEG file's header, Huffman codes and coded bits, for the CPU and a GPU.
#pragma once

#include <cstdint>

#include "host_device.h"

namespace lensbox {

// Larger files are left to the CPU: a walk takes a GPU 0.1 s at this size if no part but the first
// synchronizes.
constexpr int64_t kMaxJpegBytes = int64_t{1} << 19;

// A Huffman code of ITU-T T.81.
struct JpegTable {
  uint8_t symbols[256];
  int32_t ends[17];     // by length: the code behind the last one, left-aligned in 16 bits
  int32_t offsets[17];  // by length: the index of a symbol less its code
};

// A picture's samples from -128 to 127 give a block a norm of at most 1024, and rounding to multiples of at
// most 255 adds less than 8 * 128. Beyond 2048 decoders clip differently. So the DC coefficient, and the norm
// of the others, may be 2048 / sqrt(2) each.
constexpr int32_t kMaxJpegNorm = 1448;

struct JpegComponent {
  int32_t blocks;         // in a unit (MCU)
  int32_t quant, dc, ac;  // its tables
  int32_t max_dc;         // the largest DC coefficient, before dequantization
};

// The facts of a header. A file has one scan of 1 or 3 components.
struct JpegScan {
  int32_t width, height;
  int32_t count;         // of components
  int32_t across, down;  // pixels of a chroma sample along each axis, 1 or 2
  JpegComponent components[3];
  uint8_t quant[4][64];
  JpegTable tables[2][2];  // DC and AC
  int32_t units;
  int32_t restart_interval;      // in units; 0 for none
  int32_t begin, end;            // of the coded data in the copy without metadata
  int32_t exif_begin, exif_end;  // of the first EXIF data in the file; 0 for none

  // Return the number of segments between restart markers.
  LENSBOX_HOST_DEVICE int32_t segments() const {
    return restart_interval > 0 ? (units - 1) / restart_interval + 1 : 1;
  }
};

// A code and the number behind it, packed: `bits` of both, 0 for a broken code; `size` bits of the number;
// `zeros` before it.
struct Step {
  static constexpr uint32_t kEndOfBlock = 63;  // as zeros, as those of a broken code

  uint16_t packed;

  LENSBOX_HOST_DEVICE static Step of(uint32_t bits, uint32_t zeros, uint32_t size) {
    return {static_cast<uint16_t>(bits | zeros << 5 | size << 11)};
  }
  LENSBOX_HOST_DEVICE uint32_t bits() const { return packed & 31u; }
  LENSBOX_HOST_DEVICE uint32_t zeros() const { return packed >> 5 & 63u; }
  LENSBOX_HOST_DEVICE uint32_t size() const { return packed >> 11; }
};

// Return the step that begins with the 16 bits `next`.
LENSBOX_HOST_DEVICE Step step_of(const JpegTable& table, bool is_dc, int32_t next) {
  for (int32_t length = 1; length <= 16; ++length) {
    if (next >= table.ends[length]) continue;
    const uint32_t symbol = table.symbols[(next >> (16 - length)) + table.offsets[length]];
    const uint32_t size = symbol & 15, zeros = symbol == 0 && !is_dc ? Step::kEndOfBlock : symbol >> 4;
    return Step::of(static_cast<uint32_t>(length) + size, zeros, size);
  }
  return Step::of(0, Step::kEndOfBlock, 0);
}

// Steps to look up: kQuickSteps for the first kQuickBits bits, and as many for the last of the numbers of 16
// bits, since longer codes must begin with six ones. None of 7,100 files with optimized tables had others.
constexpr int32_t kQuickBits = 10, kQuickSteps = 1 << kQuickBits, kSteps = 2 * kQuickSteps;
constexpr int32_t kFirstLong = (1 << 16) - kQuickSteps;

LENSBOX_HOST_DEVICE int32_t index_of_step(int32_t next) {
  return next < kFirstLong ? next >> (16 - kQuickBits) : next - kFirstLong + kQuickSteps;
}

// Return step `index` of four times kSteps, for the tables in the order of JpegScan::tables.
LENSBOX_HOST_DEVICE Step quick_step(const JpegScan& scan, int32_t index) {
  const int32_t table = index / kSteps, place = index % kSteps;
  const int32_t next = place < kQuickSteps ? place << (16 - kQuickBits) : place - kQuickSteps + kFirstLong;
  return step_of(scan.tables[table / 2][table % 2], table < 2, next);
}

// Return the number that T.81 codes as the last `size` bits, at most 11, of the first `count` of `bits`.
LENSBOX_HOST_DEVICE int32_t jpeg_number(uint32_t bits, uint32_t count, uint32_t size) {
  const auto number = static_cast<int32_t>(bits >> (-count & 31) & ((1u << size) - 1)), end = 1 << size;
  return 2 * number >= end ? number : number - end + 1;
}

}  // namespace lensbox
