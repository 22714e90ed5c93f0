#include "backends/canvases.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <stdexcept>
#include <string>
#include <thread>

#include "cpu/launchers.h"  // of the op library
#include "cpu/parallel.h"
#include "cpu/vectors.h"
#include "fit_words.h"
#include "images/decoders.h"

namespace lensbox {
namespace {

Vectors widest() {
#ifdef __x86_64__
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")) {
    return Vectors::kAvx512;
  }
  if (__builtin_cpu_supports("avx2")) return Vectors::kAvx2;
#endif
  return Vectors::kBaseline;
}

thread_local int fit_threads = 1;

// The loop of the kernels: each thread takes the next item until none is left.
void run_in_threads(int64_t count, void (*body)(int64_t item, const void* context), const void* context) {
  std::atomic<int64_t> next = 0;
  std::atomic<bool> has_failed = false;
  std::exception_ptr error;
  const auto take = [&] {
    try {
      for (int64_t item; (item = next++) < count;) {
        body(item, context);
      }
    } catch (...) {
      next = count;
      if (!has_failed.exchange(true)) error = std::current_exception();
    }
  };
  {
    std::vector<std::jthread> helpers;
    for (int64_t i = 1; i < std::min<int64_t>(count, fit_threads); ++i) {
      helpers.emplace_back(take);
    }
    take();
  }
  if (error) std::rethrow_exception(error);
}

[[maybe_unused]] const bool is_set =
    (lensbox_cpu_set_vectors(widest()), lensbox_cpu_set_parallel_loop(run_in_threads), true);

kernels::ImageView view_of(const Pixels& pixels) {
  return {pixels.data,
          /*channel_stride=*/1,
          /*row_stride=*/pixels.stride,
          /*column_stride=*/pixels.channels,
          static_cast<int32_t>(pixels.channels),
          static_cast<int32_t>(pixels.height),
          static_cast<int32_t>(pixels.width)};
}

// As the op geometry_of_windows. Divide first: for a whole photograph the quotient is 1, and no bit changes.
Geometry geometry_of_window(const Geometry& fitted, const DecodedPhoto& photo) {
  const auto [x1, y1, x2, y2] = photo.window;
  Geometry geometry{};
  geometry.scale_x = fitted.scale_x * (fitted.width / (x2 - x1));
  geometry.scale_y = fitted.scale_y * (fitted.height / (y2 - y1));
  geometry.offset_x = fitted.offset_x - x1 * geometry.scale_x;
  geometry.offset_y = fitted.offset_y - y1 * geometry.scale_y;
  geometry.width = static_cast<float>(photo.width);
  geometry.height = static_cast<float>(photo.height);
  return geometry;
}

// NaN stays.
float kept_within(float value, float most) {
  value = value < 0 ? 0 : value;
  return value > most ? most : value;
}

}  // namespace

void Geometry::restore_point(float* xy) const {
  xy[0] = (xy[0] - offset_x) / scale_x;
  xy[1] = (xy[1] - offset_y) / scale_y;
}

void Geometry::restore_box(float* xyxy) const {
  for (float* point : {xyxy, xyxy + 2}) {
    restore_point(point);
    point[0] = kept_within(point[0], width);
    point[1] = kept_within(point[1], height);
  }
}

FittedPhotos fit_photos(const std::vector<const DecodedPhoto*>& photos, const Canvas& canvas, int threads) {
  FittedPhotos fitted{std::vector<uint8_t>(photos.size() * canvas.channels * canvas.height * canvas.width),
                      std::vector<Geometry>(photos.size())};
  static_assert(sizeof(Geometry) == 6 * sizeof(float));
  const Canvases out{.pixels = fitted.canvases.data(),
                     .geometry = &fitted.geometry.data()->scale_x,
                     .channels = static_cast<int32_t>(canvas.channels),
                     .height = static_cast<int32_t>(canvas.height),
                     .width = static_cast<int32_t>(canvas.width),
                     .fill = static_cast<uint8_t>(canvas.fill),
                     .is_bgr = canvas.channels == 3 && canvas.order == "bgr",
                     .mode = fit_mode_of(canvas),
                     // lensbox.json has no other words
                     .filter = std::ranges::find(kFilters, canvas.filter, &Word<Filter>::word)->value};
  std::vector<kernels::ImageView> views;
  for (const DecodedPhoto* photo : photos) {
    views.push_back(view_of(photo->pixels));
    if (const std::string fault = fit_fault(views.back(), out); !fault.empty()) {
      throw std::invalid_argument(fault);
    }
  }
  fit_threads = threads;
  lensbox_cpu_fit(views.data(), static_cast<int64_t>(views.size()), out);
  for (size_t i = 0; i < photos.size(); ++i) {
    fitted.geometry[i] = geometry_of_window(fitted.geometry[i], *photos[i]);
  }
  return fitted;
}

}  // namespace lensbox
