// Boxes in blocks, as structures of arrays. Only this file reads and writes dtypes and strides for the CPU
// kernels, and the compiler vectorises box arithmetic on such blocks.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#include "../box_math.h"
#include "../problems.h"
#include "vectors.h"

namespace lensbox {

constexpr int kBlock = 64;

template <typename T>
struct BoxBlock {
  alignas(64) T x1[kBlock];
  alignas(64) T y1[kBlock];
  alignas(64) T x2[kBlock];
  alignas(64) T y2[kBlock];

  Box<T> operator[](int i) const { return {x1[i], y1[i], x2[i], y2[i]}; }

  void set(int i, const Box<T>& box) {
    x1[i] = box.x1;
    y1[i] = box.y1;
    x2[i] = box.x2;
    y2[i] = box.y2;
  }
};

// float16 and bfloat16 in memory. Conversions round to nearest, ties to even, and overflow to infinity, as
// IEEE 754 asks.
struct Half {
  uint16_t bits = 0;

  Half() = default;
  explicit Half(float value) {
    const uint32_t word = std::bit_cast<uint32_t>(value), magnitude = word << 1;
    // Add a power of two so large that the addition rounds to the bits that a half keeps.
    uint32_t exponent = magnitude & 0xff000000u;
    if (exponent < 0x71000000u) exponent = 0x71000000u;             // subnormal halves share one
    const float scaled = std::fabs(value) * 0x1p+112f * 0x1p-110f;  // overflows to infinity where a half does
    const auto rounded =
        std::bit_cast<uint32_t>(std::bit_cast<float>((exponent >> 1) + 0x07800000u) + scaled);
    const uint32_t finite = ((rounded >> 13) & 0x7c00u) + (rounded & 0x0fffu);
    bits = static_cast<uint16_t>(((word >> 16) & 0x8000u) | (magnitude > 0xff000000u ? 0x7e00u : finite));
  }
  operator float() const {
    const uint32_t word = uint32_t{bits} << 16, magnitude = word << 1;
    const float normal = std::bit_cast<float>((magnitude >> 4) + (0xe0u << 23)) * 0x1p-112f;
    const float subnormal = std::bit_cast<float>((magnitude >> 17) | (126u << 23)) - 0.5f;
    const uint32_t result = std::bit_cast<uint32_t>(magnitude < (1u << 27) ? subnormal : normal);
    return std::bit_cast<float>((word & 0x80000000u) | result);
  }
};

struct BFloat16 {
  uint16_t bits = 0;

