// The pairs of dtypes for which kernels on packed memory exist.
#pragma once

#include "memory.cuh"

namespace lensbox {

// What a pair of dtypes is computed in.
template <typename Pred, typename Target>
using PackedMath =
    std::conditional_t<std::is_same_v<Pred, double> || std::is_same_v<Target, double>, double, float>;

// Calls body(pred_tag, target_tag) where both are packed and such a kernel exists; says whether it did.
template <typename Body>
bool with_packed_types(const SlotView& pred, const SlotView& target, const Body& body) {
  if (!pred.packed || !target.packed) return false;
  bool found = false;
  with_storage(pred.dtype, [&](auto pred_tag) {
    with_storage(target.dtype, [&](auto target_tag) {
      using Pred = typename decltype(pred_tag)::type;
      using Target = typename decltype(target_tag)::type;
      if constexpr (is_floating<Pred> && !std::is_same_v<Target, bool>) {
        body(pred_tag, target_tag);
        found = true;
      }
    });
  });
  return found;
}

}  // namespace lensbox
