// The coded data of a baseline JPEG file, walked code by code, on the CPU and on a GPU.
//
// A file that passes is read alike by all decoders: no code is missing or left over, and no block is one that
// decoders clip in different places.
#pragma once

#include <cstddef>
#include <cstdint>

#include "host_device.h"

namespace lensbox {

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

// What the header says. A file has one scan of 1 or 3 components.
struct JpegScan {
  int32_t width, height;
  int32_t count;  // of components
  JpegComponent components[3];
  uint8_t quant[4][64];
  JpegTable tables[2][2];  // DC and AC
  int32_t units;
  int32_t restart_interval;  // in units; 0 for none
  int32_t begin, end;        // of the coded data in the file
};

// The square of a block's norm, dequantized. A block of samples from -128 to 127 has a norm of at most 1024,
// and rounding to multiples of at most 255 adds less than 8 * 128. Beyond it decoders clip differently.
constexpr int64_t kMaxJpegEnergy = int64_t{1} << 22;

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

// The bits of coded data up to the next marker, and zeros behind them.
class JpegBits {
 public:
  LENSBOX_HOST_DEVICE JpegBits(const uint8_t* data, const uint8_t* end) : at_(data), end_(end) {}

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

  // Return whether bits behind the data were read.
  LENSBOX_HOST_DEVICE bool is_past_end() const { return count_ < padding_; }

  // Return whether the data are read up to a marker, or the end, but for less than a byte of ones. Go on
  // behind the marker.
  LENSBOX_HOST_DEVICE bool pass_marker() {
    const int32_t left = count_ - padding_;
    if (left < 0 || left > 7 || (left > 0 && peek(left) + 1 != 1u << left)) return false;
    if (at_ < end_ && (at_[0] != 0xFF || at_[1] == 0)) return false;
    at_ += 2;
    buffer_ = 0;
    count_ = padding_ = 0;
    return true;
  }

 private:
  // Return the next `count` bits, from 1 to 16.
  LENSBOX_HOST_DEVICE uint32_t peek(int32_t count) const {
    return static_cast<uint32_t>(buffer_ >> (64 - count));
  }

  LENSBOX_HOST_DEVICE void skip(int32_t count) {
    buffer_ <<= count;
    count_ -= count;
  }

  // Make 57 bits or more available.
  LENSBOX_HOST_DEVICE void fill() {
    if (end_ - at_ >= 8) {
      uint64_t next = 0;
      for (int32_t i = 0; i < 8; ++i)
        next = next << 8 | at_[i];
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
      if (at_ < end_ && (at_[0] != 0xFF || at_[1] == 0)) {  // two bytes follow the end: its marker
        byte = at_[0];
        at_ += byte == 0xFF ? 2 : 1;
      } else {
        padding_ += 8;
      }
      buffer_ |= byte << (56 - count_);
      count_ += 8;
    }
  }

  const uint8_t *at_, *end_;
  uint64_t buffer_ = 0;  // the next bits, left-aligned
  int32_t count_ = 0, padding_ = 0;
};

LENSBOX_HOST_DEVICE bool is_sound_block(const JpegScan& scan, const Step* quick,
                                        const JpegComponent& component, int32_t& last_dc, JpegBits& bits) {
  const uint8_t* const quant = scan.quant[component.quant];
  const Step first = bits.step(quick + component.dc * kQuickSteps, scan.tables[0][component.dc]);
  if (first.size() != 0) return false;
  last_dc += first.number();
  if (last_dc < -2048 || last_dc > 2047) return false;
  const int64_t dc = int64_t{last_dc} * quant[0];
  int64_t energy = dc * dc;
  const Step* const quick_ac = quick + (2 + component.ac) * kQuickSteps;
  const JpegTable& table = scan.tables[1][component.ac];
  for (int32_t index = 1; index < 64; ++index) {
    const Step step = bits.step(quick_ac, table);
    if (step.zeros() == Step::kEndOfBlock) break;
    index += static_cast<int32_t>(step.zeros());
    if (index > 63 || step.size() != 0) return false;
    const int64_t value = int64_t{step.number()} * quant[index];
    energy += value * value;
  }
  return energy <= kMaxJpegEnergy;
}

// quick: quick_step() of all kQuickSteps, of the two DC tables and then the two AC tables. data: of the file.
// The markers in the coded data must be restart markers in the right order.
LENSBOX_HOST_DEVICE bool is_sound_scan(const JpegScan& scan, const Step* quick, const uint8_t* file) {
  JpegBits bits(file + scan.begin, file + scan.end);
  int32_t last_dc[3] = {}, until_restart = scan.restart_interval;
  for (int32_t unit = 0; unit < scan.units; ++unit) {
    if (scan.restart_interval > 0 && until_restart-- == 0) {
      if (!bits.pass_marker()) return false;
      until_restart = scan.restart_interval - 1;
      last_dc[0] = last_dc[1] = last_dc[2] = 0;
    }
    for (int32_t i = 0; i < scan.count; ++i) {
      for (int32_t block = 0; block < scan.components[i].blocks; ++block) {
        if (!is_sound_block(scan, quick, scan.components[i], last_dc[i], bits)) return false;
      }
    }
    if (bits.is_past_end()) return false;
  }
  return bits.pass_marker();
}

}  // namespace lensbox
