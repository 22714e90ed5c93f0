// x86 intrinsics, for functions that name their instruction set: [[gnu::target(...)]].
#pragma once

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

#define LENSBOX_AVX2 gnu::target("avx2")
#define LENSBOX_AVX512 gnu::target("avx512f,avx512bw,avx512dq,avx512vl")

#endif
