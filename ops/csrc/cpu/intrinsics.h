// x86 intrinsics, for functions marked LENSBOX_AVX2 or LENSBOX_AVX512.
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

#endif
