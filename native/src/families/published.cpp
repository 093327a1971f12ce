// log and rev of the published rounding log, and its binary64 Adam (NUMERICS 14.9, 11), one copy per
// instruction set.
// Plain loops without branches: the compiler turns them into vectors, the scalar path stays plain.
#include "families/published.hpp"

#include "tallystick/ts_base.hpp"

namespace tallystick {
namespace TS_ISA {
namespace {

constexpr uint64_t kSign64 = 1ull << 63, kInf64 = 0x7ffull << 52;
constexpr uint64_t kOverflow = 0x47full << 52;  // 2^128
constexpr size_t kChunk = 640;                  // elements at a time; a multiple of five

// R(x), a zero keeping its sign, as a binary64 number. NaN stays a NaN.
template <bool Full>
TS_INLINE double rounded(double x, int kept) {
  if (Full) return static_cast<double>(static_cast<float>(x));
  const int drop = 52 - kept;  // kept mantissa bits: B - 9
  const uint64_t u = double_bits(x), mag = u & ~kSign64;
  const uint64_t one = 1;
  uint64_t v = mag + ((one << (drop - 1)) - 1) + ((mag >> drop) & 1);
  v &= ~((one << drop) - 1);
  v = v >= kOverflow ? kInf64 : v;
  // Below 2^-126 the spacing stays that of subnormals: adding 2^52 spacings rounds to them.
  const double big = bits_double(static_cast<uint64_t>(1023 - 74 - kept) << 52);
  const double tiny = (bits_double(mag) + big) - big;
  v = bits_double(mag) < 0x1p-126 ? double_bits(tiny) : v;
  v = mag > kInf64 ? mag : v;
  return bits_double(v | (u & kSign64));
}

// exp(x) of 14.9 for scale=decimal. |x| is finite and not zero.
TS_INLINE double power_of_ten(double a, const double* tens) {
  const int e2 = static_cast<int>(double_bits(a) >> 52) - 1023;
  // floor(e2 * log10 2) is right or one too small.
  int k = e2 < -1022 ? kMinExponent10 : (e2 * 1233) >> 12;
  k = k < kMinExponent10 ? kMinExponent10 : k;
  while (k < kMaxExponent10 && tens[k + 1 - kMinExponent10] <= a) ++k;
  while (k > kMinExponent10 && tens[k - kMinExponent10] > a) --k;
  return tens[k - kMinExponent10];
}

// |x - r| > exp(x) * tau, for x whose magnitude is a.
TS_INLINE bool logged(double a, double d, const PublishedForm& f, bool decimal) {
  if (decimal) return a > 0 && a < bits_double(kInf64) && d > power_of_ten(a, f.tens) * f.tau;
  // Where exp(x) * tau could be subnormal both sides are scaled: the comparison is exact.
  const double scale = a < 0x1p-900 ? 0x1p200 : 1.0;
  const double exponent = bits_double(double_bits(a * scale) & kInf64);
  return d * scale > exponent * f.tau;
}

TS_INLINE float finish(double r, bool plus_zero) {
  const float value = static_cast<float>(r);
  return planted(canonical_nan(plus_zero ? value + 0.0f : value));
}

template <bool Full, bool Decimal>
void log_some(const PublishedForm& f, const double* x, size_t n, float* out, uint8_t* entries) {
  const int kept = f.bits - 9;
  const bool plus_zero = f.plus_zero;
  for (size_t i = 0; i < n; ++i) {
    const double r = rounded<Full>(x[i], kept);
    const double a = __builtin_fabs(x[i]), d = __builtin_fabs(x[i] - r);
    const bool on = logged(a, d, f, Decimal);
    const int side = static_cast<int>(x[i] < r) - static_cast<int>(x[i] > r);
    entries[i] = static_cast<uint8_t>(1 + (on ? side : 0));
    out[i] = finish(r, plus_zero);
  }
}

template <bool Full>
size_t follow_some(const PublishedForm& f, const double* x, size_t n, const uint8_t* entries,
                   float* out) {
  const int kept = f.bits - 9;
  const uint32_t step = 1u << (32 - f.bits);
  const bool plus_zero = f.plus_zero;
  uint32_t changed = 0;
  for (size_t i = 0; i < n; ++i) {
    const double r = rounded<Full>(x[i], kept);
    const int32_t down = (x[i] < r) & (entries[i] == 0), up = (x[i] > r) & (entries[i] == 2);
    const uint32_t bits = float_bits(static_cast<float>(r));
    // The sign of r is x's: towards zero is one step less in the encoding, from zero one more.
    const int32_t away = bits >> 31 ? down - up : up - down;
    const float value = bits_float(bits + static_cast<uint32_t>(away) * step);
    out[i] = planted(canonical_nan(plus_zero ? value + 0.0f : value));
    changed += static_cast<uint32_t>(down | up);
  }
  return changed;
}

void pack(const uint8_t* entries, size_t n, uint8_t* packed) {
  size_t i = 0;
  for (; i + 5 <= n; i += 5) {
    const uint8_t* e = entries + i;
    *packed++ = static_cast<uint8_t>(e[0] + 3 * e[1] + 9 * e[2] + 27 * e[3] + 81 * e[4]);
  }
  if (i == n) return;
  int byte = 0, weight = 1;
  for (size_t k = 0; k < 5; ++k, weight *= 3) byte += weight * (i + k < n ? entries[i + k] : 1);
  *packed = static_cast<uint8_t>(byte);
}

// The five entries of every byte, one to a byte of the table's words.
struct Unpacked {
  uint64_t of[256];
};
constexpr Unpacked unpacked_table() {
  Unpacked t{};
  for (int byte = 0; byte < 256; ++byte) {
    int rest = byte > 242 ? 121 : byte;
    for (int k = 0; k < 5; ++k, rest /= 3) t.of[byte] |= static_cast<uint64_t>(rest % 3) << (8 * k);
  }
  return t;
}
constexpr Unpacked kUnpacked = unpacked_table();

// Writes up to seven bytes beyond the n entries.
void unpack(const uint8_t* packed, size_t n, uint8_t* entries) {
  for (size_t i = 0; i < n; i += 5) std::memcpy(entries + i, &kUnpacked.of[*packed++], 8);
}

void log(const PublishedForm& f, const double* x, size_t n, size_t begin, size_t end, float* out,
         uint8_t* packed) {
  const auto some = f.bits == 32 ? (f.tens ? log_some<true, true> : log_some<true, false>)
                                 : (f.tens ? log_some<false, true> : log_some<false, false>);
  uint8_t entries[kChunk];
  const size_t last = ts_min(5 * end, n);
  for (size_t i = 5 * begin; i < last; i += kChunk) {
    const size_t count = ts_min(kChunk, last - i);
    some(f, x + i, count, out + i, entries);
    pack(entries, count, packed + i / 5);
  }
}

size_t follow(const PublishedForm& f, const double* x, size_t n, size_t begin, size_t end,
              const uint8_t* packed, float* out) {
  const auto some = f.bits == 32 ? follow_some<true> : follow_some<false>;
  uint8_t entries[kChunk + 8];
  size_t changed = 0;
  const size_t last = ts_min(5 * end, n);
  for (size_t i = 5 * begin; i < last; i += kChunk) {
    const size_t count = ts_min(kChunk, last - i);
    unpack(packed + i / 5, count, entries);
    changed += some(f, x + i, count, entries, out + i);
  }
  return changed;
}

// Fused where torch's kernels are, so that both round an x next to a tie to one side: with
// beta1 = 0.9 every fifth m lies next to a number of few bits.
template <bool AddsDecay>
void adam_some(const AdamStep64& s, size_t begin, size_t end) {
  const float *p = s.p, *g_in = s.g, *m_in = s.m, *v_in = s.v;
  double *__restrict p_out = s.p_out, *__restrict m_out = s.m_out, *__restrict v_out = s.v_out;
  const double scale = s.scale, rest1 = s.rest1, beta2 = s.beta2, rest2 = s.rest2, eps = s.eps,
               root = s.root, step_size = s.step_size, kept = s.kept, decay = s.decay;
  for (size_t i = begin; i < end; ++i) {
    double g = static_cast<double>(g_in[i]) * scale;
    if (AddsDecay) g = __builtin_fma(static_cast<double>(p[i]), decay, g);
    const double m0 = m_in[i];
    const double m = __builtin_fma(rest1, g - m0, m0);
    const double v = __builtin_fma(rest2 * g, g, beta2 * static_cast<double>(v_in[i]));
    m_out[i] = m;
    v_out[i] = v;
    p_out[i] = kept * static_cast<double>(p[i]) - step_size * m / (__builtin_sqrt(v) / root + eps);
  }
}

void adam(const AdamStep64& s, size_t begin, size_t end) {
  if (s.decay != 0) adam_some<true>(s, begin, end);
  else adam_some<false>(s, begin, end);
}

}  // namespace
}  // namespace TS_ISA

namespace isa = TS_ISA;
TS_DEFINE_TABLE(PublishedTable, published) = {isa::log, isa::follow, isa::adam};

}  // namespace tallystick
