#pragma once

#include <cstdint>

namespace lensbox {

struct Loss {
  double value;
  int64_t slots;  // target slots that count, that is, are not padding (y2 != 0)
};

}  // namespace lensbox
