#pragma once

namespace lensbox {

// The mask of a warp's intrinsics in which all 32 lanes take part.
constexpr unsigned int kFullWarp = 0xffffffffu;

}  // namespace lensbox
