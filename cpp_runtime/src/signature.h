#pragma once

#include <filesystem>
#include <string_view>

namespace lensbox {

// Checks that the owner of an Ed25519 key, a PEM file, signed `bytes`, the content of the file `artifact`.
// The signature, 64 bytes, is in the file of that name with .sig behind it. Throws ArtifactError if it is
// absent, malformed or another's, or if the key is none; and Error of the code kUsage if the library was
// built without OpenSSL.
void require_signature(std::string_view bytes, const std::filesystem::path& artifact,
                       const std::filesystem::path& public_key);

}  // namespace lensbox
