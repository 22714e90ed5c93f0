// Box arithmetic shared by the CPU and CUDA kernels: the one place where GIoU and its gradient are written.
//
// Boxes are xyxy. GIoU follows Rezatofighi et al., "Generalized Intersection over Union", CVPR 2019:
//   giou = I / U - (C - U) / C      I: intersection, U: union, C: smallest enclosing box (areas)
// An inverted side (x2 < x1) counts as empty. Denominators are clamped to eps, not offset by it, so that eps
// changes nothing for boxes whose union is larger than eps. NaN inputs give NaN; finite inputs never do.
#pragma once

#include <cstdint>

#ifdef __CUDACC__
#define LENSBOX_HOST_DEVICE __host__ __device__ __forceinline__
#else
#define LENSBOX_HOST_DEVICE [[gnu::always_inline]] inline
#endif

namespace lensbox {

template <typename T>
struct Box {
  T x1, y1, x2, y2;
};

// Written with `<` so that a NaN in `value` passes through.
template <typename T>
LENSBOX_HOST_DEVICE T clamp_min(T value, T low) {
  return value < low ? low : value;
}

template <typename T>
LENSBOX_HOST_DEVICE T smaller(T a, T b) {
  return b < a ? b : a;
}

template <typename T>
LENSBOX_HOST_DEVICE T larger(T a, T b) {
  return a < b ? b : a;
}

template <typename T>
LENSBOX_HOST_DEVICE T magnitude(T value) {
  return value < T(0) ? -value : value;
}

template <typename T>
LENSBOX_HOST_DEVICE T largest_coordinate(const Box<T>& box) {
  return larger(larger(magnitude(box.x1), magnitude(box.y1)), larger(magnitude(box.x2), magnitude(box.y2)));
}

template <typename T>
LENSBOX_HOST_DEVICE Box<T> scaled(const Box<T>& box, T scale) {
  return {box.x1 * scale, box.y1 * scale, box.x2 * scale, box.y2 * scale};
}

// Areas of very large but finite boxes would overflow. GIoU does not change when both boxes are scaled, so
// such a pair is first shrunk by a power of two (exact). Coordinates up to `limit` have areas, and sums of
// three areas, that are finite.
template <typename T>
struct SafeRange;

template <>
struct SafeRange<float> {
  static constexpr float limit = 1152921504606846976.0f;    // 2^60
  static constexpr float shrink = 3.3881317890172014e-21f;  // 2^-68: 2^128 becomes 2^60
};

template <>
struct SafeRange<double> {
  static constexpr double limit = 3.2733906078961419e+150;   // 2^500
  static constexpr double shrink = 1.7766253163909846e-158;  // 2^-524: 2^1024 becomes 2^500
};

template <typename T>
LENSBOX_HOST_DEVICE T safe_scale(const Box<T>& a, const Box<T>& b) {
  return larger(largest_coordinate(a), largest_coordinate(b)) > SafeRange<T>::limit ? SafeRange<T>::shrink
                                                                                    : T(1);
}

// Width and height as differences: negative where boxes are apart or a side is inverted, which counts as 0.
template <typename T>
struct Extent {
  T width, height;

