#include "families/exact.hpp"

#include "tallystick/exact_split.hpp"
#include "tallystick/simd_i16.hpp"

namespace tallystick {
namespace TS_ISA {
namespace {

uint32_t most(const float* x, size_t n, ptrdiff_t step) {
  uint32_t mu = 0;
  if (step == 1) {
    for (size_t i = 0; i < n; ++i) mu = ts_max(mu, magnitude_bits(x[i]));
  } else {
    for (size_t i = 0; i < n; ++i)
      mu = ts_max(mu, magnitude_bits(x[static_cast<ptrdiff_t>(i) * step]));
  }
  return mu;
}

void integers(const float* x, size_t n, ptrdiff_t step, uint32_t mu, int width, float* out) {
  const double factor = exact_factor(mu, width);
  if (factor == 0.0) {
    for (size_t i = 0; i < n; ++i) out[i] = 0.0f;
    return;
  }
  if (step == 1) {
    for (size_t i = 0; i < n; ++i) out[i] = static_cast<float>(exact_integer(x[i], factor, width));
  } else {
    for (size_t i = 0; i < n; ++i)
      out[i] = static_cast<float>(
          exact_integer(x[static_cast<ptrdiff_t>(i) * step], factor, width));
  }
}

void digits(const float* m, size_t n, size_t padded, int count, int16_t* to) {
  for (size_t k = 0; k < n; ++k) {
    int rest = static_cast<int>(m[k]);
    for (int d = 0; d < count; ++d)
      to[static_cast<size_t>(d) * padded + k] = static_cast<int16_t>(exact_digit(rest));
  }
  for (int d = 0; d < count; ++d)
    for (size_t k = n; k < padded; ++k) to[static_cast<size_t>(d) * padded + k] = 0;
}

// Rows are count * padded digits long. Pairs of equal weight are added in 32 bits (17.8), the
// weights in 64.
template <int kRows, int kCols>
TS_INLINE void tile(const int16_t* a, const int16_t* b, size_t padded, int count, double* out,
                    size_t ldo) {
  const size_t row = static_cast<size_t>(count) * padded;
  int64_t sum[kRows][kCols] = {};
  for (int weight = 0; weight <= 2 * (count - 1); ++weight) {
    i32v s[kRows][kCols];
    for (int i = 0; i < kRows; ++i)
      for (int j = 0; j < kCols; ++j) s[i][j] = i_zero();
    for (int d = 0; d < count; ++d) {
      const int e = weight - d;
      if (e < 0 || e >= count) continue;
      const int16_t* pa = a + static_cast<size_t>(d) * padded;
      const int16_t* pb = b + static_cast<size_t>(e) * padded;
      for (size_t k = 0; k < padded; k += kI16Lanes) {
        i16v vb[kCols];
        for (int j = 0; j < kCols; ++j) vb[j] = i_load(pb + static_cast<size_t>(j) * row + k);
        for (int i = 0; i < kRows; ++i) {
          const i16v va = i_load(pa + static_cast<size_t>(i) * row + k);
          for (int j = 0; j < kCols; ++j) s[i][j] = i_dot(s[i][j], va, vb[j]);
        }
      }
    }
    for (int i = 0; i < kRows; ++i)
      for (int j = 0; j < kCols; ++j)
        sum[i][j] += static_cast<int64_t>(i_sum(s[i][j])) * (int64_t(1) << (8 * weight));
  }
  for (int i = 0; i < kRows; ++i)
    for (int j = 0; j < kCols; ++j)
      out[static_cast<size_t>(i) * ldo + static_cast<size_t>(j)] =
          static_cast<double>(planted(sum[i][j]));
}

template <int kRows>
TS_INLINE void row_of_tiles(const int16_t* a, const int16_t* b, size_t n, size_t padded, int count,
                            double* out, size_t ldo) {
  const size_t row = static_cast<size_t>(count) * padded;
  size_t j = 0;
  for (; j + 4 <= n; j += 4) tile<kRows, 4>(a, b + j * row, padded, count, out + j, ldo);
  for (; j < n; ++j) tile<kRows, 1>(a, b + j * row, padded, count, out + j, ldo);
}

void products(const int16_t* a, size_t m, const int16_t* b, size_t n, size_t padded, int count,
              double* out, size_t ldo) {
  const size_t row = static_cast<size_t>(count) * padded;
  size_t i = 0;
  for (; i + 3 <= m; i += 3) row_of_tiles<3>(a + i * row, b, n, padded, count, out + i * ldo, ldo);
  for (; i < m; ++i) row_of_tiles<1>(a + i * row, b, n, padded, count, out + i * ldo, ldo);
}

void add(const double* w, uint32_t mu_a, const uint32_t* mu_b, size_t n, int width, bool first,
         double* total) {
  const double unit = exact_unit(mu_a, width);
  for (size_t j = 0; j < n; ++j) {
    const double v = exact_block(w[j], unit, exact_unit(mu_b[j], width));
    total[j] = first ? v : total[j] + v;
  }
}

void round(const double* total, size_t n, float* out) {
  for (size_t i = 0; i < n; ++i) out[i] = planted(static_cast<float>(total[i]));
}

}  // namespace
}  // namespace TS_ISA

namespace isa = TS_ISA;
TS_DEFINE_TABLE(ExactTable, exact) = {
    isa::most, isa::integers, isa::digits, isa::products, isa::add, isa::round};

}  // namespace tallystick
