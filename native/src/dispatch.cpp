#include "dispatch.hpp"

#include <cstdlib>
#include <cstring>
#include <initializer_list>

#include "context.hpp"

namespace tallystick {
namespace {

constexpr const char* kNames[] = {"scalar", "avx2", "avx512", "neon"};

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

Isa initial_isa() {
  Isa isa;
  const char* forced = std::getenv("TALLYSTICK_ISA");
  // An unknown or unsupported name is refused with a sentence by the Python side, which sees the
  // same variable; here the safe choice is the portable path.
  if (forced && *forced) return isa_from_name(forced, &isa) && isa_supported(isa) ? isa : Isa::scalar;
  return best_isa();
}

Isa active_isa() { return current_context().isa(); }

}  // namespace tallystick
