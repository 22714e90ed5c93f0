#include <lensbox/error.h>

#include "signature.h"

namespace lensbox {

void require_signature(std::string_view /*bytes*/, const std::filesystem::path& /*artifact*/,
                       const std::filesystem::path& public_key) {
  throw Error(ErrorCode::kUsage, "public key " + public_key.string() +
                                     ": cannot be used, because this program was built without OpenSSL "
                                     "(LENSBOX_SIGNATURES=OFF)");
}

}  // namespace lensbox
