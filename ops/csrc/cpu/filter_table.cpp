#include "filter_table.h"

#include <algorithm>

#include "../triangle_filter.h"
#include "vectors.h"

namespace lensbox {

FilterTable::FilterTable(int32_t input, int32_t output)
    : input_(input), firsts_(output), begins_(output + 1) {
  std::vector<FilterWindow> windows(output);
  for (int32_t i = 0; i < output; ++i) {
    windows[i] = filter_window(i, input, output);
    firsts_[i] = windows[i].first;
    begins_[i + 1] = begins_[i] + windows[i].count;
    longest_ = std::max(longest_, windows[i].count);
  }
  weights_.resize(begins_[output]);
  std::vector<double> heights(longest_);
  with_widest_vectors([=, windows = windows.data(), begins = begins_.data(), heights = heights.data(),
                       weights = weights_.data()] {
    for (int32_t i = 0; i < output; ++i) {
      const FilterWindow window = windows[i];
      for (int32_t j = 0; j < window.count; ++j) {
        heights[j] = filter_height(window, j);
      }
      double area = 0.0;  // as filter_area() adds them up
      for (int32_t j = 0; j < window.count; ++j) {
        area += heights[j];
      }
      for (int32_t j = 0; j < window.count; ++j) {
        weights[begins[i] + j] = fixed_weight(heights[j], area);
      }
    }
  });
}

}  // namespace lensbox
