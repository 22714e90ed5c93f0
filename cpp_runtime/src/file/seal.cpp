#include "file/seal.h"

#include <openssl/evp.h>

#include <algorithm>
#include <array>
#include <stdexcept>

namespace lensbox {
namespace {

constexpr std::string_view kMarker = "lensbox.sha256";
constexpr size_t kDigits = 64;
// Between marker and digits: one byte in a zip archive's comment, two in an ONNX file.
constexpr size_t kLongestPrefix = kMarker.size() + 2;

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
  if (end.find(kMarker) == std::string_view::npos) {
    return "is damaged or no artifact: it does not end with a seal, lensbox.sha256 and 64 digits";
  }
  if (sha256(content) != bytes.substr(content.size())) {
    return "is damaged or was changed: its SHA-256 does not match its seal";
  }
  return "";
}

}  // namespace lensbox
