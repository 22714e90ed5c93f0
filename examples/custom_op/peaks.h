#pragma once

#include <cstdint>

#ifdef __CUDACC__
#define EXAMPLE_HOST_DEVICE __host__ __device__
#else
#define EXAMPLE_HOST_DEVICE
#endif

// Return the value at (y, x) of a map of height x width if it is the largest of its 3 x 3 cells, else 0. If
// neighbours are equal, the first one, row by row, is the peak. CPU and CUDA share this function, so they
// find the same peaks.
EXAMPLE_HOST_DEVICE inline float peak_at(const float* map, int64_t height, int64_t width, int64_t y,
                                         int64_t x) {
  const float value = map[y * width + x];
  for (int64_t row = y > 0 ? y - 1 : 0; row <= y + 1 && row < height; ++row) {
    for (int64_t column = x > 0 ? x - 1 : 0; column <= x + 1 && column < width; ++column) {
      const bool before = row * width + column < y * width + x;
      const float other = map[row * width + column];
      if (other > value || (before && other == value)) return 0;
    }
  }
  return value;
}
