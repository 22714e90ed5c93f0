// In place of sha256_openssl.cpp, where OpenSSL is not there.

#include <lensbox/error.h>

#include "sha256.h"

namespace lensbox {

std::string sha256(std::string_view /*bytes*/) {
  throw ArtifactError(
      "ONNX files, and op libraries that an artifact carries, are opened only once their SHA-256 was "
      "checked, "
      "and this program was built without OpenSSL: build it where libssl-dev is installed");
}

}  // namespace lensbox
