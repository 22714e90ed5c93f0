#pragma once

#include <string>
#include <string_view>

namespace lensbox {

// As 64 digits in small letters. Throws ArtifactError in a library that was built without OpenSSL.
std::string sha256(std::string_view bytes);

}  // namespace lensbox
