#pragma once

#include <lensbox/metadata.h>

#include <cstdint>
#include <filesystem>
#include <string_view>
#include <vector>

#include "file/json.h"

namespace lensbox {

// Parse the text of lensbox.json strictly (see parse_strict_json): every field that this library knows must
// be present and valid; unknown fields are ignored. `artifact` is only named in errors. Throws ArtifactError,
// also for another format version.
Metadata parse_metadata(std::string_view text, const std::filesystem::path& artifact);

// Read the self_test of lensbox.json for a detector with so many classes and these extras. Throws JsonError.
SelfTest read_self_test(const JsonField& field, size_t classes, const std::vector<Extra>& extras);

}  // namespace lensbox
