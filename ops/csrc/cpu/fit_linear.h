#pragma once

#include "../fit_math.h"

namespace lensbox {

// Write the shown part of an image, scaled by OpenCV's INTER_LINEAR, to `colours` planes (1, or 3 for colours
// that are interleaved in memory). out: the first plane's first pixel of the image; plane_step and row_step
// are bytes between planes and rows.
void fit_linear(const ImageView& image, const Fit& fit, const VisibleRange& columns, const VisibleRange& rows,
                int32_t colours, int64_t plane_step, int64_t row_step, uint8_t* out);

}  // namespace lensbox
