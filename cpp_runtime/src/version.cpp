#include <lensbox/version.h>

namespace lensbox {

const char* library_version() {
  return LENSBOX_VERSION;
}

}  // namespace lensbox
