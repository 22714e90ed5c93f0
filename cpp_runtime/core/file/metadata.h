#pragma once

#include <lensbox/metadata.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string_view>
#include <vector>

#include "file/json.h"
#include "fit.h"  // of the op library

namespace lensbox {

// The limits of the values in lensbox.json. Python's reader has the same: tests/runtime/file/test_metadata.py
// reads this file.
inline constexpr uint64_t kMostMetadata = 16777216;  // bytes of lensbox.json
inline constexpr size_t kMostOps = 1000;
inline constexpr int64_t kMaxCanvasSide = 16384;
static_assert(kMaxCanvasSide == kLongestCanvas);
inline constexpr int64_t kMaxJpegOversampling = 1000;
inline constexpr size_t kMostClasses = 10000;
inline constexpr size_t kMostCharacters = 200;  // of a class's name
inline constexpr size_t kMostExtras = 100;
inline constexpr size_t kMostDimensions = 8;    // of an extra
inline constexpr int64_t kMostNumbers = 65536;  // of an extra of one detection
inline constexpr size_t kMostCpuFeatures = 1000;
inline constexpr int64_t kMostPixels = 1048576;  // of the picture of the self-test

// Parse the text of lensbox.json strictly (see parse_strict_json): every field that this library knows must
// be present and valid; unknown fields are ignored. `artifact` is only named in errors. Throws ArtifactError,
// also for another format version.
Metadata parse_metadata(std::string_view text, const std::filesystem::path& artifact);

// Read the self_test of lensbox.json for a detector with so many classes and these extras. Throws JsonError.
SelfTest read_self_test(const JsonField& field, size_t classes, const std::vector<Extra>& extras);

}  // namespace lensbox
