// The check of a JPEG file's coded data, code by code, by several threads.
//
// A file that passes is read alike by all decoders: no code is missing or left over, and no block is one that
// decoders clip in different places.
//
// Each thread walks a part of the data. Only the first thread knows where a block begins, so the others guess
// at first. Then each thread walks again from the end that the thread before it found, until no end changes.
// Huffman codes synchronize themselves within a few blocks, so most guesses lead to the right end, and later
// walks soon meet the path of the first. The first part is right at once and each later one at most a round
// after its predecessor, so the result is that of one thread. At last each thread checks its part.
#pragma once

#include "jpeg_data.h"
#include "jpeg_scan.h"

namespace lensbox {

constexpr int32_t kMinPartBytes = 128;

// The threads of a warp wait for each other after so many codes: blocks have from 2 to 64.
constexpr int32_t kCodesAtOnce = 8;

// Where blocks begin: 8 * the bit + the index of the block in its unit. `marks` are the first blocks behind a
// few places of a part, at even distances, and `end` is the first one behind the part.
struct JpegPath {
  static constexpr int32_t kMarks = 4;

  uint32_t marks[kMarks], end;

  LENSBOX_HOST_DEVICE static JpegPath unknown() { return {{~0u, ~0u, ~0u, ~0u}, ~0u}; }
};

// The bits of a part.
struct JpegRange {
  uint32_t begin, end;
};

// The result of checking a part. Coefficients before the first restart marker are relative to the last DC
// coefficients of the part before; `low` and `high` bound these.
struct JpegPart {
  int32_t blocks;  // begun in the part
  int32_t before;  // blocks before the part, as its restart markers say; -1 without one
  int16_t dc[3], low[3], high[3];
  bool is_well_formed;

  LENSBOX_HOST_DEVICE bool is_restarted() const { return before >= 0; }
};

LENSBOX_HOST_DEVICE int32_t blocks_of_unit(const JpegScan& scan) {
  return scan.components[0].blocks + scan.count - 1;  // chroma has one block each
}

// difference: of the DC coefficient from the last one. energy: the sum of squared AC coefficients,
// dequantized.
struct JpegBlock {
  int32_t component, difference, energy;
  bool is_well_formed;
};

// Walk from a begin (as in JpegPath) to the first block at `limit` or behind it, or until the listener stops
// the walk. Return where the next block begins. quick: the steps of quick_step(). A listener without
// kReadsNumbers gets no numbers.
template <class Listener>
LENSBOX_HOST_DEVICE uint32_t walk_part(const JpegScan& scan, const Step* quick, const JpegData& data,
                                       uint32_t begin, uint32_t limit, Listener& listener) {
  const int32_t luma_blocks = scan.components[0].blocks, unit_blocks = blocks_of_unit(scan);
  auto next = static_cast<int32_t>(begin & 7);
  int32_t segment = data.segment_of(begin >> 3), index = 0;
  if (segment == data.segments) return begin;
  JpegBits bits(data.words, begin >> 3);
  uint32_t segment_end = data.ends[segment];
  JpegBlock block = {};
  Step step = {0};
  while (true) {
    if (index == 0) {
      const uint32_t at = bits.place() << 3 | static_cast<uint32_t>(next);
      if (bits.place() >= limit || listener.stops_at(at)) return at;
      block = {next < luma_blocks ? 0 : next - luma_blocks + 1, 0, 0, false};
    }
    const JpegComponent component = scan.components[block.component];
    for (int32_t i = 0; i < kCodesAtOnce && index < 64; ++i) {
      const int32_t table = index == 0 ? component.dc : 2 + component.ac;
      step = quick[table * kSteps + index_of_step(static_cast<int32_t>(bits.next() >> 16))];
      if constexpr (Listener::kReadsNumbers) {
        const int32_t number = jpeg_number(bits.next(), step.bits(), step.size());
        if (index == 0) {
          block.difference = number;
        } else {
          const int32_t place = index + static_cast<int32_t>(step.zeros());
          const int32_t value = number * scan.quant[component.quant][place & 63];
          const bool is_small = value >= -kMaxJpegNorm && value <= kMaxJpegNorm;
          block.energy += is_small ? value * value : kMaxJpegNorm * kMaxJpegNorm + 1;
        }
      }
      bits.skip(step.bits());
      index += static_cast<int32_t>(step.zeros()) + 1;
    }
    if (index < 64) continue;
    block.is_well_formed = step.bits() > 0 && (index == 64 || step.zeros() == Step::kEndOfBlock);
    listener.add(block);
    index = 0;
    next = next + 1 == unit_blocks ? 0 : next + 1;
    if (step.bits() == 0) bits.skip(1);  // to go on; a broken code has no length
    while (bits.place() >= segment_end || bits.is_padding(segment_end)) {
      listener.pass_end(segment, bits.place() <= segment_end);
      next = 0;
      if (++segment == data.segments) return segment_end << 3;
      bits.go_to(segment_end);
      segment_end = data.ends[segment];
    }
  }
}

// Notes the path of a walk, and stops the walk where it meets the path that was noted before.
class JpegPathFinder {
 public:
  static constexpr bool kReadsNumbers = false;

  LENSBOX_HOST_DEVICE JpegPathFinder(JpegPath& path, const JpegRange& range)
      : path_(path),
        distance_((range.end - range.begin) / (JpegPath::kMarks + 1) + 1),
        place_(range.begin + distance_) {}

