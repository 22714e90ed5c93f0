// How the blocks of a launch find out which of them is the last.
#pragma once

namespace lensbox {

// Called by one thread of each of `blocks` blocks; true in the last call. What a block wrote before, with a
// barrier in between, is then visible to the block that gets true, past its L1 cache (__ldcg). The counter
// wraps to 0, as it was found.
__device__ __forceinline__ bool take_last_ticket(unsigned int* counter, unsigned int blocks) {
  unsigned int taken;
  // An ordered atomic is cheaper than an unordered one between fences.
  asm volatile("atom.acq_rel.gpu.inc.u32 %0, [%1], %2;"
               : "=r"(taken)
               : "l"(counter), "r"(blocks - 1)
               : "memory");
  return taken == blocks - 1;
}

}  // namespace lensbox
