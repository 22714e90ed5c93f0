#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace lensbox {

// The seal of an artifact file: the last 64 bytes, the SHA-256 of all bytes before them in lower-case hex.
// The seal detects damage before the file is parsed; runtime/file/seal.py is the same in Python. The
// signature signs these 64 bytes.

// Return the SHA-256 as 64 lower-case hex digits.
std::string sha256(std::string_view bytes);

// Check the seal of a file's content. Return why it is invalid, as a continuation of the file's name, or "".
std::string seal_fault(std::string_view bytes);

// Check that the owner of an Ed25519 key, a PEM file, signed the seal of `bytes`, the content of the file
// `artifact`, and that the seal holds. The signature, 64 bytes, is in <artifact>.sig. Throws ArtifactError if
// it is absent, malformed or of another key, or if the key file holds no Ed25519 key.
void require_signature(std::string_view bytes, const std::filesystem::path& artifact,
                       const std::filesystem::path& public_key);

}  // namespace lensbox