  LENSBOX_HOST_DEVICE bool stops_at(uint32_t block) {
    for (; mark_ < JpegPath::kMarks && block >> 3 >= place_; ++mark_, place_ += distance_) {
      if (path_.marks[mark_] == block) return has_met_ = true;
      path_.marks[mark_] = block;
    }
    return false;
  }
  LENSBOX_HOST_DEVICE void add(const JpegBlock& /*block*/) {}
  LENSBOX_HOST_DEVICE void pass_end(int32_t /*segment*/, bool /*is_well_formed*/) {}
  // end: of the walk, which may come before the last marks.
  LENSBOX_HOST_DEVICE void finish(uint32_t end) {
    if (has_met_) return;
    for (; mark_ < JpegPath::kMarks; ++mark_)
      path_.marks[mark_] = end;
    path_.end = end;
  }

 private:
  JpegPath& path_;
  uint32_t distance_, place_;
  int32_t mark_ = 0;
  bool has_met_ = false;
};

// Checks the blocks and the markers of a part.
class JpegPartChecker {
 public:
  static constexpr bool kReadsNumbers = true;

  LENSBOX_HOST_DEVICE JpegPartChecker(JpegPart& part, const JpegScan& scan, int32_t segments)
      : part_(part), scan_(scan), segments_(segments) {
    part_ = {0, -1, {}, {}, {}, true};
  }

  LENSBOX_HOST_DEVICE bool stops_at(uint32_t /*block*/) const { return false; }

  LENSBOX_HOST_DEVICE void add(const JpegBlock& block) {
    const int32_t index = block.component, most = scan_.components[index].max_dc;
    int32_t dc = part_.dc[index] + block.difference;
    const bool is_well_formed = block.is_well_formed && block.energy <= kMaxJpegNorm * kMaxJpegNorm;
    if (!is_well_formed || dc < -2 * kMaxJpegNorm || dc > 2 * kMaxJpegNorm) {
      part_.is_well_formed = false;
      dc = 0;
    }
    part_.dc[index] = static_cast<int16_t>(dc);
    if (part_.is_restarted()) {
      if (dc < -most || dc > most) part_.is_well_formed = false;
    } else {
      if (dc < part_.low[index]) part_.low[index] = static_cast<int16_t>(dc);
      if (dc > part_.high[index]) part_.high[index] = static_cast<int16_t>(dc);
    }
    ++part_.blocks;
  }

  // is_well_formed: no code reaches beyond the end.
  LENSBOX_HOST_DEVICE void pass_end(int32_t segment, bool is_well_formed) {
    if (!is_well_formed) part_.is_well_formed = false;
    if (segment + 1 == segments_) return;
    const int32_t before = (segment + 1) * scan_.restart_interval * blocks_of_unit(scan_) - part_.blocks;
    if (before < 0 || (part_.is_restarted() && before != part_.before)) part_.is_well_formed = false;
    part_.before = before < 0 ? 0 : before;
    part_.dc[0] = part_.dc[1] = part_.dc[2] = 0;
  }

 private:
  JpegPart& part_;
  const JpegScan& scan_;
  int32_t segments_;
};

// Find the path of a part whose first block is at `begin`.
LENSBOX_HOST_DEVICE void find_path(const JpegScan& scan, const Step* quick, const JpegData& data,
                                   uint32_t begin, const JpegRange& range, JpegPath& path) {
  JpegPathFinder finder(path, range);
  finder.finish(walk_part(scan, quick, data, begin, range.end, finder));
}

LENSBOX_HOST_DEVICE void check_part(const JpegScan& scan, const Step* quick, const JpegData& data,
                                    uint32_t begin, const JpegRange& range, JpegPart& part) {
  JpegPartChecker checker(part, scan, data.segments);
  walk_part(scan, quick, data, begin, range.end, checker);
}

// Return the bit at which part `index` of `count` begins; the end of the data from the last one on.
LENSBOX_HOST_DEVICE uint32_t first_bit(const JpegData& data, int32_t index, int32_t count) {
  const uint32_t bits = data.ends[data.segments - 1];
  const auto bytes = static_cast<int32_t>(bits / 8), even = (bytes + count - 1) / count;
  const uint32_t begin = static_cast<uint32_t>(index * (even > kMinPartBytes ? even : kMinPartBytes)) * 8;
  return begin < bits ? begin : bits;
}

LENSBOX_HOST_DEVICE JpegRange range_of_part(const JpegData& data, int32_t index, int32_t count) {
  return {first_bit(data, index, count), first_bit(data, index + 1, count)};
}

// Return whether parts that fit together make a sound file. end: of the last one, as in JpegPath.
LENSBOX_HOST_DEVICE bool is_well_formed_whole(const JpegScan& scan, const JpegData& data,
                                              const JpegPart* parts, int32_t count, uint32_t end) {
  int32_t dc[3] = {}, blocks = 0;
  for (int32_t i = 0; i < count; ++i) {
    const JpegPart& part = parts[i];
    if (!part.is_well_formed || (part.is_restarted() && part.before != blocks)) return false;
    for (int32_t c = 0; c < scan.count; ++c) {
      const int32_t most = scan.components[c].max_dc;
      if (dc[c] + part.low[c] < -most || dc[c] + part.high[c] > most) return false;
      dc[c] = part.dc[c] + (part.is_restarted() ? 0 : dc[c]);
    }
    blocks += part.blocks;
  }
  return blocks == scan.units * blocks_of_unit(scan) && end >> 3 == data.ends[data.segments - 1];
}

}  // namespace lensbox
