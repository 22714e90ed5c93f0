// Coordinates of photographs and canvases. The ops are composed of torch's, so they run on every device, have
// a derivative, and torch.compile and torch.export look through them. A geometry is six numbers in pixels,
// (scale_x, scale_y, offset_x, offset_y, width, height): canvas point = photograph point * scale + offset.

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <torch/library.h>

#include <vector>

namespace lensbox {
namespace {

using at::Tensor;

Tensor part(const Tensor& geometry, int64_t first) {
  return geometry.slice(-1, first, first + 2);
}

// Return a geometry in a shape that broadcasts with the values: [6], or [B, 1, ..., 1, 6].
Tensor geometry_beside(const char* name, const Tensor& values, const Tensor& geometry, int64_t size) {
  TORCH_CHECK_VALUE(values.dim() > 0 && values.sym_size(-1) == size, name, " must have the shape [..., ",
                    size, "], got ", values.sym_sizes());
  TORCH_CHECK_VALUE((geometry.dim() == 1 || geometry.dim() == 2) && geometry.sym_size(-1) == 6,
                    "geometry must have the shape [6] or [B, 6], got ", geometry.sym_sizes());
  if (geometry.dim() == 1) return geometry;
  TORCH_CHECK_VALUE(values.dim() > 1 && values.sym_size(0) == geometry.sym_size(0), name,
                    " must have the shape [B, ..., ", size, "] for a geometry of ", geometry.sym_sizes(),
                    ", got ", values.sym_sizes());
  std::vector<c10::SymInt> shape(static_cast<size_t>(values.dim()), c10::SymInt(1));
  shape.front() = geometry.sym_size(0);
  shape.back() = 6;
  return geometry.view_symint(shape);
}

Tensor restored(const Tensor& points, const Tensor& geometry) {
  return (points - part(geometry, 2)) / part(geometry, 0);
}

Tensor restore_boxes(const Tensor& boxes, const Tensor& geometry) {
  const Tensor beside = geometry_beside("boxes", boxes, geometry, 4).unsqueeze(-2);
  const Tensor corners = restored(boxes.unflatten(-1, {2, 2}), beside);
  return corners.clamp_min(0.0).minimum(part(beside, 4)).flatten(-2);
}

Tensor restore_points(const Tensor& points, const Tensor& geometry) {
  return restored(points, geometry_beside("points", points, geometry, 2));
}

Tensor geometry_of_windows(const Tensor& geometry, const Tensor& windows) {
  TORCH_CHECK_VALUE(windows.sym_sizes() == geometry.sym_sizes(), "windows must have the shape ",
                    geometry.sym_sizes(), ", one for each image, got ", windows.sym_sizes());
  TORCH_CHECK_TYPE(!windows.is_complex(), "windows must hold real numbers, got ", windows.scalar_type());
  const Tensor shown = windows.to(geometry.options());
  // Divide first: for a whole photograph the quotient is 1, and no bit changes.
  const Tensor scale = part(geometry, 0) * (part(geometry, 4) / (part(shown, 2) - part(shown, 0)));
  const Tensor offset = part(geometry, 2) - part(shown, 0) * scale;
  return at::cat({scale, offset, part(shown, 4)}, 1);
}

}  // namespace
}  // namespace lensbox

TORCH_LIBRARY_IMPL(lensbox, CompositeImplicitAutograd, m) {
  m.impl("restore_boxes", lensbox::restore_boxes);
  m.impl("restore_points", lensbox::restore_points);
  m.impl("geometry_of_windows", lensbox::geometry_of_windows);
}
