// The check of a JPEG file's coded data, code by code, by several threads.
//
// A file that passes is read alike by all decoders: no code is missing or left over, and no block is one that
// decoders clip in different places.
//
// Each thread walks a part of the data. Only the first thread knows where a block begins, so the others guess
// at first. Then each thread walks again from the end that the thread before it found, until no end changes.
// Huffman codes synchronize themselves within a few blocks, so most guesses lead to the right end. The first
// part is right at once and each later one at most a round after its predecessor, so the result is that of
// one thread.
#pragma once

#include <cmath>

#include "jpeg_scan.h"

namespace lensbox {

// The largest norm of a block, dequantized. A block of samples from -128 to 127 has a norm of at most 1024,
// and rounding to multiples of at most 255 adds less than 8 * 128. Beyond it decoders clip differently.
constexpr int32_t kMaxJpegNorm = 2048;

constexpr int32_t kMinPartBytes = 128;

struct JpegBlock {
  int32_t difference = 0;  // of the DC coefficient from the last one
  int32_t energy = 0;      // the sum of squared AC coefficients, dequantized
  bool is_sound = false;
};

// The result of walking a part. Coefficients before the first restart marker are relative to the last DC
// coefficients of the part before; `low` and `high` bound these.
struct JpegPart {
  uint32_t end;     // 8 * the place behind the part (JpegBits) + the index of the next block in its unit
  int32_t blocks;   // begun in the part
  int32_t markers;  // restart markers passed
  int32_t surplus;  // blocks before a restart marker less those due after the last part's markers
  int16_t dc[3], low[3], high[3];
  bool is_sound;
};

LENSBOX_HOST_DEVICE JpegBlock read_block(const JpegScan& scan, const Step* quick,
                                         const JpegComponent& component, JpegBits& bits) {
  JpegBlock block;
  const Step first = bits.step(quick + component.dc * kQuickSteps, scan.tables[0][component.dc]);
  if (first.size() != 0) return block;
  block.difference = first.number();
  const uint8_t* const quant = scan.quant[component.quant];
  const Step* const quick_ac = quick + (2 + component.ac) * kQuickSteps;
  const JpegTable& table = scan.tables[1][component.ac];
  for (int32_t index = 1; index < 64; ++index) {
    const Step step = bits.step(quick_ac, table);
    if (step.zeros() == Step::kEndOfBlock) break;
    index += static_cast<int32_t>(step.zeros());
    if (index > 63 || step.size() != 0) return block;
    const int32_t value = step.number() * quant[index];
    const bool is_small = value >= -kMaxJpegNorm && value <= kMaxJpegNorm;
    block.energy += is_small ? value * value : kMaxJpegNorm * kMaxJpegNorm + 1;
  }
  block.is_sound = true;
  return block;
}

// Return the largest DC coefficient that the norm of a block allows, as a multiple of `quant`; -1 for none.
LENSBOX_HOST_DEVICE int32_t max_jpeg_dc(int32_t energy, int32_t quant) {
  const int32_t left = kMaxJpegNorm * kMaxJpegNorm - energy;
  if (left < 0) return -1;
  auto root = static_cast<int32_t>(sqrtf(static_cast<float>(left)));
  while (root * root > left)
    --root;
  while ((root + 1) * (root + 1) <= left)
    ++root;
  return root / quant;
}

LENSBOX_HOST_DEVICE void add_block(const JpegBlock& block, int32_t quant, int32_t component, JpegPart& part) {
  int32_t dc = part.dc[component] + block.difference;
  if (!block.is_sound || dc < -4095 || dc > 4095) {
    part.is_sound = false;
    dc = 0;
  }
  part.dc[component] = static_cast<int16_t>(dc);
  const int32_t most = max_jpeg_dc(block.energy, quant);
  const int32_t low = (most > 2047 ? -2048 : -most) - dc, high = (most > 2047 ? 2047 : most) - dc;
  if (most < 0 || (part.markers > 0 && (low > 0 || high < 0))) part.is_sound = false;
  if (part.markers > 0) return;
  if (low > part.low[component]) part.low[component] = static_cast<int16_t>(low);
  if (high < part.high[component]) part.high[component] = static_cast<int16_t>(high);
}

LENSBOX_HOST_DEVICE int32_t blocks_of_unit(const JpegScan& scan) {
  return scan.components[0].blocks + scan.count - 1;  // chroma has one block each
}

// begin: as JpegPart::end. limit: the byte at which the next part begins.
LENSBOX_HOST_DEVICE void walk_part(const JpegScan& scan, const Step* quick, const uint8_t* file,
                                   uint32_t begin, int32_t limit, JpegPart& part) {
  part = {begin, 0, 0, 0, {}, {-32768, -32768, -32768}, {32767, 32767, 32767}, true};
  const int32_t luma_blocks = scan.components[0].blocks, unit_blocks = blocks_of_unit(scan);
  const int32_t due = scan.restart_interval * unit_blocks;
  JpegBits bits(file, begin >> 3, scan.end);
  auto next = static_cast<int32_t>(begin & 7);
  while (!bits.has_reached(limit)) {
    if (bits.is_at_marker()) {
      next = 0;
      if (!bits.pass_marker()) break;
      ++part.markers;
      const int32_t surplus = part.blocks - part.markers * due;
      if (part.markers > 1 && surplus != part.surplus) part.is_sound = false;
      part.surplus = surplus;
      part.dc[0] = part.dc[1] = part.dc[2] = 0;
      continue;
    }
    const int32_t component = next < luma_blocks ? 0 : next - luma_blocks + 1;
    const JpegBlock block = read_block(scan, quick, scan.components[component], bits);
    add_block(block, scan.quant[scan.components[component].quant][0], component, part);
    ++part.blocks;
    next = next + 1 == unit_blocks ? 0 : next + 1;
    if (!block.is_sound) bits.skip(1);  // to go on; a broken code has no length
    if (bits.is_past_marker()) {
      part.is_sound = false;
      bits.clear();
    }
  }
  part.end = bits.place() << 3 | static_cast<uint32_t>(next);
}

// Return the byte at which part `index` of `count` begins; two bytes behind the end from the last one on.
LENSBOX_HOST_DEVICE int32_t first_byte(const JpegScan& scan, int32_t index, int32_t count) {
  const int32_t even = (scan.end - scan.begin + count - 1) / count;
  const int32_t bytes = even > kMinPartBytes ? even : kMinPartBytes;
  return index == count || index * bytes >= scan.end - scan.begin ? scan.end + 2 : scan.begin + index * bytes;
}

// Return where a thread begins that does not know where a block does.
LENSBOX_HOST_DEVICE uint32_t guessed_begin(const uint8_t* file, int32_t first_byte, int32_t index) {
  const bool is_split = index > 0 && file[first_byte - 1] == 0xFF;  // from the zero, or the marker's code
  return static_cast<uint32_t>(is_split ? first_byte + 1 : first_byte) << 6;
}

// Return whether parts that fit together make a sound file. The markers in the coded data must be restart
// markers in the right order and number.
LENSBOX_HOST_DEVICE bool is_sound_whole(const JpegScan& scan, const JpegPart* parts, int32_t count) {
  const int32_t unit_blocks = blocks_of_unit(scan);
  int32_t dc[3] = {}, blocks = 0, markers = 0;
  for (int32_t i = 0; i < count; ++i) {
    const JpegPart& part = parts[i];
    if (!part.is_sound) return false;
    for (int32_t c = 0; c < 3; ++c) {
      if (dc[c] < part.low[c] || dc[c] > part.high[c]) return false;
      dc[c] = part.dc[c] + (part.markers > 0 ? 0 : dc[c]);
    }
    if (part.markers > 0 && blocks + part.surplus != markers * scan.restart_interval * unit_blocks)
      return false;
    blocks += part.blocks;
    markers += part.markers;
  }
  return blocks == scan.units * unit_blocks;
}

}  // namespace lensbox
