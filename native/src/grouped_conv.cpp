// Cuts a convolution of many groups into bands, images and blocks of groups, and shares them out.
//
// Compiled once: the sums are the kernels' of the instruction set in use (families/conv.cpp).
#include "grouped_conv.hpp"

#include <algorithm>
#include <new>
#include <utility>

#include "strided_conv.hpp"
#include "thread_pool.hpp"

namespace tallystick {
namespace {

// Floats of a band, its terms and its results: they should stay in the second cache.
constexpr size_t kBandFloats = size_t(40) << 10;
// Results of a band at least, if its row has as many.
constexpr size_t kLeastPlaces = 64;
// The most floats for the terms of kLeastPlaces results.
constexpr double kMostFloats = double(1 << 20);
// Groups of more channels fill a product's tiles. Groups of few may leave half of the lanes empty,
// groups of more a quarter (measured).
constexpr size_t kFewChannels = 8, kMostChannels = 32;
constexpr ptrdiff_t kMostPhases = 64;
// Below this many multiply-adds, waking another thread costs more than it saves.
constexpr double kSerialWork = 200e3;

size_t ceil_of(size_t a, size_t b) { return (a + b - 1) / b; }

struct Rect {
  ptrdiff_t y0, y1, x0, x1;
  size_t area() const { return static_cast<size_t>((y1 - y0) * (x1 - x0)); }
};

// Of `begin`, begin + step, ...: the numbers of those in [low, high).
std::pair<size_t, size_t> numbered(size_t begin, size_t step, ptrdiff_t low, ptrdiff_t high) {
  const auto before = [&](ptrdiff_t end) {
    const size_t e = static_cast<size_t>(end);
    return e <= begin ? size_t(0) : ceil_of(e - begin, step);
  };
  return {before(low), before(high)};
}

// The part of the source (beyond its edges too) where a band's terms lie; empty if it has none.
Rect source_of(const std::vector<Phase>& phases, const Rect& band) {
  Rect r = {0, 0, 0, 0};
  bool any = false;
  for (const Phase& p : phases) {
    const auto [ya, yb] = numbered(p.y0, p.step_y, band.y0, band.y1);
    const auto [xa, xb] = numbered(p.x0, p.step_x, band.x0, band.x1);
    if (p.tap.empty() || ya == yb || xa == xb) continue;
    const auto [up, down] = std::minmax_element(p.dy.begin(), p.dy.end());
    const auto [left, right] = std::minmax_element(p.dx.begin(), p.dx.end());
    const Rect own = {static_cast<ptrdiff_t>(ya) * p.from_y + *up,
                      static_cast<ptrdiff_t>(yb - 1) * p.from_y + *down + 1,
                      static_cast<ptrdiff_t>(xa) * p.from_x + *left,
                      static_cast<ptrdiff_t>(xb - 1) * p.from_x + *right + 1};
    r = any ? Rect{std::min(r.y0, own.y0), std::max(r.y1, own.y1), std::min(r.x0, own.x0),
                   std::max(r.x1, own.x1)}
            : own;
    any = true;
  }
  return r;
}

// Bands of a plane, with what their plain form points to.
class Bands {
 public:
  // `source_each` and `out_each`: floats of a place.
  Bands(const std::vector<Phase>& phases, size_t h, size_t w, size_t source_each, size_t out_each) {
    const ptrdiff_t height = static_cast<ptrdiff_t>(h), width = static_cast<ptrdiff_t>(w);
    const auto cost = [&](const Rect& r) {
      return source_of(phases, r).area() * source_each + r.area() * out_each;
    };
    // All bands are nearly equal, so the first stands for them.
    ptrdiff_t rows = height, cols = width;
    while (rows > 1 && cost({0, rows, 0, width}) > kBandFloats) rows = (rows + 1) / 2;
    const ptrdiff_t least = static_cast<ptrdiff_t>(kLeastPlaces);
    while (rows == 1 && cols > least && cost({0, 1, 0, cols}) > kBandFloats) cols = (cols + 1) / 2;
    for (ptrdiff_t y = 0; y < height; y += rows)
      for (ptrdiff_t x = 0; x < width; x += cols)
        add(phases, {y, std::min(y + rows, height), x, std::min(x + cols, width)});
    floats_ = cost({0, rows, 0, cols});
    for (size_t i = 0; i < at_.size(); ++i)
      places_.push_back({at_[i].size(), at_[i].data(), to_[i].data()});
    for (size_t i = 0; i < bands_.size(); ++i)
      bands_[i].places = places_.data() + i * phases.size();
  }
  const std::vector<ConvBand>& list() const { return bands_; }
  // Images that are computed at once: as many as fit, if a band is a whole plane. `blocks` of them
  // should be enough for the threads.
  size_t images(size_t all, size_t blocks, size_t threads) const {
    if (bands_.size() != 1) return 1;
    const size_t fit = std::max(kBandFloats / std::max(floats_, size_t(1)), size_t(1));
    const size_t fair = std::max(all * blocks / (threads * 4), size_t(1));
    return std::min({all, fit, threads == 1 ? all : fair});
  }

