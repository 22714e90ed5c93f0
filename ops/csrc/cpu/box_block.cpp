#include "box_block.h"

#include "vectors.h"

namespace lensbox {

template <typename T>
void giou_of_blocks(const BoxBlock<T>& a, const BoxBlock<T>& b, T eps, int count, T* out) {
  with_widest_vectors([=, &a, &b] {
    for (int i = 0; i < count; ++i) {
      out[i] = giou(a[i], b[i], eps);
    }
  });
}

template <typename T>
void giou_with_block(const Box<T>& a, const BoxBlock<T>& b, T eps, int count, T* out) {
  with_widest_vectors([=, &b] {
    for (int i = 0; i < count; ++i) {
      out[i] = giou(a, b[i], eps);
    }
  });
}

template <typename T>
void gradients_of_blocks(const BoxBlock<T>& of, const BoxBlock<T>& against, T eps, const T* factors,
                         int count, BoxBlock<T>& out) {
  with_widest_vectors([=, &of, &against, &out] {
    for (int i = 0; i < count; ++i) {
      out.set(i, scaled(giou_gradient(of[i], against[i], eps), factors[i]));
    }
  });
}

template <typename T>
void add_gradients_with_block(const Box<T>& of, const BoxBlock<T>& against, T eps, const T* factors,
                              int count, BoxBlock<T>& sums) {
  with_widest_vectors([=, &against, &sums] {
    for (int i = 0; i < count; ++i) {
      const Box<T> sum = sums[i];
      const Box<T> gradient = scaled(giou_gradient(of, against[i], eps), factors[i]);
      sums.set(i, {sum.x1 + gradient.x1, sum.y1 + gradient.y1, sum.x2 + gradient.x2, sum.y2 + gradient.y2});
    }
  });
}

#define LENSBOX_INSTANTIATE(T)                                                                               \
  template void giou_of_blocks(const BoxBlock<T>&, const BoxBlock<T>&, T, int, T*);                          \
  template void giou_with_block(const Box<T>&, const BoxBlock<T>&, T, int, T*);                              \
  template void gradients_of_blocks(const BoxBlock<T>&, const BoxBlock<T>&, T, const T*, int, BoxBlock<T>&); \
  template void add_gradients_with_block(const Box<T>&, const BoxBlock<T>&, T, const T*, int, BoxBlock<T>&);
LENSBOX_INSTANTIATE(float)
LENSBOX_INSTANTIATE(double)

}  // namespace lensbox
