// Every instruction set of this build against the scalar path: elementwise, reductions, random, the
// rounding of `rounded/1`, the published log of `replay/1`, grouped convolutions, the integers and
// blocks of `exact/1`, attention over pages. Prints one digest of the scalar results and exits 1 where a path differs from scalar, or scalar from the digest
// known, which is the same on every architecture. Built for aarch64 too and run under qemu (make
// test-aarch64). A new kernel changes the digest: check it, then change it here.
//
//   check_paths [--expect-fault SET]
//
// With --expect-fault, in a build with a fault planted in SET (fault_check.sh), the kernels that
// have no golden vectors must show it on that path and on no other.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "context.hpp"
#include "convolution.hpp"
#include "dispatch.hpp"
#include "families/attention.hpp"
#include "families/elementwise.hpp"
#include "families/exact.hpp"
#include "families/published.hpp"
#include "families/random.hpp"
#include "families/reduce.hpp"
#include "families/rounding.hpp"

using namespace tallystick;

namespace {

constexpr uint64_t kKnown = 0x78f8c23bacee8a66u;

uint64_t state = 1;
uint32_t next() {
  state = state * 6364136223846793005u + 1442695040888963407u;
  return static_cast<uint32_t>(state >> 33);
}

// Mostly ordinary numbers, with every kind of special one among them.
std::vector<float> values(size_t n) {
  const uint32_t special[] = {0,          0x80000000, 0x3f800000, 0xbf800000, 1,
                              0x80000001, 0x7f800000, 0xff800000, 0x7fc00000, 0x7f7fffff};
  std::vector<float> x(n);
  for (float& v : x) {
    uint32_t bits = (next() << 1) & 0x807fffffu;
    bits |= (117 + next() % 20) << 23;
    if (next() % 16 == 0) bits = special[next() % 10];
    std::memcpy(&v, &bits, 4);
  }
  return x;
}

struct Digest {
  uint64_t hash = 14695981039346656037u;
  void add(const void* data, size_t n) {
    const unsigned char* p = static_cast<const unsigned char*>(data);
    for (size_t i = 0; i < n; ++i) hash = (hash ^ p[i]) * 1099511628211u;
  }
};

using Results = std::vector<std::pair<std::string, uint64_t>>;

uint64_t seed_of(const char* name) {
  Digest digest;
  digest.add(name, std::strlen(name));
  return digest.hash | 1;
}

Results elementwise() {
  Results all;
  const ElementwiseTable& table = TS_DISPATCH(elementwise);
  for (size_t op = 0; op < kEwOps; ++op) {
    const EwInfo& info = kEwInfo[op];
    state = seed_of(info.name);  // so that a list of other loops changes no loop's numbers
    Digest digest;
    for (size_t n : {size_t{1}, size_t{5}, size_t{16}, size_t{31}, size_t{1000}}) {
      const std::vector<float> x[3] = {values(3 * n), values(3 * n), values(3 * n)};
      std::vector<uint8_t> mask(3 * n);
      for (uint8_t& m : mask) m = next() & 1;
      for (int layout = 0; layout < 4; ++layout) {
        EwOperand in[3];
        for (size_t k = 0; k < info.arity; ++k) {
          in[k].data =
              info.takes_mask(k) ? static_cast<const void*>(mask.data()) : x[k].data();
          in[k].stride = layout == 3 ? 3 : layout == 1 && k == 0 ? 0 : layout == 2 && k == 1 ? 0 : 1;
        }
        std::vector<unsigned char> out(4 * n);
        const float param[2] = {0.25f, 0.75f};
        table.fn[op](in, out.data(), n, param);
        digest.add(out.data(), info.kind == 'c' ? n : 4 * n);
      }
    }
    all.emplace_back(info.name, digest.hash);
  }
  return all;
}

Results reductions() {
  const ReduceTable& table = TS_DISPATCH(reduce);
  Digest rows, columns, extremes;
  state = 8;
  for (size_t n : {size_t{1}, size_t{7}, size_t{33}, size_t{1024}, size_t{5000}}) {
    std::vector<float> x = values(n);
    for (float& v : x)
      if (!(v - v == 0)) v = 1.0f;
    const float divisor = 3.0f;
    const float results[] = {table.row(x.data(), n, Term::value, nullptr),
                             table.row(x.data(), n, Term::square, &divisor)};
    rows.add(results, sizeof results);
    float spread[2];
    table.var_mean(x.data(), n, static_cast<double>(n), spread, spread + 1);
    rows.add(spread, sizeof spread);
    const std::vector<float> y = values(n);
    const float most[] = {table.row_extreme(y.data(), n, Extreme::max),
                          table.row_extreme(x.data(), n, Extreme::min)};
    const int64_t where[] = {table.row_argmax(x.data(), n), table.row_argmax(y.data(), n)};
    extremes.add(most, sizeof most);
    extremes.add(where, sizeof where);
    const size_t inner = 13;
    const std::vector<float> z = values(n * inner);
    std::vector<float> out(inner), scratch(table.column_scratch(n) + 1);
    table.columns(z.data(), n, inner, 0, inner, &divisor, out.data(), scratch.data());
    columns.add(out.data(), 4 * inner);
    table.column_extreme(z.data(), n, inner, 0, inner, Extreme::max, out.data());
    extremes.add(out.data(), 4 * inner);
  }
  return {{"sum_rows", rows.hash}, {"sum_columns", columns.hash}, {"extremes", extremes.hash}};
}

Results randoms() {
  const RandomTable& table = TS_DISPATCH(random);
  const RandomKey key{0x123456789abcdefu, 3, 5};
  const size_t begin = (size_t{1} << 34) - 128, n = 1001;  // the block number carries
  Digest mask, uniform, normal;
  std::vector<uint8_t> bytes(n);
  table.dropout_mask(key, 0x40000000u, begin, begin + n, bytes.data());
  mask.add(bytes.data(), n);
  std::vector<float> x(n);
  table.uniform(key, -0.5f, 2.0f, begin, begin + n, x.data());
  uniform.add(x.data(), 4 * n);
  table.normal(key, 0.25f, 1.5f, begin, begin + n, x.data());
  normal.add(x.data(), 4 * n);
  return {{"dropout_mask", mask.hash}, {"uniform", uniform.hash}, {"normal", normal.hash}};
}

Results copies() {
  const ElementwiseTable& table = TS_DISPATCH(elementwise);
  Digest digest;
  state = 9;
  for (size_t rows : {size_t{3}, size_t{8}, size_t{29}, size_t{70}}) {
    const size_t cols = 33, ld = 80;
    const std::vector<float> x = values(cols * ld);
    std::vector<float> out(rows * cols);
    table.transpose4(x.data(), ld, out.data(), cols, rows, cols);
    digest.add(out.data(), 4 * rows * cols);
    for (size_t r = 0; r < rows; ++r)
      for (size_t c = 0; c < cols; ++c)
        if (std::memcmp(&out[r * cols + c], &x[r + c * ld], 4) != 0) digest.add("wrong", 5);
    table.copy_rows(reinterpret_cast<const char*>(x.data()), 4 * 36,
                    reinterpret_cast<char*>(out.data()), 4 * cols, rows);
    digest.add(out.data(), 4 * rows * cols);
  }
  return {{"copies", digest.hash}};
}

// Binary64 whose rounding to binary32 is a near thing, or any.
std::vector<double> wide_values(size_t n) {
  const std::vector<float> x = values(n);
  std::vector<double> w(n);
  for (size_t i = 0; i < n; ++i) {
    uint64_t bits;
    w[i] = x[i];
    std::memcpy(&bits, &w[i], 8);
    bits += (uint64_t{next() % 64} << 23) + next() % 3;
    if (next() % 4 == 0) bits -= uint64_t{127 + next() % 64} << 52;  // toward subnormal results
    std::memcpy(&w[i], &bits, 8);
    if (next() % 16 == 0) w[i] = x[i];
  }
  return w;
}

Results roundings() {
  const RoundingTable& table = TS_DISPATCH(rounding);
  Digest grids, doubts, exact, bounds;
  state = 10;
  for (size_t n : {size_t{1}, size_t{7}, size_t{33}, size_t{1000}}) {
    const std::vector<double> w = wide_values(n);
    std::vector<double> eb(n), ec(n);
    for (size_t i = 0; i < n; ++i) eb[i] = (1 + next() % 100) * 0x1p-40, ec[i] = 0x1p-44;
    std::vector<float> out(n), x = values(n), y = values(n);
    std::vector<uint32_t> found(n);
    for (int b : {32, 29, 20}) {
      table.grid(w.data(), n, b, out.data());
      grids.add(out.data(), 4 * n);
      for (int last : {0, 1}) {
        const size_t k = table.doubt(w.data(), 0x1p-3, eb.data(), last ? ec.data() : nullptr, 2.0, n,
                                     b, out.data(), found.data());
        doubts.add(&k, sizeof k);
        doubts.add(found.data(), 4 * k);
        doubts.add(out.data(), 4 * n);
      }
      for (int finite : {0, 1}) {
        if (finite)
          for (float& v : x) v = v - v == 0 ? v : 1.0f;
        if (finite)
          for (float& v : y) v = v - v == 0 ? v : -1.0f;
        ExactAcc acc;
        table.acc_products(acc, x.data(), y.data(), n);
        table.acc_terms(acc, x.data(), n);
        uint8_t record[kAccBytes];
        table.acc_store(acc, record);
        exact.add(record, kAccBytes);
        DotState fast;
        table.dot_products(fast, x.data(), y.data(), n);
        table.dot_terms(fast, x.data(), n);
        const float want = table.acc_round(acc, b);
        float got = want;
        table.dot_decide(fast, b, &got);  // where it decides it must agree
        exact.add(&want, 4);
        exact.add(&got, 4);
        if (std::memcmp(&want, &got, 4) != 0) exact.add("wrong", 5);
      }
    }
    for (Sum64 what : {Sum64::squares, Sum64::sizes}) {
      const size_t cols = 13;
      const std::vector<float> z = values(n * cols);
      std::vector<double> sums(cols), scratch(table.sum64_scratch(n));
      table.sum64_columns(z.data(), n, static_cast<ptrdiff_t>(cols), cols, what, sums.data(),
                          scratch.data());
      bounds.add(sums.data(), 8 * cols);
      sums[0] = table.sum64_row(x.data(), n, 1, what);
      bounds.add(sums.data(), 8);
    }
  }
  return {{"grid", grids.hash}, {"doubt", doubts.hash}, {"exact", exact.hash},
          {"bounds", bounds.hash}};
}

Results published() {
  const PublishedTable& table = TS_DISPATCH(published);
  Digest log, follow, adam;
  state = 11;
  std::vector<double> tens;
  for (int k = kMinExponent10; k <= kMaxExponent10; ++k)
    tens.push_back(std::strtod(("1e" + std::to_string(k)).c_str(), nullptr));
  for (size_t n : {size_t{1}, size_t{7}, size_t{33}, size_t{1003}}) {
    const std::vector<double> x = wide_values(n);
    const size_t groups = (n + 4) / 5;
    std::vector<float> out(n);
    std::vector<uint8_t> packed(groups), given(groups);
    for (uint8_t& byte : given) byte = next() % 243;
    for (int b : {32, 29, 20})
      for (bool decimal : {false, true}) {
        const PublishedForm form{b, decimal, 0x1p-25, decimal ? tens.data() : nullptr};
        table.log(form, x.data(), n, 0, groups, out.data(), packed.data());
        log.add(out.data(), 4 * n);
        log.add(packed.data(), groups);
        const size_t changed = table.follow(form, x.data(), n, 0, groups, given.data(), out.data());
        follow.add(out.data(), 4 * n);
        follow.add(&changed, sizeof changed);
      }
    std::vector<float> p = values(n), g = values(n), m = values(n), v = values(n);
    for (float& y : v) y = y - y == 0 && y > 0 ? y : 1.0f;
    std::vector<double> found(3 * n);
    for (double decay : {0.0, 0.1}) {
      const AdamStep64 step{p.data(), g.data(), m.data(), v.data(), 0.7, 0.1, 0.999, 0.001, 1e-8,
                            0.0447, 1.6e-3, 0.9999, decay, found.data(), found.data() + n,
                            found.data() + 2 * n};
      table.adam(step, 0, n);
      for (double& y : found) y = y == y ? y : 0.0;  // which NaN it is says nothing
      adam.add(found.data(), 8 * found.size());
    }
  }
  return {{"published log", log.hash}, {"published follow", follow.hash}, {"adam64", adam.hash}};
}

// Groups in the lanes of vectors, some left over; a plane of several bands; small planes.
Results convolutions() {
  struct Sizes {
    size_t n, groups, cg, og, h, w, k;
    ptrdiff_t stride;
  };
  Digest forward, input, weight;
  state = 12;
  for (const Sizes& z : {Sizes{2, 35, 1, 1, 9, 7, 3, 1}, Sizes{1, 16, 3, 2, 8, 11, 3, 2},
                         Sizes{1, 29, 1, 1, 80, 75, 5, 1}, Sizes{3, 16, 16, 5, 3, 3, 3, 1},
                         Sizes{5, 1, 4, 9, 3, 3, 3, 1}}) {
    const ptrdiff_t pad = static_cast<ptrdiff_t>(z.k / 2);
    const size_t oh = (z.h - 1) / static_cast<size_t>(z.stride) + 1;
    const size_t ow = (z.w - 1) / static_cast<size_t>(z.stride) + 1;
    const ConvShape s =
        conv_shape(z.n, z.groups * z.cg, z.groups * z.og, z.groups,
                   {z.h, z.w, oh, ow, z.k, z.k, z.stride, z.stride, pad, pad, 1, 1, 0});
    const std::vector<float> x = values(s.n * s.c * s.in_plane), bias = values(s.o);
    const std::vector<float> grad = values(s.n * s.o * s.out_plane);
    std::vector<float> w = values(s.o * s.cg * s.taps);
    for (float& v : w)
      if (!(v - v == 0)) v = 1.0f;
    std::vector<float> y(grad.size()), dx(x.size()), dw(w.size());
    const bool done = convolution_forward(s, x.data(), w.data(), bias.data(), y.data()) &&
                      convolution_input_grad(s, grad.data(), w.data(), dx.data()) &&
                      convolution_weight_grad(s, grad.data(), x.data(), dw.data());
    if (!done) std::exit(2);
    forward.add(y.data(), 4 * y.size());
    input.add(dx.data(), 4 * dx.size());
    weight.add(dw.data(), 4 * dw.size());
  }
  return {{"grouped forward", forward.hash}, {"grouped input gradient", input.hash},
          {"grouped weight gradient", weight.hash}};
}

// The integers of groups, sums of whole blocks and parts of them, blocks added to a total.
Results blocks() {
  const ExactTable& table = TS_DISPATCH(exact);
  Digest integers, products, totals;
  state = 13;
  for (int width : {8, 15, 22}) {
    const int count = width == 8 ? 1 : width == 15 ? 2 : 3;
    const size_t length = width == 8 ? 256 : width == 15 ? 1024 : 2048;
    for (size_t n : {size_t{1}, size_t{31}, size_t{33}, length - 1, length}) {
      const size_t m = 7, cols = 9, padded = (n + kDigitPad - 1) / kDigitPad * kDigitPad;
      const size_t row = static_cast<size_t>(count) * padded;
      std::vector<int16_t> digits((m + cols) * row, 0x2a);
      std::vector<uint32_t> mu(m + cols);
      std::vector<float> ints(n);
      for (size_t r = 0; r < m + cols; ++r) {
        const ptrdiff_t step = r % 2 ? 3 : 1;
        std::vector<float> x = values(n * static_cast<size_t>(step));
        if (r % 4 != 3)  // else with infinities and NaN
          for (float& v : x) v = v - v == 0 ? v : 1.0f;
        if (r == 2)  // integers of the largest size, ties to even, subnormal numbers
          for (size_t k = 0; k < n; ++k) x[k] = k % 2 ? 0x1.fffffep-127f : -0x1.8p-146f;
        mu[r] = table.most(x.data(), n, step);
        table.integers(x.data(), n, step, mu[r], width, ints.data());
        integers.add(ints.data(), 4 * n);
        table.digits(ints.data(), n, padded, count, digits.data() + r * row);
      }
      integers.add(mu.data(), 4 * mu.size());
      integers.add(digits.data(), 2 * digits.size());
      std::vector<double> w(m * cols), total(m * cols);
      table.products(digits.data(), m, digits.data() + m * row, cols, padded, count, w.data(), cols);
      products.add(w.data(), 8 * w.size());
      for (bool first : {true, false})
        for (size_t i = 0; i < m; ++i)
          table.add(w.data() + i * cols, mu[i], mu.data() + m, cols, width, first,
                    total.data() + i * cols);
      std::vector<float> out(m * cols);
      table.round(total.data(), out.size(), out.data());
      totals.add(total.data(), 8 * total.size());
      totals.add(out.data(), 4 * out.size());
    }
  }
  return {{"exact integers", integers.hash}, {"exact products", products.hash},
          {"exact totals", totals.hash}};
}

// Texts of several lengths in pages of one pool, with a window or without (NUMERICS 18). Queries that
// follow each other have the same bits in blocks, one by one, and cut in two.
Results paged() {
  Digest digest;
  state = 14;
  const auto& table = TS_DISPATCH(attention);
  constexpr size_t heads = 9, groups = 3, depth = 66, width = 35, pages = 48;
  const size_t floats = groups * kPageKeys * (depth + width);
  const std::vector<float> pool = values(pages * floats), slopes = values(heads);
  std::vector<int64_t> tables(pages);
  for (size_t i = 0; i < pages; ++i) tables[i] = static_cast<int64_t>(i * 7 % pages);
  const std::vector<int64_t> places = {0, 15, 16, 127, 128, 300, 767}, starts(places.size());
  const std::vector<float> q = values(places.size() * heads * depth);
  for (const int64_t window : {0, 1, 140}) {
    std::vector<float> y(places.size() * heads * width);
    std::vector<float> room(table.pages_scratch(kBlockQueries, 768));
    const AttentionPages p = {places.size(), heads, groups, depth, width,
                              {q.data(), heads * depth, depth}, pool.data(), floats, tables.data(),
                              starts.data(), places.data(), true, window, 768,
                              {0.125f, window == 1, 30.0f, slopes.data()}, slopes.data(),
                              {y.data(), heads * width, width}};
    table.pages(p, 0, places.size() * groups, room.data());
    digest.add(y.data(), 4 * y.size());

    constexpr size_t run = 37;
    std::vector<int64_t> at(run), same(run);
    for (size_t i = 0; i < run; ++i) at[i] = static_cast<int64_t>(243 + i);
    const std::vector<float> asked = values(run * heads * depth);
    std::vector<float> blocks(run * heads * width), single(blocks.size());
    AttentionPages b = p;
    b.rows = run;
    b.q.data = asked.data();
    b.starts = same.data();
    b.places = at.data();
    b.out.data = blocks.data();
    table.pages(b, 0, run * groups, room.data());
    b.out.data = single.data();
    const auto compare = [&] {
      if (std::memcmp(blocks.data(), single.data(), 4 * blocks.size()) != 0) digest.add("differs", 7);
      std::fill(single.begin(), single.end(), 0.0f);
    };
    for (size_t t = 0; t < run * groups; ++t) table.pages(b, t, t + 1, room.data());
    compare();
    table.pages(b, 0, 5, room.data());  // as two threads cut the tasks, within a block
    table.pages(b, 5, run * groups, room.data());
    compare();
  }
  return {{"attention pages", digest.hash}};
}

Results everything() {
  Results all = elementwise();
  for (const Results& part :
       {reductions(), randoms(), copies(), roundings(), published(), convolutions(), blocks(),
        paged()})
    all.insert(all.end(), part.begin(), part.end());
  return all;
}

// Kernels without golden vectors whose results carry a planted fault.
bool shows_fault(const std::string& name) {
  for (const char* one : {"grid", "doubt", "exact", "published log", "published follow",
                          "grouped forward", "grouped input gradient", "grouped weight gradient",
                          "exact products", "exact totals", "attention pages"})
    if (name == one) return true;
  return false;
}

// Whether the fault planted in `faulty` shows in each of those kernels, on its path alone.
int expect_fault(const std::string& faulty) {
  default_context().set_isa(Isa::scalar);
  const Results want = everything();
  int bad = 0, seen = 0;
  for (Isa isa : {Isa::avx2, Isa::avx512, Isa::neon}) {
    if (!isa_supported(isa) || !default_context().set_isa(isa)) continue;
    const Results got = everything();
    const bool here = faulty == "scalar" || faulty == isa_name(isa);
    for (size_t i = 0; i < want.size(); ++i) {
      if (!shows_fault(want[i].first)) continue;
      seen += here;
      if ((got[i].second != want[i].second) == here) continue;
      std::printf("fault in %s: %s %s\n", faulty.c_str(), want[i].first.c_str(),
                  here ? "does not show it" : isa_name(isa));
      ++bad;
    }
  }
  std::printf("%s: seen in %d comparisons, %d wrong\n", faulty.c_str(), seen, bad);
  return bad != 0 || seen == 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 3 && std::string(argv[1]) == "--expect-fault") return expect_fault(argv[2]);
  if (argc != 1) {
    std::fprintf(stderr, "usage: check_paths [--expect-fault SET]\n");
    return 3;
  }
  default_context().set_isa(Isa::scalar);
  const Results want = everything();
  Digest total;
  for (const auto& r : want) total.add(&r.second, sizeof r.second);
  int bad = 0;
  for (Isa isa : {Isa::avx2, Isa::avx512, Isa::neon}) {
    if (!isa_supported(isa) || !default_context().set_isa(isa)) continue;
    const Results got = everything();
    for (size_t i = 0; i < want.size(); ++i)
      if (got[i].second != want[i].second) {
        std::printf("%s differs from scalar: %s\n", isa_name(isa), want[i].first.c_str());
        ++bad;
      }
    std::printf("%s: %zu kernels compared\n", isa_name(isa), want.size());
  }
  std::printf("digest %016llx\n", static_cast<unsigned long long>(total.hash));
  if (total.hash != kKnown) {
    std::printf("scalar differs from the known digest %016llx\n",
                static_cast<unsigned long long>(kKnown));
    ++bad;
  }
  return bad != 0;
}
