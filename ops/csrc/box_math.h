// Box arithmetic of the CPU and CUDA kernels: the only implementation of GIoU and its gradient.
//
// Boxes are xyxy. GIoU follows Rezatofighi et al., "Generalized Intersection over Union", CVPR 2019:
//   giou = I / U - (C - U) / C      I: intersection, U: union, C: smallest enclosing box (areas)
// An inverted side (x2 < x1) counts as empty. Denominators are clamped to eps, not offset by it, so that eps
// changes nothing for boxes whose union is larger than eps. NaN inputs give NaN; finite inputs never do.
#pragma once

#include <cmath>
#include <cstdint>
#include <type_traits>

#include "host_device.h"

namespace lensbox {
namespace kernels {

template <typename T>
struct Box {
  T x1, y1, x2, y2;
};

// Return the smaller or the larger of two numbers. A NaN in the first argument passes through, and on newer
// GPUs a NaN in the second. That is enough, since areas carry every NaN into the results. PTX has one
// instruction for this; C++ would need a comparison and a choice.
template <typename T>
LENSBOX_HOST_DEVICE T smaller(T a, T b) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  if constexpr (std::is_same_v<T, float>) {
    asm("min.NaN.f32 %0, %0, %1;" : "+f"(a) : "f"(b));
    return a;
  }
#endif
  return b < a ? b : a;
}

template <typename T>
LENSBOX_HOST_DEVICE T larger(T a, T b) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  if constexpr (std::is_same_v<T, float>) {
    asm("max.NaN.f32 %0, %0, %1;" : "+f"(a) : "f"(b));
    return a;
  }
#endif
  return a < b ? b : a;
}

template <typename T>
LENSBOX_HOST_DEVICE Box<T> scaled(const Box<T>& box, T x_scale, T y_scale) {
  return {box.x1 * x_scale, box.y1 * y_scale, box.x2 * x_scale, box.y2 * y_scale};
}

template <typename T>
LENSBOX_HOST_DEVICE Box<T> scaled(const Box<T>& box, T scale) {
  return scaled(box, scale, scale);
}

// Return n / d for d from 2^-126 to 2^124, the range of clamped areas and their sums, and for n <= d or
// n = 1. On CUDA these are the steps of an exact division (Newton's, after Markstein 1990) without the
// compiler's test for operands out of that range. The test is a branch, so the divisions of several pairs
// could not be interleaved. The compiler corrects the quotient twice; once is enough. One correction could
// fail only if n / d is within 2^-22 of its last bit of the middle between two floats. It fails for no such
// pair of mantissas, whichever neighbour of 1 / d the approximation gives (tests/ops/quotient_check.cpp
// checks all pairs). The last bit may be wrong if n is below 2^-102.
template <typename T>
LENSBOX_HOST_DEVICE T quotient(T n, T d) {
#ifdef __CUDA_ARCH__
  if constexpr (std::is_same_v<T, float>) {
    float reciprocal;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(reciprocal) : "f"(d));
    reciprocal = __fmaf_rn(reciprocal, __fmaf_rn(-d, reciprocal, 1.0f), reciprocal);
    const float rough = n * reciprocal;
    return __fmaf_rn(__fmaf_rn(-d, rough, n), reciprocal, rough);
  }
#endif
  return n / d;
}

// Width and height as differences: negative where boxes are apart or a side is inverted, which counts as 0.
template <typename T>
struct Extent {
  T width, height;

