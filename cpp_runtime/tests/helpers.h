#pragma once

#include <gtest/gtest.h>
#include <zlib.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <string>

#include "file/seal.h"

// Calls `function`, which must throw an Error whose message has all these parts.
template <class Error, class Function>
void expect_error(Function function, std::initializer_list<const char*> parts) {
  try {
    function();
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    for (const char* part : parts) {
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos)
          << "'" << part << "' is not in: " << error.what();
    }
  }
}

// A test with an empty folder of its own, removed after it.
class TemporaryFolder : public testing::Test {
 protected:
  void SetUp() override {
    const auto* const test = testing::UnitTest::GetInstance()->current_test_info();
    folder_ = std::filesystem::temp_directory_path() /
              ("lensbox-" + std::to_string(getpid()) + "-" + test->test_suite_name() + "-" + test->name());
    std::filesystem::create_directory(folder_);
  }

  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::filesystem::path write(const std::string& name, const std::string& bytes) const {
    std::ofstream(folder_ / name, std::ios::binary) << bytes;
    return folder_ / name;
  }

  std::filesystem::path folder_;
};

// Return a zip archive without a comment with its seal, as artifact/seal.py does.
inline std::string sealed_zip(const std::string& archive) {
  const std::string content =
      archive.substr(0, archive.size() - 2) + std::string("\x4f\0", 2) + "lensbox.sha256=";
  return content + lensbox::sha256(content);
}

// Return a serialized ONNX model with its seal.
inline std::string sealed_onnx(const std::string& model) {
  const std::string content = model + "\x72\x52\x0a\x0elensbox.sha256\x12\x40";
  return content + lensbox::sha256(content);
}

inline std::string big_endian(uint32_t value) {
  std::string bytes;
  for (int shift = 24; shift >= 0; shift -= 8) {
    bytes += static_cast<char>(value >> shift);
  }
  return bytes;
}

inline std::string png_chunk(const std::string& name_and_content) {
  const auto checksum = crc32(0, reinterpret_cast<const Bytef*>(name_and_content.data()),
                              static_cast<uInt>(name_and_content.size()));
  return big_endian(static_cast<uint32_t>(name_and_content.size() - 4)) + name_and_content +
         big_endian(static_cast<uint32_t>(checksum));
}

inline std::string compressed(const std::string& text) {
  uLongf size = compressBound(text.size());
  std::string bytes(size, '\0');
  compress(reinterpret_cast<Bytef*>(bytes.data()), &size, reinterpret_cast<const Bytef*>(text.data()),
           text.size());
  bytes.resize(size);
  return bytes;
}

// Return a PNG file with 8 bits a sample: 1 channel gray, 2 gray and alpha, 3 RGB, 4 RGBA. The samples count
// up by 7.
inline std::string png_file(uint32_t width, uint32_t height, uint32_t channels) {
  constexpr char kColorTypes[] = {0, 0, 4, 2, 6};
  std::string rows;
  uint32_t sample = 0;
  for (uint32_t y = 0; y < height; ++y) {
    rows += '\0';  // no filter
    for (uint32_t x = 0; x < width * channels; ++x) {
      rows += static_cast<char>(7 * sample++);
    }
  }
  return "\x89PNG\r\n\x1a\n" +
         png_chunk("IHDR" + big_endian(width) + big_endian(height) + '\x08' + kColorTypes[channels] +
                   std::string(3, '\0')) +
         png_chunk("IDAT" + compressed(rows)) + png_chunk("IEND");
}
