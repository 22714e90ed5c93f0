#pragma once

#include <cstddef>
#include <cstdint>

// The limits of the values in lensbox.json. Python's reader has the same: tests/runtime/file/test_metadata.py
// reads this file, and walks it.
namespace lensbox {

inline constexpr uint64_t kMostMetadata = 16777216;  // bytes of lensbox.json
inline constexpr size_t kMostOps = 1000;
inline constexpr int64_t kMaxCanvasSide = 16384;
inline constexpr int64_t kMaxJpegOversampling = 1000;
inline constexpr size_t kMostClasses = 10000;
inline constexpr size_t kMostCharacters = 200;  // of a class's name
inline constexpr size_t kMostExtras = 100;
inline constexpr size_t kMostDimensions = 8;    // of an extra
inline constexpr int64_t kMostNumbers = 65536;  // of an extra of one detection
inline constexpr size_t kMostCpuFeatures = 1000;
inline constexpr int64_t kMostPixels = 1048576;  // of the picture of the self-test

}  // namespace lensbox
