#include "dispatch.hpp"

#include <cstdlib>
#include <cstring>
#include <initializer_list>

#include "context.hpp"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace tallystick {
namespace {

constexpr const char* kNames[] = {"scalar", "avx2", "avx512", "neon"};

// Not __builtin_cpu_supports: its answer comes from a table that a runtime library must fill, and
// the library that zig links fills none.
X86Features read_x86_features() {
  X86Features has;
#if defined(__x86_64__)
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid(1, &a, &b, &c, &d) == 0) return has;
  const bool fma = (c >> 12) & 1u, osxsave = (c >> 27) & 1u;
  if (!osxsave || __get_cpuid_count(7, 0, &a, &b, &c, &d) == 0) return has;
  unsigned kept = 0, high = 0;
  __asm__ volatile("xgetbv" : "=a"(kept), "=d"(high) : "c"(0));
  // The registers that the system saves: XMM and YMM; then masks and both halves of ZMM too.
  if ((kept & 0x06u) == 0x06u) {
    has.fma = fma;
    has.avx2 = (b >> 5) & 1u;
  }
  if ((kept & 0xe6u) == 0xe6u) {
    has.avx512f = (b >> 16) & 1u;
    has.avx512dq = (b >> 17) & 1u;
    has.avx512bw = (b >> 30) & 1u;
    has.avx512vl = (b >> 31) & 1u;
  }
#endif
  return has;
}

}  // namespace

const X86Features& x86_features() {
  static const X86Features has = read_x86_features();
  return has;
}

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
      return x86_features().avx2 && x86_features().fma;
    case Isa::avx512:
      return x86_features().avx512f && x86_features().avx512dq && x86_features().avx512bw &&
             x86_features().avx512vl && x86_features().fma;
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
