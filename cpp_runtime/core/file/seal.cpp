#include <lensbox/error.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>

#include <algorithm>
#include <array>
#include <memory>
#include <stdexcept>
#include <utility>

#include "file/artifact_file.h"
#include "file/errors.h"
#include "file/files.h"

namespace lensbox {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kMarker = "lensbox.sha256";
constexpr size_t kDigits = 64;
// Between marker and digits: one byte in a zip archive's comment, two in an ONNX file.
constexpr size_t kLongestPrefix = kMarker.size() + 2;

constexpr size_t kSignatureSize = 64;
constexpr size_t kMostKeyBytes = 1 << 16;

using Key = std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)>;

// Refuse keys that need a password: OpenSSL's default callback would wait at the terminal.
int no_password(char* /*buffer*/, int /*size*/, int /*is_written*/, void* /*argument*/) {
  return -1;
}

Key read_public_key(const fs::path& path) {
  const std::string text = read_needed("public key", path, kMostKeyBytes, /*also_pipes=*/true);
  const std::unique_ptr<BIO, decltype(&BIO_free)> stream(
      BIO_new_mem_buf(text.data(), static_cast<int>(text.size())), &BIO_free);
  if (!stream) throw std::bad_alloc();
  Key key(PEM_read_bio_PUBKEY(stream.get(), nullptr, no_password, nullptr), &EVP_PKEY_free);
  ERR_clear_error();
  if (!key || EVP_PKEY_base_id(key.get()) != EVP_PKEY_ED25519) {
    throw ArtifactError(
        "public key " + path.string() +
        ": must be a PEM file with an Ed25519 public key (BEGIN PUBLIC KEY), as `lensbox sign "
        "--new-key` writes");
  }
  return key;
}

// What an archive is that holds this name and no seal; the first name that is found counts. As in seal.py.
constexpr std::array<std::pair<std::string_view, const char*>, 3> kPlainArchives = {{
    {"archive_format",
     "a plain program or package of torch.export: `lensbox export --model` makes an artifact of the module"},
    {"/constants.pkl", "a plain TorchScript file: `lensbox export --model` makes an artifact of the module"},
    {"/data.pkl", "a checkpoint of torch.save: `lensbox export --weights` takes it"},
}};

std::string without_seal(std::string_view bytes) {
  constexpr size_t kEndRecord = 22;  // of a zip archive without a comment
  if (bytes.size() >= kEndRecord && bytes.substr(bytes.size() - kEndRecord).starts_with("PK\5\6")) {
    for (const auto& [entry, what] : kPlainArchives) {
      if (bytes.find(entry) != std::string_view::npos) return std::string("is not an artifact but ") + what;
    }
  }
  const char* what = bytes.starts_with('\b') ? "a plain ONNX model" : "no artifact";
  return std::string("is damaged or ") + what + ": it does not end with a seal, lensbox.sha256 and 64 digits";
}

const unsigned char* data_of(std::string_view bytes) {
  return reinterpret_cast<const unsigned char*>(bytes.data());
}

bool is_signed(std::string_view bytes, std::string_view signature, EVP_PKEY* key) {
  const std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context(EVP_MD_CTX_new(), &EVP_MD_CTX_free);
  if (!context || EVP_DigestVerifyInit(context.get(), nullptr, nullptr, nullptr, key) != 1) {
    throw std::bad_alloc();
  }
  const int outcome =
      EVP_DigestVerify(context.get(), data_of(signature), signature.size(), data_of(bytes), bytes.size());
  ERR_clear_error();
  return outcome == 1;
}

}  // namespace

std::string sha256(std::string_view bytes) {
  std::array<unsigned char, 32> digest{};
  unsigned int size = 0;
  if (EVP_Digest(bytes.data(), bytes.size(), digest.data(), &size, EVP_sha256(), nullptr) != 1 ||
      size != digest.size()) {
    throw std::runtime_error("OpenSSL cannot compute a SHA-256");
  }
  constexpr std::string_view kHex = "0123456789abcdef";
  std::string text;
  for (const unsigned char byte : digest) {
    text += kHex[byte >> 4];
    text += kHex[byte & 15];
  }
  return text;
}

std::string seal_fault(std::string_view bytes) {
  const std::string_view content = bytes.substr(0, bytes.size() - std::min(bytes.size(), kDigits));
  const std::string_view end = content.substr(content.size() - std::min(content.size(), kLongestPrefix));
  if (end.find(kMarker) == std::string_view::npos) return without_seal(bytes);
  if (sha256(content) != bytes.substr(content.size())) {
    return "is damaged or was changed: its SHA-256 does not match its seal";
  }
  return "";
}

std::string read_signature(const fs::path& artifact) {
  fs::path path = artifact;
  path += ".sig";
  std::error_code error;
  if (!fs::is_regular_file(path, error)) {
    fail_artifact(artifact, "is not signed: there is no file " + path.string());
  }
  return read_needed("signature", path, kMostKeyBytes);
}

void require_signature(std::string_view bytes, std::string_view signature, const std::string& from,
                       const fs::path& artifact, const fs::path& public_key) {
  const Key key = read_public_key(public_key);
  if (signature.size() != kSignatureSize) {
    throw ArtifactError("signature " + from + ": must have " + std::to_string(kSignatureSize) +
                        " bytes, has " + std::to_string(signature.size()));
  }
  if (!is_signed(bytes.substr(bytes.size() - std::min(bytes.size(), kDigits)), signature, key.get())) {
    fail_artifact(artifact, "must be signed with the key of " + public_key.string() + ", but " + from +
                                " does not match: one of the two files was changed, or another key signed "
                                "them");
  }
}

}  // namespace lensbox
