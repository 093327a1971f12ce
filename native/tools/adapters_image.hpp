// Vector calls of the image table (NUMERICS 6.12 - 6.16).
#pragma once
#include "families/image.hpp"
#include "vector_file.hpp"

namespace vectors {
using namespace tallystick;

inline BatchNormShape channels_of(const Tensor& x) {
  BatchNormShape s = {x.shape[0], x.shape[1], 1};
  for (size_t d = 2; d < x.shape.size(); ++d) s.inner *= x.shape[d];
  return s;
}

inline void run_batch_norm(Case& c) {
  const BatchNormShape s = channels_of(c.in[0]);
  std::vector<float> row(s.batch * s.inner + 1);
  const bool running = c.got.size() > 3;
  TS_DISPATCH(image).batch_norm(
      {s, c.in[0].f32(), c.input(1).f32(), c.input(2).f32(), c.input(3).f32(), c.input(4).f32(),
       static_cast<float>(c.f("momentum")), c.f("eps"), c.got[0].f32(),
       c.got[1].f32(), c.got[2].f32(), running ? c.got[3].f32() : nullptr,
       running ? c.got[4].f32() : nullptr},
      0, s.channels, row.data());
}

inline void run_batch_norm_eval(Case& c) {
  const BatchNormShape s = channels_of(c.in[0]);
  TS_DISPATCH(image).batch_norm_eval(
      {s, c.in[0].f32(), c.input(1).f32(), c.input(2).f32(), c.in[3].f32(), c.in[4].f32(),
       static_cast<float>(c.f("eps")), c.got[0].f32()},
      0, s.channels);
}

inline void run_batch_norm_backward(Case& c) {
  const BatchNormShape s = channels_of(c.in[1]);
  std::vector<float> rows(2 * s.batch * s.inner + 1);
  const bool train = c.flag("train");
  const auto out = c.wanted();
  TS_DISPATCH(image).batch_norm_backward(
      {s, c.in[0].f32(), c.in[1].f32(), c.input(2).f32(), c.input(train ? 5 : 3).f32(),
       c.input(train ? 6 : 4).f32(), train, static_cast<float>(c.f("eps")), out[0], out[1],
       out[2]},
      0, s.channels, rows.data());
}

inline size_t planes_of(const Tensor& x) {
  size_t planes = 1;
  for (size_t d = 0; d + 2 < x.shape.size(); ++d) planes *= x.shape[d];
  return planes;
}

inline void run_max_pool(Case& c) {
  const size_t rank = c.in[0].shape.size();
  const auto &in = c.in[0].shape, &out = c.got[0].shape;
  PoolShape s = {in[rank - 2], in[rank - 1], out[rank - 2], out[rank - 1], {}, {}, {}, {}};
  for (size_t a = 0; a < 2; ++a) {
    s.kernel[a] = static_cast<size_t>(c.pair("kernel_size")[a]);
    s.stride[a] = static_cast<ptrdiff_t>(c.pair("stride")[a]);
    s.padding[a] = static_cast<ptrdiff_t>(c.pair("padding")[a]);
    s.dilation[a] = static_cast<ptrdiff_t>(c.pair("dilation")[a]);
  }
  TS_DISPATCH(image).max_pool(s, c.in[0].f32(), c.got[0].f32(), c.got[1].as<int64_t>(), 0,
                              planes_of(c.in[0]));
}

inline void run_max_pool_backward(Case& c) {
  const size_t rank = c.in[0].shape.size();
  const auto &grad = c.in[0].shape, &out = c.got[0].shape;
  TS_DISPATCH(image).max_pool_backward(c.in[0].f32(), c.in[2].as<int64_t>(),
                                       grad[rank - 2] * grad[rank - 1],
                                       out[rank - 2] * out[rank - 1], c.got[0].f32(), 0,
                                       planes_of(c.in[0]));
}

}  // namespace vectors
