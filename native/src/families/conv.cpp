// Convolutions of many small groups of channels (NUMERICS 2.6, 2.7): a vector holds the same
// element of as many groups as it has lanes. A band's terms are turned into lanes once, with the
// zeros around the source, and serve all taps from the nearest caches.
#if defined(__GNUC__) && !defined(__clang__)
// gcc 12 takes its own _mm512_undefined_ps() for a mistake of ours.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif

#include "families/conv.hpp"

#include "tallystick/conv_lanes.hpp"
#include "tallystick/gemm_scratch.hpp"
#include "tallystick/reduce.hpp"
#include "tallystick/ts_base.hpp"
#include "thread_pool.hpp"

namespace tallystick {
namespace TS_ISA {

static thread_local Scratch source_scratch, out_scratch, index_scratch;

// Distances within the packed operands, as many as `count`; null if memory could not be had.
static ptrdiff_t* distances(size_t count) {
  return reinterpret_cast<ptrdiff_t*>(
      index_scratch.get(count * (sizeof(ptrdiff_t) / sizeof(float)) + 1));
}

// Lanes beyond the last group repeat it. Their results are never stored.
TS_INLINE void lane_rows(size_t block, size_t groups, size_t each, ptrdiff_t row[kLanes]) {
  for (size_t l = 0; l < size_t(kLanes); ++l)
    row[l] = static_cast<ptrdiff_t>(ts_min(block * kLanes + l, groups - 1) * each);
}

TS_INLINE size_t lanes_of(size_t block, size_t groups) {
  return ts_min(groups - block * kLanes, size_t(kLanes));
}

// A band's part of one channel's planes, to[row][column] `step` floats apart, +0 beyond the edges.
static void plane_in(const float* plane, const ptrdiff_t row[kLanes], size_t h, size_t w,
                     const ConvBand& band, size_t step, float* to) {
  const ptrdiff_t rows = static_cast<ptrdiff_t>(band.source_rows);
  const ptrdiff_t cols = static_cast<ptrdiff_t>(band.source_cols);
  const auto inside = [](ptrdiff_t at, ptrdiff_t low, ptrdiff_t high) {
    return ts_min(ts_max(at, low), high);
  };
  const ptrdiff_t y0 = inside(-band.source_y0, 0, rows);
  const ptrdiff_t y1 = inside(static_cast<ptrdiff_t>(h) - band.source_y0, y0, rows);
  const ptrdiff_t x0 = inside(-band.source_x0, 0, cols);
  const ptrdiff_t x1 = inside(static_cast<ptrdiff_t>(w) - band.source_x0, x0, cols);
  const auto zeros = [&](ptrdiff_t y, ptrdiff_t from, ptrdiff_t end) {
    for (float* at = to + (y * cols + from) * static_cast<ptrdiff_t>(step); from < end; ++from) {
      gv_store(at, gv_zero());
      at += step;
    }
  };
  for (ptrdiff_t y = 0; y < rows; ++y) {
    if (y < y0 || y >= y1 || x0 == x1) {
      zeros(y, 0, cols);
    } else {
      zeros(y, 0, x0);
      zeros(y, x1, cols);
    }
  }
  if (y0 == y1 || x0 == x1) return;
  const size_t width = static_cast<size_t>(x1 - x0), height = static_cast<size_t>(y1 - y0);
  const float* src = plane + (band.source_y0 + y0) * static_cast<ptrdiff_t>(w) + band.source_x0 + x0;
  float* first = to + (y0 * cols + x0) * static_cast<ptrdiff_t>(step);
  const size_t pitch = band.source_cols * step;
  if (width == w) {
    lanes_in(src, row, height * width, 0, width, first, step, pitch - width * step);
    return;
  }
  for (size_t y = 0; y < height; ++y)
    lanes_in(src + y * w, row, width, 0, width, first + y * pitch, step, 0);
}

static void weights_in(const GroupedSum& s, size_t block, float* to) {
  ptrdiff_t row[kLanes];
  lane_rows(block, s.groups, s.weight_group, row);
  const Parts rows(s.to, kTileRows);
  for (size_t i = 0; i < s.phase_count; ++i) {
    const ConvPhase& p = s.phases[i];
    for (size_t part = 0; part < rows.count; ++part) {
      const size_t r0 = rows.begin(part), r1 = r0 + rows.size(part);
      for (size_t from = 0; from < s.from; ++from) {
        for (size_t t = 0; t < p.taps; ++t) {
          for (size_t r = r0; r < r1; ++r) {
            const float* src = s.weight + from * s.weight_from + r * s.weight_to + p.tap[t];
            for (int l = 0; l < kLanes; ++l) *to++ = src[row[l]];
          }
        }
      }
    }
  }
}

struct Packed {
  const float* source;
  float* out;
  size_t source_image, out_image;   // floats from one image to the next
  size_t out_channel;               // and from one channel of the results
};

// All results of a phase, for images that are packed one after the other.
static void phase_sum(const GroupedSum& s, const ConvPhase& p, const BandPlaces& places,
                      const Packed& packed, const ptrdiff_t* at, const float* weights,
                      const float* bias, size_t images) {
  const size_t total = places.count * images;
  if (p.chunks == 0) {
    for (size_t i = 0; i < total; ++i) {
      float* to = packed.out + i / places.count * packed.out_image +
                  places.to[i % places.count] * kLanes;
      for (size_t r = 0; r < s.to; ++r)
        gv_store(to + r * packed.out_channel, finish(gv_zero(), kLast));
    }
    return;
  }
  const Parts rows(s.to, kTileRows);
  const LaneTileTable& table = lane_tiles();
  LaneTile tile = {};
  tile.out_step = packed.out_channel;
  for (size_t i = 0; i < rows.count; ++i) {
    const size_t r0 = rows.begin(i), height = rows.size(i);
    const Parts cols(total, kTileWidth[height]);
    tile.bias = bias == nullptr ? nullptr : bias + r0 * kLanes;
    for (size_t c = 0; c < p.chunks; ++c) {
      const size_t k = c == 0 ? 0 : p.chunk_ends[c - 1];
      tile.a = weights + (s.from * p.taps * r0 + k * height) * kLanes;
      tile.at = at + k;
      tile.terms = p.chunk_ends[c] - k;
      tile.flags = (c == 0 ? kFirst : 0) | (c + 1 == p.chunks ? kLast : 0);
      size_t image = 0, place = 0;
      for (size_t j = 0; j < cols.count; ++j) {
        const size_t width = cols.size(j);
        for (size_t q = 0; q < width; ++q) {
          tile.x[q] = packed.source + image * packed.source_image + places.at[place] * kLanes;
          tile.out[q] = packed.out + image * packed.out_image + r0 * packed.out_channel +
                        places.to[place] * kLanes;
          if (++place == places.count) {
            place = 0;
            ++image;
          }
        }
        table.fn[height][width](tile);
      }
    }
  }
}

// Results of -0 that a sum with every term may not have (strided_conv.cpp).
static void sum_again(const GroupedSum& s, const ConvBand& band, float* out, size_t block,
                      size_t image, size_t channel) {
  const size_t area = band.rows * band.cols, lanes = lanes_of(block, s.groups);
  size_t found = 0;
  for (size_t i = 0; i < area * kLanes; ++i) found += float_bits(out[i]) == 0x80000000u;
  if (found == 0) return;
  for (size_t i = 0; i < area; ++i) {
    for (size_t l = 0; l < lanes; ++l) {
      float& value = out[i * kLanes + l];
      if (float_bits(value) == 0x80000000u)
        value = s.again(s.context, image, block * kLanes + l, channel, band.y0 + i / band.cols,
                        band.x0 + i % band.cols);
    }
  }
}

static bool grouped_sum(const GroupedSum& s, const ConvBand& band, const float* weights,
                        size_t block, size_t image, size_t images) {
  const size_t place = band.source_rows * band.source_cols * kLanes;  // floats of a channel
  const size_t area = band.rows * band.cols;
  float* source = source_scratch.get(images * s.from * place + 1);
  float* out = out_scratch.get(images * s.to * area * kLanes + s.to * kLanes);
  size_t most = 1;
  for (size_t i = 0; i < s.phase_count; ++i) most = ts_max(most, s.phases[i].taps * s.from);
  ptrdiff_t* at = distances(most);
  if (source == nullptr || out == nullptr || at == nullptr) return false;

  ptrdiff_t row[kLanes];
  lane_rows(block, s.groups, s.from * s.source_h * s.source_w, row);
  if (place != 0) {
    for (size_t i = 0; i < images; ++i) {
      for (size_t c = 0; c < s.from; ++c)
        plane_in(s.source + ((image + i) * s.groups * s.from + c) * s.source_h * s.source_w, row,
                 s.source_h, s.source_w, band, kLanes, source + (i * s.from + c) * place);
    }
  }
  float* bias = nullptr;
  if (s.bias != nullptr) {
    bias = out + images * s.to * area * kLanes;
    lane_rows(block, s.groups, s.to, row);
    for (size_t r = 0; r < s.to; ++r)
      for (int l = 0; l < kLanes; ++l) bias[r * kLanes + l] = s.bias[row[l] + r];
  }
  const Packed packed = {source, out, s.from * place, s.to * area * kLanes, area * kLanes};
  for (size_t i = 0; i < s.phase_count; ++i) {
    const ConvPhase& p = s.phases[i];
    ptrdiff_t* next = at;
    for (size_t c = 0; c < s.from; ++c) {
      for (size_t t = 0; t < p.taps; ++t)
        *next++ = static_cast<ptrdiff_t>(c * place) +
                  (p.dy[t] * static_cast<ptrdiff_t>(band.source_cols) + p.dx[t]) * kLanes;
    }
    phase_sum(s, p, band.places[i], packed, at, weights, bias, images);
    weights += s.from * p.taps * s.to * kLanes;
  }
  const size_t plane = s.h * s.w;
  for (size_t i = 0; i < images; ++i) {
    for (size_t r = 0; r < s.to; ++r) {
      float* results = out + (i * s.to + r) * area * kLanes;
      if (s.again != nullptr) sum_again(s, band, results, block, image + i, r);
      lanes_out(results, area, lanes_of(block, s.groups),
                s.out + (((image + i) * s.groups + block * kLanes) * s.to + r) * plane +
                    band.y0 * s.w + band.x0,
                s.to * plane);
    }
  }
  return true;
}

// --- weight gradient -----------------------------------------------------------------------------
// Sums of the weights [first, last) of each output channel of a block's groups.
struct WeightSums {
  const GroupedWeightGrad* s;
  size_t first, width;
  float *partial, *total;     // [og][width][lane]
  size_t terms, chunks;       // of the chunk that is under way; of those before it
};

static void end_chunk(WeightSums& sums) {
  const size_t n = sums.s->og * sums.width * kLanes;
  for (size_t i = 0; i < n; i += kLanes) {
    const gv p = gv_load(sums.partial + i);
    gv_store(sums.total + i, sums.chunks == 0 ? p : gv_add(gv_load(sums.total + i), p));
  }
  sums.terms = 0;
  ++sums.chunks;
}

// The terms of `count` outputs in order. Their gradients lie by the rows of tiles,
// grad[tile][.][row][lane], and their taps at at[.] + tap.
static void add_terms(WeightSums& sums, const float* grad, const float* x, const ptrdiff_t* at,
                      const ptrdiff_t* tap, size_t count) {
  const size_t og = sums.s->og;
  const Parts rows(og, kTileRows);
  const LaneTileTable& table = lane_tiles();
  LaneTile tile = {};
  tile.out_step = sums.width * kLanes;
  for (size_t k = 0; k < count;) {
    const size_t here = ts_min(count - k, kChunk - sums.terms);
    tile.at = at + k;
    tile.terms = here;
    tile.flags = kCarry | (sums.terms == 0 ? kFirst : 0);
    for (size_t i = 0; i < rows.count; ++i) {
      const size_t r0 = rows.begin(i), height = rows.size(i);
      const Parts cols(sums.width, kTileWidth[height]);
      tile.a = grad + (count * r0 + k * height) * kLanes;
      for (size_t j = 0; j < cols.count; ++j) {
        const size_t width = cols.size(j);
        for (size_t q = 0; q < width; ++q) {
          const size_t t = cols.begin(j) + q;
          tile.x[q] = x + tap[t];
          tile.out[q] = sums.partial + (r0 * sums.width + t) * kLanes;
        }
        table.fn[height][width](tile);
      }
    }
    k += here;
    sums.terms += here;
    if (sums.terms == kChunk) end_chunk(sums);
  }
}

static bool grouped_weight_grad(const GroupedWeightGrad& s, const ConvBand* bands, size_t count,
                                size_t at_once, size_t block, size_t first, size_t last) {
  const size_t width = last - first, channel0 = first / s.taps;
  const size_t channels = ceil_div(last, s.taps) - channel0;
  size_t source_most = 0, area_most = 0;
  for (size_t b = 0; b < count; ++b) {
    source_most = ts_max(source_most, bands[b].source_rows * bands[b].source_cols * kLanes);
    area_most = ts_max(area_most, bands[b].rows * bands[b].cols);
  }
  const size_t sums_size = s.og * width * kLanes, grad_size = at_once * area_most * s.og * kLanes;
  float* x = source_scratch.get(at_once * channels * source_most);
  float* grad = out_scratch.get(2 * sums_size + grad_size);
  ptrdiff_t* tap = distances(width + at_once * area_most);
  if (x == nullptr || grad == nullptr || tap == nullptr) return false;
  ptrdiff_t* at = tap + width;
  WeightSums sums = {&s, first, width, grad + grad_size, grad + grad_size + sums_size, 0, 0};

  const Parts rows(s.og, kTileRows);
  ptrdiff_t x_row[kLanes], grad_row[kLanes];
  lane_rows(block, s.groups, s.cg * s.h * s.w, x_row);
  lane_rows(block, s.groups, s.og * s.oh * s.ow, grad_row);
  for (size_t image = 0; image < s.images; image += at_once) {
    const size_t images = ts_min(at_once, s.images - image);
    for (size_t b = 0; b < count; ++b) {
      const ConvBand& band = bands[b];
      const size_t place = band.source_rows * band.source_cols * kLanes;
      const size_t area = band.rows * band.cols;
      const ConvBand own = {0, 0, 0, 0, static_cast<ptrdiff_t>(band.y0),
                            static_cast<ptrdiff_t>(band.x0), band.rows, band.cols, nullptr};
      for (size_t i = 0; i < images; ++i) {
        for (size_t c = 0; c < channels; ++c)
          plane_in(s.x + ((image + i) * s.groups * s.cg + channel0 + c) * s.h * s.w, x_row, s.h,
                   s.w, band, kLanes, x + (i * channels + c) * place);
        for (size_t part = 0; part < rows.count; ++part) {
          const size_t r0 = rows.begin(part), height = rows.size(part);
          float* to = grad + (images * area * r0 + i * area * height) * kLanes;
          for (size_t r = 0; r < height; ++r)
            plane_in(s.grad + ((image + i) * s.groups * s.og + r0 + r) * s.oh * s.ow, grad_row,
                     s.oh, s.ow, own, height * kLanes, to + r * kLanes);
        }
        for (size_t q = 0; q < area; ++q)
          at[i * area + q] = static_cast<ptrdiff_t>(i * channels * place) +
                             band.places->at[q] * kLanes;
      }
      for (size_t t = 0; t < width; ++t) {
        const size_t c = (first + t) / s.taps, j = (first + t) % s.taps;
        tap[t] = static_cast<ptrdiff_t>((c - channel0) * place) +
                 (s.dy[j] * static_cast<ptrdiff_t>(band.source_cols) + s.dx[j]) * kLanes;
      }
      add_terms(sums, grad, x, at, tap, images * area);
    }
  }
  if (sums.terms != 0) end_chunk(sums);
  const size_t lanes = lanes_of(block, s.groups), each = s.cg * s.taps;
  for (size_t l = 0; l < lanes; ++l) {
    for (size_t o = 0; o < s.og; ++o) {
      float* to = s.out + ((block * kLanes + l) * s.og + o) * each + first;
      for (size_t t = 0; t < width; ++t)
        to[t] = planted(canonical_nan(sums.total[(o * width + t) * kLanes + l]));
    }
  }
  return true;
}

// --- bias gradient: SUM of NUMERICS 3.1 over (n, y, x) ------------------------------------------
struct BiasRun {
  const float* grad;
  size_t n, o, plane;
  float* out;
  int failed;
};

static void bias_task(void* ctx, size_t channel) {
  BiasRun& r = *static_cast<BiasRun*>(ctx);
  const size_t len = r.n * r.plane;
  float* x = source_scratch.get(ts_max(len, size_t(1)));
  if (x == nullptr) {
    __atomic_store_n(&r.failed, 1, __ATOMIC_RELAXED);
    return;
  }
  for (size_t i = 0; i < r.n; ++i)
    std::memcpy(x + i * r.plane, r.grad + (i * r.o + channel) * r.plane, r.plane * sizeof(float));
  r.out[channel] = planted(canonical_nan(sum_row(x, len)));
}

static bool bias_grad(const float* grad, size_t n, size_t o, size_t plane, float* out) {
  BiasRun r = {grad, n, o, plane, out, 0};
  parallel_for(o, bias_task, &r);
  return r.failed == 0;
}

}  // namespace TS_ISA

TS_DEFINE_TABLE(ConvTable, conv) = {
    size_t(TS_ISA::kLanes), &TS_ISA::weights_in, &TS_ISA::grouped_sum, &TS_ISA::grouped_weight_grad,
    &TS_ISA::bias_grad};

}  // namespace tallystick
