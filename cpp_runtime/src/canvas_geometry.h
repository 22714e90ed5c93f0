#pragma once

#include <ATen/core/Tensor.h>
#include <lensbox/reading.h>

#include <optional>
#include <utility>
#include <vector>

namespace lensbox {

// Between photographs and canvases, for artifacts that hold detect alone: what ops/canvas.py is in Python, to
// the bit. A geometry is (scale_x, scale_y, offset_x, offset_y, width, height) in pixels: a point of the
// canvas is that of the photograph * scale + offset.

// Canvases, uint8 [B, c, h, w], and geometry, float32 [B, 6], by the op lensbox::letterbox, which must be
// registered.
// windows: float32 [B, 6], which part of a photograph each image shows; none where each is a whole one.
std::pair<at::Tensor, at::Tensor> fit_to_canvases(const std::vector<at::Tensor>& images,
                                                  const std::optional<at::Tensor>& windows,
                                                  const Canvas& canvas);

// boxes [B, K, 4] of canvases in pixels of the photographs, clipped to them; geometry [B, 6].
at::Tensor restore_canvas_boxes(const at::Tensor& boxes, const at::Tensor& geometry);

// points [B, K, ..., 2] likewise, not clipped.
at::Tensor restore_canvas_points(const at::Tensor& points, const at::Tensor& geometry);

}  // namespace lensbox
