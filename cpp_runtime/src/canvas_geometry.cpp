#include "canvas_geometry.h"

#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>

namespace lensbox {
namespace {

// [B, 6] as [B, 1, ..., 1, 6], which broadcasts with the values.
at::Tensor beside(const at::Tensor& values, const at::Tensor& geometry) {
  std::vector<int64_t> sizes(values.dim(), 1);
  sizes.front() = geometry.size(0);
  sizes.back() = 6;
  return geometry.view(sizes);
}

at::Tensor part(const at::Tensor& geometry, int64_t first) {
  return geometry.slice(-1, first, first + 2);
}

at::Tensor twice(const at::Tensor& values) {
  return at::cat({values, values}, -1);
}

at::Tensor geometry_of_windows(const at::Tensor& geometry, const at::Tensor& given) {
  const at::Tensor windows = given.to(geometry.options());
  // The quotient first: where a window is the whole photograph it is 1, and nothing changes by a bit.
  const at::Tensor scale =
      part(geometry, 0) * (part(geometry, 4) / (windows.slice(1, 2, 4) - part(windows, 0)));
  const at::Tensor offset = part(geometry, 2) - part(windows, 0) * scale;
  return at::cat({scale, offset, part(windows, 4)}, 1);
}

}  // namespace

std::pair<at::Tensor, at::Tensor> fit_to_canvases(const std::vector<at::Tensor>& images,
                                                  const std::optional<at::Tensor>& windows,
                                                  const Canvas& canvas) {
  using Letterbox = std::tuple<at::Tensor, at::Tensor>(at::TensorList, int64_t, int64_t, int64_t, int64_t);
  const auto letterbox =
      c10::Dispatcher::singleton().findSchemaOrThrow("lensbox::letterbox", "").typed<Letterbox>();
  auto [canvases, geometry] =
      letterbox.call(images, canvas.height, canvas.width, canvas.channels, canvas.fill);
  if (windows) geometry = geometry_of_windows(geometry, *windows);
  return {canvases, geometry};
}

at::Tensor restore_canvas_boxes(const at::Tensor& boxes, const at::Tensor& geometry) {
  const at::Tensor of_boxes = beside(boxes, geometry);
  const at::Tensor restored = (boxes - twice(part(of_boxes, 2))) / twice(part(of_boxes, 0));
  return at::minimum(restored.clamp_min(0.0), twice(part(of_boxes, 4)));
}

at::Tensor restore_canvas_points(const at::Tensor& points, const at::Tensor& geometry) {
  const at::Tensor of_points = beside(points, geometry);
  return (points - part(of_points, 2)) / part(of_points, 0);
}

}  // namespace lensbox
