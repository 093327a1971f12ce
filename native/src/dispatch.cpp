#include "dispatch.hpp"

#include <atomic>
#include <cfloat>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <initializer_list>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace tallystick {
namespace {

constexpr const char* kNames[] = {"scalar", "avx2", "avx512", "neon"};

Isa initial_isa() {
  Isa isa;
  const char* forced = std::getenv("TALLYSTICK_ISA");
  // An unknown or unsupported name is refused with a sentence by the Python side, which sees the
  // same variable; here the safe choice is the portable path.
  if (forced && *forced) return isa_from_name(forced, &isa) && isa_supported(isa) ? isa : Isa::scalar;
  return best_isa();
}

std::atomic<Isa>& current() {
  static std::atomic<Isa> isa{initial_isa()};
  return isa;
}

}  // namespace

const char* isa_name(Isa isa) { return kNames[static_cast<int>(isa)]; }

bool isa_from_name(const char* name, Isa* out) {
  for (int i = 0; i < 4; ++i) {
    if (std::strcmp(name, kNames[i]) == 0) {
      *out = static_cast<Isa>(i);
      return true;
    }
  }
  return false;
}

bool isa_supported(Isa isa) {
  switch (isa) {
    case Isa::scalar:
      return true;
#if defined(TALLYSTICK_HAVE_AVX2)
    case Isa::avx2:
      return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    case Isa::avx512:
      return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
             __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
             __builtin_cpu_supports("fma");
#endif
#if defined(TALLYSTICK_HAVE_NEON)
    case Isa::neon:
      return true;
#endif
    default:
      return false;
  }
}

Isa best_isa() {
  for (Isa isa : {Isa::avx512, Isa::avx2, Isa::neon}) {
    if (isa_supported(isa)) return isa;
  }
  return Isa::scalar;
}

Isa active_isa() { return current().load(std::memory_order_relaxed); }

bool set_isa(Isa isa) {
  if (!isa_supported(isa)) return false;
  current().store(isa, std::memory_order_relaxed);
  return true;
}

bool fp_environment_ok() {
  volatile float smallest_normal = FLT_MIN;
  volatile float halved = smallest_normal * 0.5f;      // flushed to zero under FTZ
  volatile float subnormal = 1e-40f;
  volatile float doubled = subnormal + subnormal;      // zero under DAZ
  volatile float one = 1.0f;
  volatile float half_ulp = 5.9604644775390625e-08f;   // 2^-24: ties to even only to nearest
  volatile float down = one + half_ulp;
  volatile float up = -one - half_ulp;
  volatile float over = one + 1.5f * half_ulp;         // stays 1 when rounding toward zero
  return halved != 0.0f && doubled != 0.0f && down == 1.0f && up == -1.0f && over > 1.0f;
}

void fp_environment_establish() {
#if defined(__x86_64__)
  _mm_setcsr(0x1f80);  // round to nearest, no FTZ, no DAZ, all exceptions masked
#elif defined(__aarch64__)
  uint64_t fpcr = 0;
  __asm__ volatile("msr fpcr, %0" : : "r"(fpcr));
#endif
}

}  // namespace tallystick
