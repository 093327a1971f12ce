// Sums, means, extremes, argmax and variance (NUMERICS 3.1 - 3.7); squared error's sum (7.4).
#include "folds.hpp"

#include "tallystick/nn_elements.hpp"

namespace tallystick::TS_ISA {

struct ReadSquare {
  TS_INLINE static float load(const FoldParams& p, int64_t at, int64_t, int64_t) {
    const float x = floats(p.x)[at];
    return x * x;
  }
};
struct ReadSquaredDifference {
  TS_INLINE static float load(const FoldParams& p, int64_t at, int64_t, int64_t) {
    const float d = floats(p.x)[at] - floats(p.y)[at];
    return d * d;
  }
};
struct ReadWide {
  TS_INLINE static double load(const FoldParams& p, int64_t at, int64_t, int64_t) {
    return static_cast<double>(floats(p.x)[at]);
  }
};
// a: the mean of each output, binary64 (3.6, 6.12).
struct ReadDeviation {
  TS_INLINE static double load(const FoldParams& p, int64_t at, int64_t o, int64_t) {
    const double d = static_cast<double>(floats(p.x)[at]) - doubles(p.a)[o];
    return d * d;
  }
};
struct ReadBool {
  TS_INLINE static int64_t load(const FoldParams& p, int64_t at, int64_t, int64_t) {
    return static_cast<const uint8_t*>(p.x)[at];
  }
};
template <class T>
struct ReadPlaced {
  TS_INLINE static Placed<T> load(const FoldParams& p, int64_t at, int64_t, int64_t i) {
    return {static_cast<const T*>(p.x)[at], i};
  }
};

TS_FOLD(reduce_sum, Sum, Read<float>)
TS_FOLD(reduce_squares, Sum, ReadSquare)
TS_FOLD(reduce_differences, Sum, ReadSquaredDifference)
TS_FOLD(reduce_wide, Sum64, ReadWide)
TS_FOLD(reduce_deviations, Sum64, ReadDeviation)
TS_FOLD(reduce_sum64, Sum64, Read<double>)
TS_FOLD(reduce_max, Max, Read<float>)
TS_FOLD(reduce_min, Min, Read<float>)
TS_FOLD(reduce_whole_sum, WholeSum, Read<int64_t>)
TS_FOLD(reduce_whole_max, WholeMax, Read<int64_t>)
TS_FOLD(reduce_whole_min, WholeMin, Read<int64_t>)
TS_FOLD(reduce_bool_sum, WholeSum, ReadBool)
TS_FOLD(reduce_place, Place<float>, ReadPlaced<float>)
TS_FOLD(reduce_places, Place<float>, Read<Placed<float>>)
TS_FOLD(reduce_whole_place, Place<int64_t>, ReadPlaced<int64_t>)
TS_FOLD(reduce_whole_places, Place<int64_t>, Read<Placed<int64_t>>)

// The end of 3.6: binary64 sums of squares and means to binary32.
struct Variance {
  const double *squares, *mean;
  float *var, *mean_out;
  int64_t count;
  F64 divisor;
};
TS_KERNEL(reduce_variance, Variance, 256) {
  for (int64_t i = first_item(); i < p.count; i += item_step()) {
    put1(p.var + i, static_cast<float>(p.squares[i] / p.divisor.value));
    put1(p.mean_out + i, static_cast<float>(p.mean[i]));
  }
}

// tallystick.occurrences (3.10): a thread counts for one class of one row.
struct Occurrences {
  const int64_t *tokens, *first, *last;
  int64_t* counts;
  int64_t count, classes, length;
};
TS_KERNEL(reduce_occurrences, Occurrences, 256) {
  for (int64_t i = first_item(); i < p.count; i += item_step()) {
    const int64_t row = i / p.classes, own = i - row * p.classes;
    const int64_t begin = ts_max<int64_t>(p.first[row], 0);
    const int64_t last = ts_min<int64_t>(p.last[row], p.length - 1);
    int64_t found = 0;
    for (int64_t s = begin; s <= last; ++s) found += p.tokens[s] == own;
    p.counts[i] = found;
  }
}

// tallystick.clip_coef (11.6): 0-d tensors side by side, 256 at each launch.
constexpr int kGathered = 256;
struct Gather {
  const float* from[kGathered];
  int64_t count;
  float* to;
};
TS_KERNEL(reduce_gather, Gather, kGathered) {
  const uint32_t i = thread_index();
  if (i < p.count) p.to[i] = *p.from[i];
}
struct Clip {
  const float* total;
  float *coefficient, *norm;
  F32 max_norm;
};
TS_KERNEL(reduce_clip, Clip, 32) {
  if (thread_index() != 0) return;
  const float norm = sqrt1(*p.total);
  put1(p.coefficient, clip_coefficient(norm, p.max_norm.value));
  put1(p.norm, norm);
}

}  // namespace tallystick::TS_ISA
