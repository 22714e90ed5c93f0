// One image of `letterbox` on the CPU, or some rows of its canvas.
#pragma once

#include <cstdint>

#include "../letterbox_problem.h"
#include "filter_table.h"

namespace lensbox {

// An image with all that its canvas depends on.
struct FittedImage {
  ImageView image;
  Fit fit;
  const FilterTable* across;  // from image.width to fit.width
  const FilterTable* down;    // from image.height to fit.height
};

// Writes rows [begin, end) of the fitted image to canvas `index`, and the padding on their left and right.
void letterbox_rows(const FittedImage& fitted, const Canvases& out, int64_t index, int32_t begin,
                    int32_t end);

// Writes the padding above and below the image.
void pad_above_and_below(const FittedImage& fitted, const Canvases& out, int64_t index);

}  // namespace lensbox
