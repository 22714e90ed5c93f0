// The coded data of a JPEG file without stuffed zeros and restart markers, for reading from any bit.
#pragma once

#include <cstdint>

#include "jpeg_scan.h"

namespace lensbox {

// words: 32 bits each, the first byte highest; kJpegSlack bytes of any content follow. ends: of the segments
// between restart markers, in bits; the last one is that of the data.
struct JpegData {
  const uint32_t* words;
  const uint32_t* ends;
  int32_t segments;

  // Return the index of the segment that holds bit `place`; `segments` behind the last one.
  LENSBOX_HOST_DEVICE int32_t segment_of(uint32_t place) const {
    int32_t first = 0, last = segments;
    while (first < last) {
      const int32_t middle = (first + last) / 2;
      if (ends[middle] > place) {
        last = middle;
      } else {
        first = middle + 1;
      }
    }
    return first;
  }
};

// A reader of words from bit `place` on. It reads ahead, since the threads of a warp read at distant places.
class JpegBits {
 public:
  LENSBOX_HOST_DEVICE JpegBits(const uint32_t* words, uint32_t place) : words_(words) { go_to(place); }

  LENSBOX_HOST_DEVICE uint32_t place() const { return place_; }

  // Return the next 32 bits.
  LENSBOX_HOST_DEVICE uint32_t next() const {
    return static_cast<uint32_t>((uint64_t{word_} << 32 | second_) << (place_ & 31) >> 32);
  }

  // Return whether the bits up to `end`, one at least, are the padding before a marker: ones, less than a
  // byte.
  LENSBOX_HOST_DEVICE bool is_padding(uint32_t end) const {
    return end - place_ < 8 && ~next() >> (32 - (end - place_)) == 0;
  }

  // count: at most 32.
  LENSBOX_HOST_DEVICE void skip(uint32_t count) {
    const uint32_t before = place_ >> 5;
    place_ += count;
    const bool is_next = place_ >> 5 != before;
    word_ = is_next ? second_ : word_;
    second_ = is_next ? third_ : second_;
    if (is_next) third_ = words_[before + 3];
  }

  LENSBOX_HOST_DEVICE void go_to(uint32_t place) {
    place_ = place;
    word_ = words_[place >> 5];
    second_ = words_[(place >> 5) + 1];
    third_ = words_[(place >> 5) + 2];
  }

 private:
  const uint32_t* words_;
  uint32_t place_, word_, second_, third_;
};

// Bytes behind the data that a walk may read: of a block that begins within the data, 64 codes with numbers
// of 27 bits, and three words ahead.
constexpr int32_t kJpegSlack = 256;

// The sizes of the arrays of JpegData.
struct JpegWorkspace {
  int64_t words, ends;
};

LENSBOX_HOST_DEVICE JpegWorkspace jpeg_workspace(const JpegScan& scan) {
  return {(scan.end - scan.begin + kJpegSlack) / 4 + 1, scan.segments()};
}

// Numbers of bytes of data, and of segments that have ended.
struct JpegCount {
  int32_t bytes, ends;
};

// Copy a file's coded data from byte `begin` to `end`. The marker behind the data counts as one of their
// bytes. before: the counts of the parts before this one. words: on a little-endian machine; nullptr to count
// alone. Returns the counts with this part's.
LENSBOX_HOST_DEVICE JpegCount copy_jpeg_data(const uint8_t* file, int32_t begin, int32_t end,
                                             JpegCount before, uint32_t* words, uint32_t* ends) {
  JpegCount copied = before;
  if (begin >= end) return copied;
  uint8_t last = file[begin - 1], byte = file[begin];  // a zero of the header comes before the data
  for (int32_t at = begin; at < end; ++at) {
    const uint8_t next = file[at + 1];
    if (byte == 0xFF && next != 0) {
      if (words != nullptr) ends[copied.ends] = static_cast<uint32_t>(copied.bytes) * 8;
      ++copied.ends;
    } else if (last != 0xFF) {
      if (words != nullptr) reinterpret_cast<uint8_t*>(words)[copied.bytes ^ 3] = byte;
      ++copied.bytes;
    }
    last = byte;
    byte = next;
  }
  return copied;
}

}  // namespace lensbox