 private:
  void add(const std::vector<Phase>& phases, const Rect& r) {
    const Rect s = source_of(phases, r);
    const ptrdiff_t pitch = s.x1 - s.x0, width = r.x1 - r.x0;
    for (const Phase& p : phases) {
      const auto [ya, yb] = numbered(p.y0, p.step_y, r.y0, r.y1);
      const auto [xa, xb] = numbered(p.x0, p.step_x, r.x0, r.x1);
      std::vector<ptrdiff_t> at;
      std::vector<size_t> to;
      for (size_t y = ya; y < yb; ++y) {
        for (size_t x = xa; x < xb; ++x) {
          at.push_back((static_cast<ptrdiff_t>(y) * p.from_y - s.y0) * pitch +
                       static_cast<ptrdiff_t>(x) * p.from_x - s.x0);
          to.push_back(static_cast<size_t>(
              (static_cast<ptrdiff_t>(p.y0 + y * p.step_y) - r.y0) * width +
              static_cast<ptrdiff_t>(p.x0 + x * p.step_x) - r.x0));
        }
      }
      at_.push_back(std::move(at));
      to_.push_back(std::move(to));
    }
    bands_.push_back({static_cast<size_t>(r.y0), static_cast<size_t>(r.x0),
                      static_cast<size_t>(r.y1 - r.y0), static_cast<size_t>(width), s.y0, s.x0,
                      static_cast<size_t>(s.y1 - s.y0), static_cast<size_t>(pitch), nullptr});
  }

