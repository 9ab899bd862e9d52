// Vector registers of this processor, for whichever the C++ of this folder is compiled.

#pragma once

#ifndef LANES  // floats of a vector register
#if defined(__AVX512F__)
#define LANES 16
#elif defined(__AVX__)
#define LANES 8
#else
#define LANES 4
#endif
#endif

typedef float Lanes __attribute__((vector_size(4 * LANES), aligned(4), may_alias));

inline Lanes load(const float* at) { return *reinterpret_cast<const Lanes*>(at); }

inline void store(float* at, Lanes lanes) { *reinterpret_cast<Lanes*>(at) = lanes; }
