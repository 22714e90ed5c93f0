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

struct JpegComponent {
  int32_t blocks;         // in a unit (MCU)
  int32_t quant, dc, ac;  // its tables
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
};

constexpr int32_t kQuickBits = 11;
constexpr int32_t kQuickSteps = 1 << kQuickBits;

// A code and the number behind it, packed: `bits` of both, or of the code alone if `size` bits of the number
// are still to be read; `zeros` before the number.
struct Step {
  static constexpr uint32_t kEndOfBlock = 16, kBroken = 15;  // as zeros; as size

  uint32_t packed;

  LENSBOX_HOST_DEVICE static Step of(uint32_t bits, uint32_t zeros, uint32_t size, int32_t number) {
    return {bits | zeros << 5 | size << 10 | static_cast<uint32_t>(number) << 16};
  }
  LENSBOX_HOST_DEVICE int32_t bits() const { return static_cast<int32_t>(packed & 31); }
  LENSBOX_HOST_DEVICE uint32_t zeros() const { return packed >> 5 & 31; }
  LENSBOX_HOST_DEVICE int32_t size() const { return static_cast<int32_t>(packed >> 10 & 15); }
  LENSBOX_HOST_DEVICE int32_t number() const { return static_cast<int32_t>(packed) >> 16; }
};

// Return the number that T.81 codes as `bits`, of which there are `size`, from 1 to 11.
LENSBOX_HOST_DEVICE int32_t jpeg_number(uint32_t bits, int32_t size) {
  const auto number = static_cast<int32_t>(bits);
  return number >> (size - 1) != 0 ? number : number - (1 << size) + 1;
}

// Return the step that begins with the 16 bits `next`, without its number.
LENSBOX_HOST_DEVICE Step step_of(const JpegTable& table, int32_t next) {
  for (int32_t length = 1; length <= 16; ++length) {
    if (next >= table.ends[length]) continue;
    const uint32_t symbol = table.symbols[(next >> (16 - length)) + table.offsets[length]];
    return Step::of(static_cast<uint32_t>(length), symbol == 0 ? Step::kEndOfBlock : symbol >> 4, symbol & 15,
                    0);
  }
  return Step::of(0, 0, Step::kBroken, 0);
}

// Return the step for the next kQuickBits, with its number if they hold it; 0 if they do not hold the code.
LENSBOX_HOST_DEVICE Step quick_step(const JpegTable& table, int32_t next) {
  const Step step = step_of(table, next << (16 - kQuickBits));
  const int32_t bits = step.bits(), size = step.size();
  if (bits == 0 || bits > kQuickBits) return {0};
  if (size == 0 || bits + size > kQuickBits) return step;
  const int32_t number = (next >> (kQuickBits - bits - size)) & ((1 << size) - 1);
  return Step::of(static_cast<uint32_t>(bits + size), step.zeros(), 0,
                  jpeg_number(static_cast<uint32_t>(number), size));
}

// A reader of coded bits. Behind a marker's place, and behind the end, it reads zeros.
class JpegBits {
 public:
  // place: of the first bit, in bits from the begin of the file. end: of the coded data, in bytes.
  LENSBOX_HOST_DEVICE JpegBits(const uint8_t* file, uint32_t place, int32_t end)
      : file_(file), at_(static_cast<int32_t>(place >> 3)), end_(end) {
    if ((place & 7) == 0) return;
    fill();
    skip(static_cast<int32_t>(place & 7));
  }

  // Read a code and the number behind it; `quick`: kQuickSteps of the table.
  LENSBOX_HOST_DEVICE Step step(const Step* quick, const JpegTable& table) {
    if (count_ < 32) fill();
    Step step = quick[peek(kQuickBits)];
    if (step.packed == 0) step = step_of(table, static_cast<int32_t>(peek(16)));
    skip(step.bits());
    const int32_t size = step.size();
    if (size == 0 || size == static_cast<int32_t>(Step::kBroken)) return step;
    step = Step::of(0, step.zeros(), 0, jpeg_number(peek(size), size));
    skip(size);
    return step;
  }

  // Skip `count` bits, at most 32 since the last step.
  LENSBOX_HOST_DEVICE void skip(int32_t count) {
    buffer_ <<= count;
    count_ -= count;
  }

  // Return whether bits behind the next marker were read.
  LENSBOX_HOST_DEVICE bool is_past_marker() const { return count_ < padding_; }

  // Return whether the next marker, or the end, comes after less than a byte of ones.
  LENSBOX_HOST_DEVICE bool is_at_marker() const {
    const int32_t left = count_ - padding_;
    if (left > 7 || (left > 0 && peek(left) + 1 != 1u << left)) return false;
    return at_ >= end_ || is_marker();
  }

  // Forget the bits that were filled in.
  LENSBOX_HOST_DEVICE void clear() {
    buffer_ = 0;
    count_ = padding_ = 0;
  }

  // Go on behind the marker. Return whether it was a restart marker, not the end.
  LENSBOX_HOST_DEVICE bool pass_marker() {
    const bool is_restart = at_ < end_;
    at_ += 2;
    clear();
    return is_restart;
  }

  // Return the place of the next bit. Only before a marker, not past it.
  LENSBOX_HOST_DEVICE uint32_t place() const {
    const int32_t left = count_ - padding_;
    int32_t at = at_;
    for (int32_t bits = left; bits > 0; bits -= 8)
      at -= file_[at - 1] == 0 && file_[at - 2] == 0xFF ? 2 : 1;
    return static_cast<uint32_t>(at) * 8 + static_cast<uint32_t>(-left & 7);
  }

  // Return whether the next bit is in the byte `limit` or behind it.
  LENSBOX_HOST_DEVICE bool has_reached(int32_t limit) const {
    return at_ >= limit && place() >= static_cast<uint32_t>(limit) * 8;
  }

 private:
  // Return the next `count` bits, from 1 to 16.
  LENSBOX_HOST_DEVICE uint32_t peek(int32_t count) const {
    return static_cast<uint32_t>(buffer_ >> (64 - count));
  }

  // Return whether a marker comes next. Two bytes follow the end: its marker.
  LENSBOX_HOST_DEVICE bool is_marker() const { return file_[at_] == 0xFF && file_[at_ + 1] != 0; }

  // Make 57 bits or more available.
  LENSBOX_HOST_DEVICE void fill() {
    if (end_ - at_ >= 8) {
      uint64_t next = 0;
      for (int32_t i = 0; i < 8; ++i)
        next = next << 8 | file_[at_ + i];
      constexpr uint64_t kOnes = 0x0101010101010101;
      if (((~next - kOnes) & next & (kOnes << 7)) == 0) {  // no byte is 0xFF
        buffer_ |= next >> count_;
        const int32_t bytes = (64 - count_) >> 3;
        at_ += bytes;
        count_ += 8 * bytes;
        return;
      }
    }
    while (count_ <= 56) {
      uint64_t byte = 0;
      if (at_ < end_ && !is_marker()) {
        byte = file_[at_];
        at_ += byte == 0xFF ? 2 : 1;
      } else {
        padding_ += 8;
      }
      buffer_ |= byte << (56 - count_);
      count_ += 8;
    }
  }

  const uint8_t* file_;
  int32_t at_, end_;
  uint64_t buffer_ = 0;  // the next bits, left-aligned
  int32_t count_ = 0, padding_ = 0;
};

}  // namespace lensbox
