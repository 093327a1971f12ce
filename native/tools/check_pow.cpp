// pow against MPFR: random, exact, boundary and special arguments, and the slow path by itself.
//
//   check_pow [COUNT [SEED]]
//
// Exit code: 0 all equal, 1 otherwise.
#define TS_ISA scalar
#define TS_ISA_SCALAR 1
#include "tallystick/pow.hpp"

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <random>

#include "pow_arguments.hpp"

using reference::from_bits;
using reference::to_bits;

namespace {

bool slow_path_applies(float x, float y) {
  if (!(x > 0) || x == 1.0f || !std::isfinite(x) || !std::isfinite(y) || y == 0) return false;
  const double t = static_cast<double>(y) * std::log2(static_cast<double>(x));
  return t > -151.0 && t < 129.0;
}

}  // namespace

int main(int argc, char** argv) {
  const long count = argc > 1 ? std::atol(argv[1]) : 1000000;
  std::mt19937_64 random(argc > 2 ? static_cast<uint64_t>(std::atol(argv[2])) : 1);
  reference::Exact exact;
  long wrong = 0, slow = 0;
  for (long i = 0; i < count; ++i) {
    const uint64_t r = random(), s = random();
    float x, y, got;
    reference::pow_arguments(r, static_cast<uint32_t>(s), static_cast<uint32_t>(s >> 32), &x, &y);
    const uint32_t want = exact.pow(x, y);
    TS_DISPATCH(elementary).pow(&x, &y, 1, &got, 1);
    bool bad = to_bits(got) != want;
    if (!bad && slow_path_applies(x, y)) {
      ++slow;
      bad = to_bits(got = tallystick::scalar::pow_hard(x, y)) != want;
    }
    if (bad && wrong++ < 20)
      std::printf("pow(%a, %a) = %08x, MPFR says %08x\n", x, y, to_bits(got), want);
  }
  std::printf("{\"isa\": \"%s\", \"checked\": %ld, \"slow_path_checked\": %ld, \"wrong\": %ld}\n",
              tallystick::isa_name(tallystick::active_isa()), count, slow, wrong);
  return wrong ? 1 : 0;
}