  BFloat16() = default;
  explicit BFloat16(float value) {
    const auto word = std::bit_cast<uint32_t>(value);
    bits = static_cast<uint16_t>(value != value ? 0x7fc0u : (word + 0x7fffu + ((word >> 16) & 1)) >> 16);
  }
  operator float() const { return std::bit_cast<float>(uint32_t{bits} << 16); }
};

// Call body with the Type that `dtype` stands for.
template <typename Body>
void with_storage(DType dtype, const Body& body) {
  with_type_of<Half, BFloat16>(dtype, body);
}

// Return whether slots[0..count), which always ascend, are consecutive. Most slots are, and the compiler
// vectorises the conversion of consecutive slots in packed memory.
inline bool is_run(const int64_t* slots, int count) {
  return count > 0 && slots[count - 1] - slots[0] == count - 1;
}

template <typename T, typename Storage>
LENSBOX_HOST_DEVICE Box<T> read_box(const Storage* box, int64_t stride) {
  return {static_cast<T>(box[0]), static_cast<T>(box[stride]), static_cast<T>(box[2 * stride]),
          static_cast<T>(box[3 * stride])};
}

template <typename T>
Box<T> load_box(const SlotView& view, int64_t slot) {
  Box<T> box{};
  with_storage(view.dtype, [&](auto tag) {
    const auto* data = static_cast<const typename decltype(tag)::type*>(view.data);
    box = read_box<T>(data + view.offset(slot), view.last_stride);
  });
  return box;
}

// Read slots[0..count) of `view` into `block`.
template <typename T>
void load_boxes(const SlotView& view, const int64_t* slots, int count, BoxBlock<T>& block) {
  with_storage(view.dtype, [&](auto tag) {
    const auto* data = static_cast<const typename decltype(tag)::type*>(view.data);
    if (view.packed && is_run(slots, count)) {
      const auto* run = data + 4 * slots[0];
      for (int i = 0; i < count; ++i) {
        block.set(i, read_box<T>(run + 4 * i, 1));
      }
    } else {
      for (int i = 0; i < count; ++i) {
        block.set(i, read_box<T>(data + view.offset(slots[i]), view.last_stride));
      }
    }
  });
}

// Write the block as gradients of slots[0..count). A gradient too large for the dtype becomes infinite, by
// which a loss scaler (torch.amp.GradScaler) notices that its scale is too large.
template <typename T>
void store_gradients(const SlotView& view, const int64_t* slots, int count, const BoxBlock<T>& block) {
  with_storage(view.dtype, [&](auto tag) {
    using Storage = typename decltype(tag)::type;
    if constexpr (std::numeric_limits<Storage>::is_integer) {
      return;  // integers have no gradient; requesting one is an error
    } else {
      auto* data = static_cast<Storage*>(view.data);
      const auto write = [&](Storage* box, int i) {
        box[0] = static_cast<Storage>(block.x1[i]);
        box[1] = static_cast<Storage>(block.y1[i]);
        box[2] = static_cast<Storage>(block.x2[i]);
        box[3] = static_cast<Storage>(block.y2[i]);
      };
      if (is_run(slots, count)) {
        Storage* run = data + 4 * slots[0];
        for (int i = 0; i < count; ++i) {
          write(run + 4 * i, i);
        }
      } else {
        for (int i = 0; i < count; ++i) {
          write(data + 4 * slots[i], i);
        }
      }
    }
  });
}

// Zero `count` boxes of a contiguous view, from slot `first` on.
inline void zero_boxes(const SlotView& view, int64_t first, int64_t count) {
  if (count == 0) return;  // an empty tensor has no memory, and memset takes no null pointer
  with_storage(view.dtype, [&](auto tag) {
    auto* data = static_cast<typename decltype(tag)::type*>(view.data) + 4 * first;
    std::memset(static_cast<void*>(data), 0, sizeof(*data) * 4 * static_cast<size_t>(count));
  });
}

// Read one of the kSize numbers of each of slots[0..count): `position` 0 to 3 of a box is x1, y1, x2 or y2.
template <int kSize, typename T>
void load_one(const SlotView& view, int position, const int64_t* slots, int count, T* numbers) {
  with_storage(view.dtype, [&](auto tag) {
    const auto* data =
        static_cast<const typename decltype(tag)::type*>(view.data) + position * view.last_stride;
    if (view.packed && is_run(slots, count)) {
      const auto* run = data + kSize * slots[0];
      for (int i = 0; i < count; ++i) {
        numbers[i] = static_cast<T>(run[kSize * i]);
      }
    } else {
      for (int i = 0; i < count; ++i) {
        numbers[i] = static_cast<T>(data[view.offset(slots[i])]);
      }
    }
  });
}

// Read slots[0..count) of a view of numbers.
template <typename T>
void load_numbers(const SlotView& view, const int64_t* slots, int count, T* numbers) {
  load_one<1>(view, 0, slots, count, numbers);
}

// Write numbers[0..count) to the consecutive slots[0..count) of a contiguous view.
template <typename T>
void store_numbers(const SlotView& view, const int64_t* slots, int count, const T* numbers) {
  with_storage(view.dtype, [&](auto tag) {
    using Storage = typename decltype(tag)::type;
    if constexpr (std::numeric_limits<Storage>::is_integer) {
      return;  // outputs of this function are never integers
    } else {
      Storage* run = static_cast<Storage*>(view.data) + slots[0];
      for (int i = 0; i < count; ++i) {
        run[i] = static_cast<Storage>(numbers[i]);
      }
    }
  });
}

// Copy `count` numbers of one slot to a contiguous view of the same dtype, or write zeros if `filled` is
// false.
inline void copy_slot(const SlotView& from, int64_t from_slot, const SlotView& to, int64_t to_slot, int count,
                      bool filled) {
  with_storage(from.dtype, [&](auto tag) {
    using Storage = typename decltype(tag)::type;
    auto* out = static_cast<Storage*>(to.data) + to_slot * count;
    for (int i = 0; i < count; ++i) {
      out[i] = filled ? static_cast<const Storage*>(from.data)[from.offset(from_slot) + i * from.last_stride]
                      : static_cast<Storage>(0);
    }
  });
}

// Call body(slots, count) for blocks of consecutive slots that cover [begin, end).
template <typename Body>
void for_each_block(int64_t begin, int64_t end, const Body& body) {
  int64_t slots[kBlock];
  for (int64_t start = begin; start < end; start += kBlock) {
    const int count = static_cast<int>(end - start < kBlock ? end - start : kBlock);
    for (int i = 0; i < count; ++i) {
      slots[i] = start + i;
    }
    body(slots, count);
  }
}

// Set out[i] = giou(a[i], b[i]) for i in [0, count). T is float or double, here and below.
template <typename T>
void giou_of_blocks(const BoxBlock<T>& a, const BoxBlock<T>& b, T eps, int count, T* out) {
  with_widest_vectors([=, &a, &b] {
    for (int i = 0; i < count; ++i) {
      out[i] = giou(a[i], b[i], eps);
    }
  });
}

// Set out[i] = factors[i] * d giou(of[i], against[i]) / d of[i].
template <typename T>
void gradients_of_blocks(const BoxBlock<T>& of, const BoxBlock<T>& against, T eps, const T* factors,
                         int count, BoxBlock<T>& out) {
  with_widest_vectors([=, &of, &against, &out] {
    for (int i = 0; i < count; ++i) {
      out.set(i, scaled(giou_gradient(of[i], against[i], eps), factors[i]));
    }
  });
}

}  // namespace lensbox
