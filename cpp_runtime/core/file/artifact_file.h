#pragma once

#include <lensbox/metadata.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace lensbox {

// An artifact in memory, with seal and signature checked. torch loads these bytes, because the file may
// change after the check.
struct ArtifactFile {
  std::shared_ptr<const std::string> bytes;
  Metadata metadata = {};
};

// Read the file once, check its seal, and its signature if a public key is given, then read lensbox.json.
// Throws ArtifactError.
ArtifactFile read_artifact_file(const std::filesystem::path& path,
                                const std::optional<std::filesystem::path>& public_key);

// The same for the bytes of a file. signature: the 64 bytes of its .sig file, for a public key; path: its
// name in errors.
ArtifactFile artifact_in_memory(std::span<const uint8_t> bytes, const std::filesystem::path& path,
                                const std::optional<std::filesystem::path>& public_key,
                                std::span<const uint8_t> signature);

// --- seal.cpp ---

// The seal of an artifact file: the last 64 bytes, the SHA-256 of all bytes before them in lower-case hex.
// The seal detects damage before the file is parsed; runtime/file/seal.py is the same in Python. The
// signature signs these 64 bytes.

// Return the SHA-256 as 64 lower-case hex digits.
std::string sha256(std::string_view bytes);

// Check the seal of a file's content. Return why it is invalid, as a continuation of the file's name, or "".
std::string seal_fault(std::string_view bytes);

// Return the content of the file <artifact>.sig. Throws ArtifactError if it is absent.
std::string read_signature(const std::filesystem::path& artifact);

// Check that the owner of an Ed25519 key, a PEM file, signed the seal of `bytes`, the content of the
// artifact; whether the seal holds is for seal_fault to say. signature: 64 bytes, of the source `from`.
// Throws ArtifactError if the signature is malformed or of another key, or if the key file holds no Ed25519
// key.
void require_signature(std::string_view bytes, std::string_view signature, const std::string& from,
                       const std::filesystem::path& artifact, const std::filesystem::path& public_key);

}  // namespace lensbox
