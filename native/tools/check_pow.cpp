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

#include "reference.hpp"

using reference::from_bits;
using reference::to_bits;

namespace {

constexpr uint32_t kSpecial[] = {
    0,          0x80000000u, 0x3f800000u, 0xbf800000u, 0x7f800000u, 0xff800000u, 0x7fc00000u,
    1,          0x80000001u, 0x7f7fffffu, 0x00800000u, 0x3f000000u, 0x40000000u, 0xc0000000u,
    0x40400000u, 0xc0400000u, 0x7fa00001u, 0xbf000000u, 0x3f7fffffu, 0x3f800001u};
constexpr uint32_t kSpecials = sizeof kSpecial / sizeof *kSpecial;

void arguments(uint64_t r, uint32_t a, uint32_t b, float* x, float* y) {
  switch (r % 8) {
    case 0:  // any bits
      *x = from_bits(a), *y = from_bits(b);
      break;
    case 1: {  // a result inside the range
      *x = from_bits(a & 0x7fffffffu);
      const double limit = 150 / (std::fabs(std::log2(static_cast<double>(*x))) + 1e-30);
      *y = static_cast<float>((b / 2147483648.0 - 1) * limit);
      break;
    }
    case 2:  // small integers
      *x = static_cast<float>(a % 4096 + 1) * ((b & 1) ? 1.0f : -1.0f);
      *y = static_cast<float>(static_cast<int>((b >> 8) % 33) - 10);
      break;
    case 3: {  // squares to half-integer powers
      const float root = static_cast<float>(a % 4000 + 1);
      *x = std::ldexp(root * root, 2 * (static_cast<int>(b % 60) - 30));
      *y = static_cast<float>((b >> 8) % 15 + 1) * 0.5f;
      break;
    }
    case 4:  // near 1, large exponents
      *x = from_bits(0x3f800000u + a % 2001 - 1000);
      *y = from_bits((b % 0x4f000000u) | ((b & 1) << 31));
      break;
    case 5:  // powers of two
      *x = std::ldexp(1.0f, static_cast<int>(a % 277) - 149);
      *y = static_cast<float>(static_cast<int>(b % 2001) - 1000) / 8.0f;
      break;
    case 6:
      *x = from_bits((r >> 20) & 1 ? kSpecial[a % kSpecials] : a);
      *y = from_bits(kSpecial[b % kSpecials]);
      break;
    default: {  // perfect powers to fractions
      const int k = 1 << (b % 5);
      *x = static_cast<float>(std::pow(static_cast<double>(a % 40 + 1), k));
      *y = static_cast<float>((b >> 8) % 30 + 1) / static_cast<float>(k) * ((b >> 20) & 1 ? 1.0f : -1.0f);
    }
  }
}

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
    arguments(r, static_cast<uint32_t>(s), static_cast<uint32_t>(s >> 32), &x, &y);
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
