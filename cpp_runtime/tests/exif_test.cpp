#include <gtest/gtest.h>

#include <initializer_list>
#include <string>
#include <string_view>

#include "images/decoders.h"

namespace {

using namespace std::string_literals;

int orientation(std::string_view tiff) {
  return lensbox::exif_orientation({reinterpret_cast<const uint8_t*>(tiff.data()), tiff.size()});
}

// (GCC 12 warns of an overlap in `std::string + std::string&&`.)
std::string joined(std::initializer_list<std::string_view> parts) {
  std::string text;
  for (const std::string_view part : parts) {
    text += part;
  }
  return text;
}

const std::string kLittleHeader = "II*\0\x08\0\0\0"s;

TEST(Exif, ReadsBothByteOrders) {
  for (char value = 1; value <= 8; ++value) {
    EXPECT_EQ(orientation(joined({kLittleHeader, "\1\0\x12\1\3\0\1\0\0\0"s, {&value, 1}, "\0\0\0"s})), value);
    EXPECT_EQ(orientation(joined({"MM\0*\0\0\0\x08\0\1\1\x12\0\3\0\0\0\1\0"s, {&value, 1}, "\0\0"s})), value);
  }
}

TEST(Exif, LooksAtAllEntriesOfTheFirstDirectoryWhereverItIs) {
  const std::string other = "\x0f\1\2\0\3\0\0\0ab\0\0"s;
  const std::string entry = "\x12\1\3\0\1\0\0\0\6\0\0\0"s;
  EXPECT_EQ(orientation(joined({"II*\0\x0b\0\0\0xyz\3\0"s, other, other, entry})), 6);
  EXPECT_EQ(orientation(joined({kLittleHeader, "\1\0"s, other, "\x1a\0\0\0\1\0"s, entry})), 1);
}

TEST(Exif, TheFirstEntryCounts) {
  const std::string entry = "\x12\1\3\0\1\0\0\0\6\0\0\0"s;
  const std::string another = "\x12\1\3\0\1\0\0\0\3\0\0\0"s;
  const std::string no_short = "\x12\1\4\0\1\0\0\0\6\0\0\0"s;
  EXPECT_EQ(orientation(joined({kLittleHeader, "\2\0"s, entry, another})), 6);
  EXPECT_EQ(orientation(joined({kLittleHeader, "\2\0"s, no_short, entry})), 1);
}

TEST(Exif, WhatIsBrokenIsUpright) {
  const std::string good = joined({kLittleHeader, "\1\0\x12\1\3\0\1\0\0\0\6\0\0\0"s});
  ASSERT_EQ(orientation(good), 6);
  for (size_t length = 0; length < good.size(); ++length) {
    EXPECT_EQ(orientation(good.substr(0, length)), 1) << length;
  }
  const auto changed = [&](size_t at, char value) {
    std::string text = good;
    text[at] = value;
    return orientation(text);
  };
  EXPECT_EQ(changed(0, 'M'), 1);
  EXPECT_EQ(changed(2, 0), 1);
  for (const size_t offset_byte : {4, 5, 6, 7}) {
    EXPECT_EQ(changed(offset_byte, '\xff'), 1);
  }
  EXPECT_EQ(changed(8, 0), 1);       // no entries
  EXPECT_EQ(changed(8, '\xff'), 6);  // more than there are: it comes before the end
  EXPECT_EQ(changed(12, 4), 1);      // a long
  EXPECT_EQ(changed(14, 2), 1);      // two of them
  EXPECT_EQ(changed(18, 0), 1);
  EXPECT_EQ(changed(18, 9), 1);
  EXPECT_EQ(changed(19, 1), 1);  // 256 + 6
}

}  // namespace
