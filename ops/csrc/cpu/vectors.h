// Compile loops for wider vectors than the rest of the library, and choose the version at run time. One
// library then serves every x86-64 machine and uses AVX2 or AVX-512 if the processor has it. On ARM a loop is
// compiled once, for NEON, which every processor has.
#pragma once

#include "../problems.h"

#ifdef __x86_64__

#if defined(__GNUC__) && !defined(__clang__)
// GCC 12 finds its own _mm512_undefined_epi32() uninitialised (bug 105593).
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#include <immintrin.h>
#pragma GCC diagnostic pop
#else
#include <immintrin.h>
#endif

#endif

namespace lensbox {

// Attributes of functions that use these instructions.
#ifdef __x86_64__
#define LENSBOX_AVX2 gnu::target("avx2")
#define LENSBOX_AVX512 gnu::target("avx512f,avx512bw,avx512dq,avx512vl")
#endif

enum class Vectors { kBaseline, kAvx2, kAvx512 };

// Set what with_widest_vectors() uses, before the first kernel is called.
LENSBOX_KERNEL void lensbox_cpu_set_vectors(Vectors vectors);

Vectors widest_vectors();

// All functions that `body` calls are inlined into one function for the named instruction set. No other
// function is compiled for it. If whole files were compiled with -mavx2, the linker could choose their copy
// of an inline function for the whole program, and the program would fail on older machines. Multiplications
// and additions are not fused (-ffp-contract=off) and keep their order: results are the same to the bit. A
// body is taken by value, so that the compiler need not fear a store through a captured pointer to change
// what is captured.
#ifdef __x86_64__
template <typename Body>
[[LENSBOX_AVX2, gnu::flatten, gnu::noinline]] void run_with_avx2(Body body) {
  body();
}

template <typename Body>
[[LENSBOX_AVX512, gnu::flatten, gnu::noinline]] void run_with_avx512(Body body) {
  body();
}
#endif

// Call body(), a loop over arrays, compiled for the widest vectors of this machine. The body captures by
// value everything except blocks.
template <typename Body>
void with_widest_vectors(Body body) {
#ifdef __x86_64__
  switch (widest_vectors()) {
    case Vectors::kAvx512:
      return run_with_avx512(body);
    case Vectors::kAvx2:
      return run_with_avx2(body);
    case Vectors::kBaseline:
      break;
  }
#endif
  body();
}

}  // namespace lensbox