  std::vector<std::vector<ptrdiff_t>> at_;  // of each band and phase
  std::vector<std::vector<size_t>> to_;
  std::vector<BandPlaces> places_;
  std::vector<ConvBand> bands_;
  size_t floats_ = 0;
};

double work_of(const ConvShape& s) {
  return double(s.n) * double(s.o) * double(s.out_plane) * double(s.cg) * double(s.taps);
}

struct SumRun {
  const GroupedSum* s;
  const ConvTable* kernels;
  float* weights;
  size_t weights_each;        // floats of a block
  const ConvBand* band;
  size_t at_once, parts;      // images of a task; tasks of a block
  int failed;
};

void weights_task(void* context, size_t block) {
  SumRun& r = *static_cast<SumRun*>(context);
  r.kernels->weights_in(*r.s, block, r.weights + block * r.weights_each);
}

void sum_task(void* context, size_t t) {
  SumRun& r = *static_cast<SumRun*>(context);
  const size_t block = t / r.parts, image = t % r.parts * r.at_once;
  if (!r.kernels->grouped_sum(*r.s, *r.band, r.weights + block * r.weights_each, block, image,
                              std::min(r.at_once, r.s->images - image)))
    __atomic_store_n(&r.failed, 1, __ATOMIC_RELAXED);
}

bool run_sum(GroupedSum s, const std::vector<Phase>& phases, double work) {
  const ConvTable& kernels = TS_DISPATCH(conv);
  const size_t lanes = kernels.lanes, blocks = ceil_of(s.groups, lanes);
  const size_t threads = work < kSerialWork ? 1 : static_cast<size_t>(thread_count());
  std::vector<ConvPhase> views;
  size_t terms = 0;
  for (const Phase& p : phases) {
    views.push_back(p.view());
    terms += p.tap.size() * s.from;
  }
  s.phases = views.data();
  s.phase_count = views.size();
  const Bands bands(phases, s.h, s.w, s.from * lanes, s.to * lanes);
  const size_t each = terms * s.to * lanes;
  std::vector<float> weights(blocks * each);
  SumRun r = {&s, &kernels, weights.data(), each, nullptr, bands.images(s.images, blocks, threads),
              0, 0};
  r.parts = ceil_of(s.images, r.at_once);
  for_tasks(blocks, weights_task, &r, threads == 1);
  for (const ConvBand& band : bands.list()) {
    r.band = &band;
    for_tasks(blocks * r.parts, sum_task, &r, threads == 1);
    if (r.failed) return false;
  }
  return true;
}

struct Again {
  const ConvShape* s;
  const float *grad, *weight;
};

float sum_again(const void* context, size_t image, size_t group, size_t channel, size_t y,
                size_t x) {
  const Again& a = *static_cast<const Again*>(context);
  const ConvShape& s = *a.s;
  const ConvInputGrad c = {nullptr, a.weight + group * s.og * s.cg * s.taps, nullptr, 1, s.og, s.cg,
                           0, 0, s.g};
  return input_grad_of_every_term(
      c, a.grad + (image * s.groups + group) * s.og * s.out_plane, channel, y, x);
}

struct WeightRun {
  const GroupedWeightGrad* s;
  const ConvTable* kernels;
  const std::vector<ConvBand>* bands;
  size_t at_once, parts;      // tasks of a block
  int failed;
};

void weight_task(void* context, size_t t) {
  WeightRun& r = *static_cast<WeightRun*>(context);
  const size_t block = t / r.parts, part = t % r.parts, width = r.s->cg * r.s->taps;
  if (!r.kernels->grouped_weight_grad(*r.s, r.bands->data(), r.bands->size(), r.at_once, block,
                                      width * part / r.parts, width * (part + 1) / r.parts))
    __atomic_store_n(&r.failed, 1, __ATOMIC_RELAXED);
}

// Runs f; false where a vector's memory could not be had.
template <class F>
bool with_memory(F&& f) {
  try {
    return f();
  } catch (const std::bad_alloc&) {
    return false;
  }
}

}  // namespace

bool lanes_suit(const ConvShape& s) {
  const ConvGeometry& g = s.g;
  if (s.groups < 2 || s.og == 0 || s.cg == 0 || s.n * s.in_plane * s.out_plane == 0) return false;
  const size_t lanes = TS_DISPATCH(conv).lanes;
  const size_t most = std::max(s.og, s.cg), room = ceil_of(s.groups, lanes) * lanes;
  if (most > kMostChannels) return false;
  if (most <= kFewChannels ? 2 * s.groups < room : 4 * s.groups < 3 * room) return false;
  // Every phase of an input gradient has lists of its own.
  if (g.sh * g.sw > kMostPhases) return false;
  // A dilation may set the terms of few results far apart.
  const double rows = double(g.kh - 1) * double(g.dh) + 1;
  const double cols = double(g.kw - 1) * double(g.dw) + double(kLeastPlaces) * double(g.sw) + 1;
  return rows * cols * double(most * lanes) <= kMostFloats;
}

bool grouped_forward(const ConvShape& s, const float* x, const float* w, const float* bias,
                     float* out) {
  return with_memory([&] {
    GroupedSum sum = {};
    sum.images = s.n, sum.groups = s.groups, sum.from = s.cg, sum.to = s.og;
    sum.source_h = s.g.h, sum.source_w = s.g.w, sum.h = s.g.oh, sum.w = s.g.ow;
    sum.source = x, sum.weight = w, sum.bias = bias, sum.out = out;
    sum.weight_group = s.og * s.cg * s.taps;
    sum.weight_from = s.taps;
    sum.weight_to = s.cg * s.taps;
    return run_sum(sum, {forward_phase(s.g, s.cg)}, work_of(s));
  });
}

bool grouped_input_grad(const ConvShape& s, const float* grad, const float* w, float* out) {
  return with_memory([&] {
    const Again again = {&s, grad, w};
    GroupedSum sum = {};
    sum.images = s.n, sum.groups = s.groups, sum.from = s.og, sum.to = s.cg;
    sum.source_h = s.g.oh, sum.source_w = s.g.ow, sum.h = s.g.h, sum.w = s.g.w;
    sum.source = grad, sum.weight = w, sum.out = out;
    sum.weight_group = s.og * s.cg * s.taps;
    sum.weight_from = s.cg * s.taps;
    sum.weight_to = s.taps;
    if (s.g.sh > 1 || s.g.sw > 1) {
      sum.again = &sum_again;
      sum.context = &again;
    }
    std::vector<Phase> phases;
    for (size_t y = 0; y < std::min(static_cast<size_t>(s.g.sh), s.g.h); ++y)
      for (size_t x = 0; x < std::min(static_cast<size_t>(s.g.sw), s.g.w); ++x)
        phases.push_back(input_grad_phase(s.g, s.og, y, x));
    return run_sum(sum, phases, work_of(s));
  });
}

bool grouped_weight_grad(const ConvShape& s, const float* grad, const float* x, float* out) {
  return with_memory([&] {
    const std::vector<Phase> phases = {forward_phase(s.g, s.cg)};
    const ConvTable& kernels = TS_DISPATCH(conv);
    const size_t lanes = kernels.lanes, blocks = ceil_of(s.groups, lanes);
    const size_t threads = work_of(s) < kSerialWork ? 1 : static_cast<size_t>(thread_count());
    const GroupedWeightGrad sum = {s.n, s.groups, s.og, s.cg, s.taps, s.g.h, s.g.w, s.g.oh, s.g.ow,
                                   phases[0].dy.data(), phases[0].dx.data(), grad, x, out};
    const Bands bands(phases, s.g.oh, s.g.ow, s.cg * lanes, s.og * lanes);
    // Every task goes through all images, for the order of the terms is theirs.
    const size_t parts = std::min(ceil_of(threads, blocks), s.cg * s.taps);
    WeightRun r = {&sum, &kernels, &bands.list(), bands.images(s.n, 1, 1), parts, 0};
    for_tasks(blocks * parts, weight_task, &r, threads == 1);
    return r.failed == 0;
  });
}

}  // namespace tallystick
