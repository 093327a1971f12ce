#include "dispatch.hpp"

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <initializer_list>

namespace tallystick {
namespace {

constexpr const char* kNames[] = {"scalar", "avx2", "avx512", "neon"};

Isa initial_isa() {
  Isa isa;
  const char* forced = std::getenv("TALLYSTICK_ISA");
  // The Python side sees the same variable and refuses an unknown or unsupported name with a
  // sentence. Here the safe choice is the portable path.
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

}  // namespace tallystick
