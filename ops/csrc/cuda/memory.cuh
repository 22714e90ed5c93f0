// Read and write boxes and numbers of any dtype with one thread. Every value read becomes T (float or
// double).
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

#include "../box_math.h"
#include "../problems.h"

namespace lensbox {

// Call body with the Type that `dtype` stands for in device memory. On the host, body picks a template; in a
// kernel, every thread takes the same branch.
#pragma nv_exec_check_disable
template <typename Body>
LENSBOX_HOST_DEVICE void with_storage(DType dtype, const Body& body) {
  with_type_of<__half, __nv_bfloat16>(dtype, body);
}

template <typename Storage>
constexpr bool is_floating = std::is_floating_point_v<Storage> || std::is_same_v<Storage, __half> ||
                             std::is_same_v<Storage, __nv_bfloat16>;

template <typename T, typename Storage>
__device__ __forceinline__ T to_math(Storage value) {
  if constexpr (std::is_same_v<Storage, __half>) {
    return static_cast<T>(__half2float(value));
  } else if constexpr (std::is_same_v<Storage, __nv_bfloat16>) {
    return static_cast<T>(__bfloat162float(value));
  } else {
    return static_cast<T>(value);
  }
}

template <typename Storage, typename T>
__device__ __forceinline__ Storage from_math(T value) {
  if constexpr (std::is_same_v<Storage, __half>) {
    return __float2half_rn(static_cast<float>(value));
  } else if constexpr (std::is_same_v<Storage, __nv_bfloat16>) {
    return __float2bfloat16_rn(static_cast<float>(value));
  } else {
    return static_cast<Storage>(value);
  }
}

// Four adjacent coordinates, read or written as one vector of 4 to 16 bytes (two of 16 for 8-byte types).
template <typename Storage>
struct alignas(4 * sizeof(Storage) < 16 ? 4 * sizeof(Storage) : 16) PackedBox {
  Storage x1, y1, x2, y2;
};

template <typename T, typename Storage>
__device__ __forceinline__ Box<T> to_math(const PackedBox<Storage>& box) {
  return {to_math<T>(box.x1), to_math<T>(box.y1), to_math<T>(box.x2), to_math<T>(box.y2)};
}

// Read a box of any dtype, through any strides. Not inlined, because the function has a branch for each
// dtype.
template <typename T>
__device__ __noinline__ Box<T> load_box(const SlotView& view, int64_t slot) {
  const int64_t offset = view.packed ? 4 * slot : view.offset(slot);
  Box<T> box;
  with_storage(view.dtype, [&](auto tag) {
    using Storage = typename decltype(tag)::type;
    const Storage* at = static_cast<const Storage*>(view.data) + offset;
    if (view.packed) {
      box = to_math<T>(*reinterpret_cast<const PackedBox<Storage>*>(at));
      return;
    }
    const int64_t stride = view.last_stride;
    box = {to_math<T>(at[0]), to_math<T>(at[stride]), to_math<T>(at[2 * stride]), to_math<T>(at[3 * stride])};
  });
  return box;
}

template <typename T>
__device__ __noinline__ T load_number(const SlotView& view, int64_t slot) {
  const int64_t offset = view.packed ? slot : view.offset(slot);
  T number;
  with_storage(view.dtype, [&](auto tag) {
    number = to_math<T>(static_cast<const typename decltype(tag)::type*>(view.data)[offset]);
  });
  return number;
}

template <typename Storage, typename T>
__device__ __forceinline__ PackedBox<Storage> pack_box(const Box<T>& box) {
  return {from_math<Storage>(box.x1), from_math<Storage>(box.y1), from_math<Storage>(box.x2),
          from_math<Storage>(box.y2)};
}

// Write a box, or the gradient of one, to a contiguous view. A value too large for the dtype becomes
// infinite.
template <typename T>
__device__ void store_box(const SlotView& view, int64_t slot, const Box<T>& box) {
  with_storage(view.dtype, [&](auto tag) {
    using Storage = typename decltype(tag)::type;
    if constexpr (is_floating<Storage>) {
      static_cast<PackedBox<Storage>*>(view.data)[slot] = pack_box<Storage>(box);
    }
  });
}

// Write a number to a contiguous view of floating-point numbers.
template <typename T>
__device__ void store_number(const SlotView& view, int64_t slot, T number) {
  with_storage(view.dtype, [&](auto tag) {
    using Storage = typename decltype(tag)::type;
    if constexpr (is_floating<Storage>) {
      static_cast<Storage*>(view.data)[slot] = from_math<Storage>(number);
    }
  });
}

// Whether a pair of dtypes in packed memory has specialised kernels: the pairs common in training, whose
// targets have the dtype of the predictions, or are float32, or hold integer labels.
template <typename Pred, typename Target>
constexpr bool is_packed_pair = is_floating<Pred> && !std::is_same_v<Pred, double> &&
                                (std::is_same_v<Target, Pred> || std::is_same_v<Target, float> ||
                                 std::is_same_v<Target, uint8_t> || std::is_same_v<Target, int64_t>);

// Call body(pred_tag, target_tag) if both views are packed and a kernel exists. Return whether body was
// called.
template <typename Body>
bool with_packed_types(const SlotView& pred, const SlotView& target, const Body& body) {
  if (!pred.packed || !target.packed) return false;
  bool found = false;
  with_storage(pred.dtype, [&](auto pred_tag) {
    with_storage(target.dtype, [&](auto target_tag) {
      using Pred = typename decltype(pred_tag)::type;
      using Target = typename decltype(target_tag)::type;
      if constexpr (is_packed_pair<Pred, Target>) {
        body(pred_tag, target_tag);
        found = true;
      }
    });
  });
  return found;
}

}  // namespace lensbox