  LENSBOX_HOST_DEVICE T clamped_width() const { return larger(width, T(0)); }
  LENSBOX_HOST_DEVICE T clamped_height() const { return larger(height, T(0)); }
  LENSBOX_HOST_DEVICE T area() const { return clamped_width() * clamped_height(); }
  // d area / d width and d area / d height. The gradient of a clamp at its limit is 1 (in PyTorch up to 2.13
  // too; from 2.14 on, 0).
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

// Areas of very large but finite boxes would overflow. IoU and GIoU stay the same if all x are multiplied by
// one number, all y by another, and eps by both. So if a pair is longer than `limit` along an axis, the axis
// is shrunk by a power of two (exact), for this pair alone.
//
//   limit    areas of sides up to here, and sums of three, are finite
//   shrink   brings the longest finite side to twice the limit, and no side above the limit near underflow
//   sliver   the smallest denominator, as a share of the longest side. It keeps the gradients of a shrunk
//            pair finite if eps is shrunk to nothing. Up to a quarter of the limit, eps (at least 1e-18) is
//            larger; beyond, a box thinner than this counts as empty.
template <typename T>
struct SafeRange;

template <>
struct SafeRange<float> {
  static constexpr float limit = 0x1p60f;
  static constexpr float shrink = 0x1p-68f;  // 2^129 becomes 2^61
  static constexpr float sliver = 0x1p-118f;
};

template <>
struct SafeRange<double> {
  static constexpr double limit = 0x1p500;
  static constexpr double shrink = 0x1p-524;  // 2^1025 becomes 2^501
  static constexpr double sliver = 0x1p-558;
};

// Return the factor of an axis along which a pair is `length` long. The length may have overflowed.
template <typename T>
LENSBOX_HOST_DEVICE T safe_scale(T length) {
  return length > SafeRange<T>::limit ? SafeRange<T>::shrink : T(1);
}

// Return whether a coordinate is so large that its pair may need scaling, or a denominator larger than eps.
template <typename T>
LENSBOX_HOST_DEVICE bool is_far(const Box<T>& box) {
  const T limit = SafeRange<T>::limit / 8;
  // Without a branch: `|` and not `||`.
  return (std::fabs(box.x1) > limit) | (std::fabs(box.y1) > limit) | (std::fabs(box.x2) > limit) |
         (std::fabs(box.y2) > limit);
}

// A pair of finite boxes, the scales that brought it into the safe range, and its smallest denominator there.
template <typename T>
struct SafePair {
  Box<T> a, b;
  T x_scale, y_scale, eps;
};

template <typename T>
LENSBOX_HOST_DEVICE SafePair<T> to_safe_range(const Box<T>& a, const Box<T>& b, T eps) {
  const Extent<T> reach = hull_extent(a, b);
  const T x_scale = safe_scale(reach.width), y_scale = safe_scale(reach.height);
  SafePair<T> pair = {scaled(a, x_scale, y_scale), scaled(b, x_scale, y_scale), x_scale, y_scale, T(0)};
  const Extent<T> hull = hull_extent(pair.a, pair.b);
  pair.eps = larger(eps * (x_scale * y_scale), larger(hull.width, hull.height) * SafeRange<T>::sliver);
  return pair;
}

// Return the area of a box for the two functions below. It is infinite for a huge box, one with a side longer
// than the limit.
template <typename T>
LENSBOX_HOST_DEVICE T nms_area(const Box<T>& box) {
  const Extent<T> size = box_extent(box);
  const bool is_huge = (size.width > SafeRange<T>::limit) | (size.height > SafeRange<T>::limit);
  return is_huge ? T(INFINITY) : size.area();
}

// Return whether the IoU exceeds the threshold, without a division. Areas are arguments because each is used
// many times. If an area is infinite, the result is false, and huge_iou_exceeds() decides. One clamp is
// enough: with one negative factor `inter` is negative, too, and exceeds nothing.
template <typename T>
LENSBOX_HOST_DEVICE bool iou_exceeds(const Box<T>& a, T area_a, const Box<T>& b, T area_b, T threshold) {
  const Extent<T> shared = intersection_extent(a, b);
  const T inter = shared.clamped_width() * shared.height;
  return inter > threshold * (area_a + area_b - inter);
}

// Return whether the IoU of a pair with a huge box exceeds the threshold.
template <typename T>
LENSBOX_HOST_DEVICE bool huge_iou_exceeds(const Box<T>& a, const Box<T>& b, T threshold) {
  if constexpr (std::is_same_v<T, float>) {
    // In double, areas of float boxes neither overflow nor underflow.
    return huge_iou_exceeds<double>({a.x1, a.y1, a.x2, a.y2}, {b.x1, b.y1, b.x2, b.y2}, threshold);
  } else {
    const Extent<T> size_a = box_extent(a), size_b = box_extent(b);
    const T x_scale = safe_scale(larger(size_a.width, size_b.width));
    const T y_scale = safe_scale(larger(size_a.height, size_b.height));
    const Box<T> near_a = scaled(a, x_scale, y_scale), near_b = scaled(b, x_scale, y_scale);
    return iou_exceeds(near_a, box_extent(near_a).area(), near_b, box_extent(near_b).area(), threshold);
  }
}

// The intermediate values of GIoU and its gradient, for a pair of boxes in the safe range.
template <typename T>
struct GiouTerms {
  Extent<T> inter, hull;
  T inter_area, union_area, hull_area;
  T union_clamped, hull_clamped;
};

template <typename T>
LENSBOX_HOST_DEVICE GiouTerms<T> giou_terms(const Box<T>& a, T area_a, const Box<T>& b, T area_b, T eps) {
  GiouTerms<T> terms;
  terms.inter = intersection_extent(a, b);
  terms.hull = hull_extent(a, b);
  terms.inter_area = terms.inter.area();
  terms.union_area = area_a + area_b - terms.inter_area;
  terms.hull_area = terms.hull.area();
  terms.union_clamped = larger(terms.union_area, eps);
  terms.hull_clamped = larger(terms.hull_area, eps);
  return terms;
}

// Compute the GIoU of a pair in the safe range, with its eps there. Areas are arguments because each may be
// used many times.
template <typename T>
LENSBOX_HOST_DEVICE T giou_in_range(const Box<T>& a, T area_a, const Box<T>& b, T area_b, T eps) {
  const GiouTerms<T> terms = giou_terms(a, area_a, b, area_b, eps);
  // Divisions, not products with reciprocals: the IoU of equal boxes is exactly 1.
  return quotient(terms.inter_area, terms.union_clamped) -
         quotient(terms.hull_area - terms.union_area, terms.hull_clamped);
}

template <typename T>
LENSBOX_HOST_DEVICE T giou(const Box<T>& a, const Box<T>& b, T eps) {
  const SafePair<T> pair = to_safe_range(a, b, eps);
  return giou_in_range(pair.a, box_extent(pair.a).area(), pair.b, box_extent(pair.b).area(), pair.eps);
}

// Return 1 if value > other, 0 if value < other, and one half at a tie, like the gradients of PyTorch's max()
// and min().
template <typename T>
LENSBOX_HOST_DEVICE T step(T value, T other) {
  return value > other ? T(1) : (value == other ? T(0.5) : T(0));
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
LENSBOX_HOST_DEVICE Box<T> giou_gradient(const Box<T>& box_a, const Box<T>& box_b, T box_eps) {
  const SafePair<T> pair = to_safe_range(box_a, box_b, box_eps);
  const Box<T>&a = pair.a, &b = pair.b;
  const T eps = pair.eps;
  const Extent<T> own = box_extent(a);
  const GiouTerms<T> terms = giou_terms(a, own.area(), b, box_extent(b).area(), eps);

  const T per_union = quotient(T(1), terms.union_clamped);
  const T per_hull = quotient(T(1), terms.hull_clamped);
  const T iou = terms.union_area >= eps ? terms.inter_area * per_union : T(0);
  const T slack = terms.hull_area >= eps ? (terms.hull_area - terms.union_area) * per_hull : T(0);
  const T by_inter = (T(1) + iou) * per_union - per_hull;
  const T by_area = per_hull - iou * per_union;
  const T by_hull = (slack - T(1)) * per_hull;

  const T inter_by_x = by_inter * terms.inter.area_by_width();
  const T inter_by_y = by_inter * terms.inter.area_by_height();
  const T area_by_x = by_area * own.area_by_width();
  const T area_by_y = by_area * own.area_by_height();
  const T hull_by_x = by_hull * terms.hull.area_by_width();
  const T hull_by_y = by_hull * terms.hull.area_by_height();

  // A side of `a` bounds either I or C, never both, so one step() serves both.
  const T x1 = step(a.x1, b.x1), y1 = step(a.y1, b.y1), x2 = step(b.x2, a.x2), y2 = step(b.y2, a.y2);
  // The factor of a coordinate scales the gradient in the original coordinate, too (chain rule).
  return {
      -pair.x_scale * (inter_by_x * x1 + area_by_x + hull_by_x * (T(1) - x1)),
      -pair.y_scale * (inter_by_y * y1 + area_by_y + hull_by_y * (T(1) - y1)),
      pair.x_scale * (inter_by_x * x2 + area_by_x + hull_by_x * (T(1) - x2)),
      pair.y_scale * (inter_by_y * y2 + area_by_y + hull_by_y * (T(1) - y2)),
  };
}

// The factor of a pair's gradient in a mean: upstream * weight / D, with D the sum of the weights, at
// least 1. Sums of float weights exceed float's range, so D is double, and beyond 2^64 both D and the weight
// are shrunk by a power of two, which is exact.
template <typename T>
struct LossScale {
  T shrink, per_weight;

  LENSBOX_HOST_DEVICE LossScale(T upstream, double divisor)
      : shrink(divisor > 0x1p64 ? T(0x1p-64) : T(1)),
        per_weight(upstream / static_cast<T>(divisor * static_cast<double>(shrink))) {}

  LENSBOX_HOST_DEVICE T of(T weight) const { return per_weight * (weight * shrink); }
};

}  // namespace kernels
}  // namespace lensbox
