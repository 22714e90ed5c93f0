// Box arithmetic on blocks: every loop over boxes that the CPU kernels of the GIoU ops share.
#pragma once

#include "box_block.h"

namespace lensbox {

// out[i] = giou(a[i], b[i]) for i in [0, count). T is float or double, here and below.
template <typename T>
void giou_of_blocks(const BoxBlock<T>& a, const BoxBlock<T>& b, T eps, int count, T* out);

// out[i] = giou(a, b[i]).
template <typename T>
void giou_with_block(const Box<T>& a, const BoxBlock<T>& b, T eps, int count, T* out);

// out[i] = factors[i] * d giou(of[i], against[i]) / d of[i].
template <typename T>
void gradients_of_blocks(const BoxBlock<T>& of, const BoxBlock<T>& against, T eps, const T* factors,
                         int count, BoxBlock<T>& out);

// sums[i] += factors[i] * d giou(of, against[i]) / d of.
template <typename T>
void add_gradients_with_block(const Box<T>& of, const BoxBlock<T>& against, T eps, const T* factors,
                              int count, BoxBlock<T>& sums);

}  // namespace lensbox
