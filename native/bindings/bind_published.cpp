// Python's door to log, rev and Adam of the published form (NUMERICS 14.9).
#include <array>
#include <atomic>
#include <cstdlib>
#include <string>

#include "arrays.hpp"
#include "families/published.hpp"

namespace tallystick {
namespace {

using namespace arrays;
using Out64 = nb::ndarray<double, nb::c_contig, nb::device::cpu>;
using In64 = nb::ndarray<const double, nb::c_contig, nb::device::cpu>;
using InBytes = nb::ndarray<const uint8_t, nb::c_contig, nb::device::cpu>;
using OutBytes = nb::ndarray<uint8_t, nb::c_contig, nb::device::cpu>;
constexpr size_t kGrain = 16384;  // groups of five, or elements of an optimizer step
constexpr int kPowers = kMaxExponent10 - kMinExponent10 + 1;

// RN64(10^k): strtod rounds correctly in the C locale's notation, which has no point here.
const double* powers_of_ten() {
  static const std::array<double, kPowers> table = [] {
    std::array<double, kPowers> t{};
    for (int i = 0; i < kPowers; ++i)
      t[i] = std::strtod(("1e" + std::to_string(i + kMinExponent10)).c_str(), nullptr);
    return t;
  }();
  return table.data();
}

PublishedForm form(int bits, bool plus_zero, int64_t threshold, bool decimal) {
  require(bits >= 20 && bits <= 32, "bits must be in 20..32");
  require(threshold >= 0 && threshold <= (int64_t{1} << 53), "the threshold must be in 0..2^53");
  return {bits, plus_zero, static_cast<double>(threshold) * 0x1p-40,
          decimal ? powers_of_ten() : nullptr};
}

template <class Packed>
size_t checked_groups(const In64& x, const Out& out, const Packed& packed) {
  const size_t n = count(x), groups = n / 5 + (n % 5 != 0);
  require(count(out) == n, "value and x must have one size");
  require(count(packed) == groups, "five entries make a byte");
  require_disjoint({out}, {x, packed});
  return groups;
}

void published_log(In64 x, int64_t threshold, bool decimal, int bits, bool plus_zero, Out out,
                   OutBytes packed) {
  const PublishedForm f = form(bits, plus_zero, threshold, decimal);
  const size_t groups = checked_groups(x, out, packed);
  require_disjoint({packed}, {x});
  const auto fn = TS_DISPATCH(published).log;
  unlocked_ranges(groups, kGrain, [&](size_t b, size_t e) {
    fn(f, x.data(), count(x), b, e, out.data(), packed.data());
  });
}

size_t published_follow(In64 x, InBytes packed, int bits, bool plus_zero, Out out) {
  const PublishedForm f = form(bits, plus_zero, 0, false);
  const size_t groups = checked_groups(x, out, packed);
  const auto fn = TS_DISPATCH(published).follow;
  std::atomic<size_t> changed{0};
  unlocked_ranges(groups, kGrain, [&](size_t b, size_t e) {
    changed += fn(f, x.data(), count(x), b, e, packed.data(), out.data());
  });
  return changed;
}

void published_adam(In p, In g, In m, In v, double scale, double rest1, double beta2, double rest2,
                    double eps, double root, double step_size, double kept, double decay,
                    Out64 p_out, Out64 m_out, Out64 v_out) {
  const size_t n = count(p);
  for (const In* in : {&g, &m, &v})
    require(count(*in) == n, "tensors of one step must have one size");
  for (const Out64* out : {&p_out, &m_out, &v_out})
    require(count(*out) == n, "tensors of one step must have one size");
  require_disjoint({p_out, m_out, v_out}, {p, g, m, v});
  const AdamStep64 s = {p.data(), g.data(), m.data(), v.data(), scale, rest1, beta2, rest2, eps,
                        root, step_size, kept, decay, p_out.data(), m_out.data(), v_out.data()};
  const auto fn = TS_DISPATCH(published).adam;
  unlocked_ranges(n, kGrain, [&](size_t b, size_t e) { fn(s, b, e); });
}

}  // namespace
}  // namespace tallystick

void bind_published(nb::module_& m) {
  using namespace tallystick;
  define(m, "published_log", &published_log, "x"_a, "threshold"_a, "decimal"_a, "bits"_a,
         "plus_zero"_a, "out"_a, "packed"_a,
         "out = R(x) and a trainer's entries, five to a byte (NUMERICS 14.9).");
  define(m, "published_follow", &published_follow, "x"_a, "packed"_a, "bits"_a, "plus_zero"_a,
         "out"_a, "out = rev(x, entries) (NUMERICS 14.9); returns how many elements are not R(x).");
  define(m, "published_adam", &published_adam, "p"_a, "g"_a, "m"_a, "v"_a, "scale"_a, "rest1"_a,
         "beta2"_a, "rest2"_a, "eps"_a, "root"_a, "step_size"_a, "kept"_a, "decay"_a, "p_out"_a,
         "m_out"_a, "v_out"_a,
         "x of an Adam or AdamW step in binary64 (NUMERICS 11.2, 11.3, 14.9).");
}
