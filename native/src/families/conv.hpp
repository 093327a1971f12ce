// Convolutions of many small groups of channels, depthwise ones above all (NUMERICS 2.6, 2.7), and
// the bias gradient. Plain structs only, as in gemm.hpp; grouped_conv.cpp fills them.
#pragma once
#include "families/gemm.hpp"

namespace tallystick {

// Results at every step-th row and column, whose terms lie at the same distances: all results of a
// convolution; of a strided one's input gradient those of equal remainder.
struct ConvPhase {
  size_t y0, x0;              // the first result
  size_t step_y, step_x;      // from one result to the next
  ptrdiff_t from_y, from_x;   // as far apart lie their terms in the source
  size_t taps;                // of a channel
  const ptrdiff_t *dy, *dx;   // the first result's terms in the source
  const size_t* tap;          // and their places in the kernel
  const size_t* chunk_ends;   // over (source channel, tap): the chunks of NUMERICS 2.1
  size_t chunks;
};

// Places of one phase's results in a band: of the terms' origin in the packed source and of the
// result in the packed results.
struct BandPlaces {
  size_t count;
  const ptrdiff_t* at;
  const size_t* to;
};

// The results that a thread computes at once: whole rows of their plane, or a part of one row.
struct ConvBand {
  size_t y0, x0, rows, cols;
  // Where their terms lie, beyond the source's edges too.
  ptrdiff_t source_y0, source_x0;
  size_t source_rows, source_cols;
  const BandPlaces* places;   // of each phase
};

// Forward, or input gradient. Tensors are C-contiguous: [images, groups, channels, plane].
struct GroupedSum {
  size_t images, groups;
  size_t from, to;            // channels of a group: of the source, of the results
  size_t source_h, source_w, h, w;
  const float *source, *weight;
  const float* bias;          // [groups, to], or null
  float* out;
  // Elements of the weight from one group, source channel, result channel to the next.
  size_t weight_group, weight_from, weight_to;
  const ConvPhase* phases;
  size_t phase_count;
  // What a result of -0 becomes; null: it stays.
  float (*again)(const void* context, size_t image, size_t group, size_t channel, size_t y,
                 size_t x);
  const void* context;
};

struct GroupedWeightGrad {
  size_t images, groups, og, cg, taps;
  size_t h, w, oh, ow;
  const ptrdiff_t *dy, *dx;   // the input's taps for the first output
  const float *grad, *x;
  float* out;                 // [groups, og, cg, taps]
};

struct ConvTable {
  size_t lanes;               // groups that are computed at once: a block
  // The weights of a block's lanes: to[phase][tile of rows][source channel, tap][row][lane], the
  // rows being result channels.
  void (*weights_in)(const GroupedSum& s, size_t block, float* to);
  // A band of some images, whose number lies in `images`. `weights` as above.
  bool (*grouped_sum)(const GroupedSum& s, const ConvBand& band, const float* weights,
                      size_t block, size_t image, size_t images);
  // All images, `at_once` of them packed together; weights [first, last) of a group's cg * taps.
  bool (*grouped_weight_grad)(const GroupedWeightGrad& s, const ConvBand* bands, size_t count,
                              size_t at_once, size_t block, size_t first, size_t last);
  // Bias gradient (NUMERICS 2.7, 3.1) of grad[n, o, plane] into out[o].
  bool (*bias_grad)(const float* grad, size_t n, size_t o, size_t plane, float* out);
};

TS_DECLARE_TABLES(ConvTable, conv)

}  // namespace tallystick