  LENSBOX_HOST_DEVICE T clamped_width() const { return clamp_min(width, T(0)); }
  LENSBOX_HOST_DEVICE T clamped_height() const { return clamp_min(height, T(0)); }
  LENSBOX_HOST_DEVICE T area() const { return clamped_width() * clamped_height(); }
  // d area / d width and d area / d height. The gradient of a clamp passes at the limit, as PyTorch has it.
  LENSBOX_HOST_DEVICE T area_by_width() const { return width >= T(0) ? clamped_height() : T(0); }
  LENSBOX_HOST_DEVICE T area_by_height() const { return height >= T(0) ? clamped_width() : T(0); }
};

template <typename T>
LENSBOX_HOST_DEVICE Extent<T> box_extent(const Box<T>& box) {
  return {box.x2 - box.x1, box.y2 - box.y1};
}

template <typename T>
LENSBOX_HOST_DEVICE Extent<T> intersection_extent(const Box<T>& a, const Box<T>& b) {
  return {smaller(a.x2, b.x2) - larger(a.x1, b.x1), smaller(a.y2, b.y2) - larger(a.y1, b.y1)};
}

template <typename T>
LENSBOX_HOST_DEVICE Extent<T> hull_extent(const Box<T>& a, const Box<T>& b) {
  return {larger(a.x2, b.x2) - smaller(a.x1, b.x1), larger(a.y2, b.y2) - smaller(a.y1, b.y1)};
}

// The suppression rule of NMS, without a division. Areas are passed in because each is used many times.
template <typename T>
LENSBOX_HOST_DEVICE bool iou_exceeds(const Box<T>& a, T area_a, const Box<T>& b, T area_b, T threshold) {
  const T inter = intersection_extent(a, b).area();
  return inter > threshold * (area_a + area_b - inter);
}

// What GIoU and its gradient have in common, for a pair of boxes already in the safe range.
template <typename T>
struct GiouTerms {
  Extent<T> inter, hull;
  T union_area, hull_area;
  T union_clamped, hull_clamped;
  T iou;    // I / U
  T slack;  // (C - U) / C
};

template <typename T>
LENSBOX_HOST_DEVICE GiouTerms<T> giou_terms(const Box<T>& a, const Box<T>& b, T eps) {
  GiouTerms<T> terms;
  terms.inter = intersection_extent(a, b);
  terms.hull = hull_extent(a, b);
  const T inter_area = terms.inter.area();
  terms.union_area = box_extent(a).area() + box_extent(b).area() - inter_area;
  terms.hull_area = terms.hull.area();
  terms.union_clamped = clamp_min(terms.union_area, eps);
  terms.hull_clamped = clamp_min(terms.hull_area, eps);
  terms.iou = inter_area / terms.union_clamped;
  terms.slack = (terms.hull_area - terms.union_area) / terms.hull_clamped;
  return terms;
}

template <typename T>
LENSBOX_HOST_DEVICE T giou(const Box<T>& a, const Box<T>& b, T eps) {
  const T scale = safe_scale(a, b);
  const GiouTerms<T> terms = giou_terms(scaled(a, scale), scaled(b, scale), eps);
  return terms.iou - terms.slack;
}

// One half at a tie, as max() and min() of PyTorch have it.
template <typename T>
LENSBOX_HOST_DEVICE T step(T value) {
  return value > T(0) ? T(1) : (value == T(0) ? T(0.5) : T(0));
}

// Gradient of giou(a, b) with respect to `a`; swap the arguments for `b`.
//
// With U = A + B - I, [.] an indicator (a clamped denominator is a constant), and d for any coordinate of a:
//   d(I/U)     = (dI - iou [U >= eps] dU) / U
//   d((C-U)/C) = (dC - dU - slack [C >= eps] dC) / C
// so giou changes by  by_inter dI + by_area dA + by_hull dC  with the three factors below, and
//   dI/dx1 = -height(I) where a.x1 > b.x1 and the boxes meet    (x1 of a is the left side of I)
//   dA/dx1 = -height(a) where a is not inverted
//   dC/dx1 = -height(C) where a.x1 < b.x1                       (x1 of a is the left side of C)
// and likewise, with the sign turned, for x2; x and y trade places for y1, y2.
template <typename T>
LENSBOX_HOST_DEVICE Box<T> giou_gradient(const Box<T>& box_a, const Box<T>& box_b, T eps) {
  const T scale = safe_scale(box_a, box_b);
  const Box<T> a = scaled(box_a, scale);
  const Box<T> b = scaled(box_b, scale);
  const GiouTerms<T> terms = giou_terms(a, b, eps);

  const T iou_by_union = terms.union_area >= eps ? terms.iou : T(0);
  const T slack_by_hull = terms.hull_area >= eps ? terms.slack : T(0);
  const T by_inter = (T(1) + iou_by_union) / terms.union_clamped - T(1) / terms.hull_clamped;
  const T by_area = T(1) / terms.hull_clamped - iou_by_union / terms.union_clamped;
  const T by_hull = (slack_by_hull - T(1)) / terms.hull_clamped;

  const Extent<T> own = box_extent(a);
  const T inter_by_x = by_inter * terms.inter.area_by_width();
  const T inter_by_y = by_inter * terms.inter.area_by_height();
  const T area_by_x = by_area * own.area_by_width();
  const T area_by_y = by_area * own.area_by_height();
  const T hull_by_x = by_hull * terms.hull.area_by_width();
  const T hull_by_y = by_hull * terms.hull.area_by_height();

  // Scaling the pair by `scale` scales the gradient in the original coordinates by it too (chain rule).
  return {
      -scale * (inter_by_x * step(a.x1 - b.x1) + area_by_x + hull_by_x * step(b.x1 - a.x1)),
      -scale * (inter_by_y * step(a.y1 - b.y1) + area_by_y + hull_by_y * step(b.y1 - a.y1)),
      scale * (inter_by_x * step(b.x2 - a.x2) + area_by_x + hull_by_x * step(a.x2 - b.x2)),
      scale * (inter_by_y * step(b.y2 - a.y2) + area_by_y + hull_by_y * step(a.y2 - b.y2)),
  };
}

// Gradients are stored in the dtype of the boxes, where a finite value could round to infinity (float16 ends
// at 65504): saturate instead. `limit` is the dtype's largest finite value.
template <typename T>
LENSBOX_HOST_DEVICE T saturate(T value, T limit) {
  return value > limit ? limit : (value < -limit ? -limit : value);
}

}  // namespace lensbox
