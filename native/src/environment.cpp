#include "environment.hpp"

#include <cfloat>

#if defined(__x86_64__)
#include <immintrin.h>
#elif !defined(__aarch64__)
#include <cfenv>
#endif

namespace tallystick {

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

#if defined(__x86_64__)
namespace {
// Round to nearest, no FTZ, no DAZ, every exception masked. The x87 unit has a word of its own. No
// kernel computes with that unit, but the C library reads its word to parse and to print numbers.
constexpr uint32_t kMxcsr = 0x1f80, kMxcsrFlags = 0x3f;
constexpr uint16_t kX87 = 0x037f;
}  // namespace

uint64_t fp_environment_enter() {
  const uint32_t mxcsr = _mm_getcsr();
  uint16_t x87;
  __asm__ volatile("fnstcw %0" : "=m"(x87));
  // Most callers have this word already, and writing these registers costs more than reading them.
  if ((mxcsr & ~kMxcsrFlags) != kMxcsr) _mm_setcsr(kMxcsr);
  if (x87 != kX87) {
    const uint16_t wanted = kX87;
    __asm__ volatile("fldcw %0" : : "m"(wanted));
  }
  return mxcsr | static_cast<uint64_t>(x87) << 32;
}

void fp_environment_leave(uint64_t word) {
  const uint32_t mxcsr = static_cast<uint32_t>(word) & 0xffff;  // the rest is reserved, and traps
  const uint16_t x87 = static_cast<uint16_t>(word >> 32);
  uint16_t now;
  __asm__ volatile("fnstcw %0" : "=m"(now));
  if (now != x87) __asm__ volatile("fldcw %0" : : "m"(x87));
  if (_mm_getcsr() != mxcsr) _mm_setcsr(mxcsr);
}

#elif defined(__aarch64__)

uint64_t fp_environment_enter() {
  uint64_t control, status;
  __asm__ volatile("mrs %0, fpcr" : "=r"(control));
  __asm__ volatile("mrs %0, fpsr" : "=r"(status));
  const uint64_t wanted = 0;  // to nearest, subnormals kept, NaNs as they come, nothing traps
  if (control != wanted) __asm__ volatile("msr fpcr, %0" : : "r"(wanted));
  return (control & 0xffffffffu) | status << 32;
}

void fp_environment_leave(uint64_t word) {
  const uint64_t control = word & 0xffffffffu, status = word >> 32;
  __asm__ volatile("msr fpsr, %0" : : "r"(status));
  uint64_t now;
  __asm__ volatile("mrs %0, fpcr" : "=r"(now));
  if (now != control) __asm__ volatile("msr fpcr, %0" : : "r"(control));
}

#else

// The C library can set the rounding mode only. A platform that flushes subnormals is refused at
// start.
uint64_t fp_environment_enter() {
  const int mode = std::fegetround();
  if (mode != FE_TONEAREST) std::fesetround(FE_TONEAREST);
  return static_cast<uint64_t>(static_cast<uint32_t>(mode));
}

void fp_environment_leave(uint64_t word) {
  const int mode = static_cast<int>(static_cast<uint32_t>(word));
  if (std::fegetround() != mode) std::fesetround(mode);
}

#endif

}  // namespace tallystick
