// The rules of NMS that CPU and CUDA share, beside iou_exceeds() of box_math.h.
#pragma once

#include "box_math.h"

namespace lensbox {

// Areas of such a box could overflow.
template <typename T>
LENSBOX_HOST_DEVICE bool is_wide(const Box<T>& box) {
  return largest_coordinate(box) > SafeRange<T>::limit;
}

// An image with a wide candidate is shrunk as a whole (IoU does not change).
template <typename T>
LENSBOX_HOST_DEVICE T image_scale(bool wide) {
  return wide ? SafeRange<T>::shrink : T(1);
}

}  // namespace lensbox
