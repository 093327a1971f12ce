// Max pooling and its gradient (NUMERICS 6.15, 6.16).
#include "device.hpp"

#include "tallystick/simd_f32.hpp"

namespace tallystick::TS_ISA {

struct PoolShape {
  int64_t planes, size[2], outputs[2];  // rows and columns
  int64_t kernel[2], stride[2], padding[2], dilation[2];
};
struct PoolForward {
  PoolShape shape;
  const float* x;
  float* y;
  int64_t* index;
};

TS_KERNEL(pool_forward, PoolForward, 256) {
  const PoolShape& s = p.shape;
  const int64_t outputs = s.outputs[0] * s.outputs[1];
  for (int64_t item = first_item(); item < s.planes * outputs; item += item_step()) {
    const int64_t plane = item / outputs, rest = item - plane * outputs;
    const int64_t oy = rest / s.outputs[1], ox = rest - oy * s.outputs[1];
    const float* x = p.x + plane * s.size[0] * s.size[1];
    const int64_t top = oy * s.stride[0] - s.padding[0], left = ox * s.stride[1] - s.padding[1];
    // Every comparison is of the best place so far with a later one, so the lowest index stays.
    int64_t best = -1;
    float value = 0.0f;
    for (int64_t i = 0; i < s.kernel[0]; ++i) {
      const int64_t row = top + i * s.dilation[0];
      if (row < 0) continue;
      if (row >= s.size[0]) break;
      for (int64_t j = 0; j < s.kernel[1]; ++j) {
        const int64_t column = left + j * s.dilation[1];
        if (column < 0) continue;
        if (column >= s.size[1]) break;
        const int64_t place = row * s.size[1] + column;
        const float v = x[place];
        if (best < 0 || v > value || (v != v && value == value)) {
          best = place;
          value = v;
        }
      }
    }
    put1(p.y + item, value);
    p.index[item] = best;
  }
}

// The gradient adds to each place the sources whose index it is, in their order (4.1). An index that
// pooling made lies in its output's window, so a place looks at the windows over it. Planes with any
// other index are marked; there every place looks at every source.
struct PoolBackward {
  PoolShape shape;
  const float* g;
  const int64_t* index;
  float* out;
  uint8_t* marked;  // of every plane
  Refusal refusal;
};

TS_INLINE bool in_window(const PoolShape& s, int axis, int64_t output, int64_t place) {
  const int64_t origin = output * s.stride[axis] - s.padding[axis];
  return place >= origin && place - origin <= (s.kernel[axis] - 1) * s.dilation[axis];
}
TS_KERNEL(pool_check, PoolBackward, 256) {
  const PoolShape& s = p.shape;
  const int64_t outputs = s.outputs[0] * s.outputs[1], limit = s.size[0] * s.size[1];
  TS_SHARED(uint32_t, other, 1);
  for (int64_t plane = block_x(); plane < s.planes; plane += grid_x()) {
    if (thread_index() == 0) other[0] = 0;
    block_barrier();
    bool is_other = false;
    for (int64_t i = thread_index(); i < outputs; i += thread_count()) {
      const int64_t place = p.index[plane * outputs + i];
      if (place < 0 || place >= limit) {
        refuse(p.refusal, plane * outputs + i);
        continue;
      }
      const int64_t row = place / s.size[1], oy = i / s.outputs[1];
      is_other = is_other || !in_window(s, 0, oy, row) ||
                 !in_window(s, 1, i - oy * s.outputs[1], place - row * s.size[1]);
    }
    if (is_other) atomic_max(other, 1u);
    block_barrier();
    if (thread_index() == 0) p.marked[plane] = static_cast<uint8_t>(other[0]);
    block_barrier();
  }
}

struct Range { int64_t first, last; };
// The outputs whose windows may hold `place` of an axis.
TS_INLINE Range windows_over(const PoolShape& s, int axis, int64_t place) {
  const int64_t from_start = place + s.padding[axis];
  const int64_t beyond = from_start - (s.kernel[axis] - 1) * s.dilation[axis];
  return {beyond <= 0 ? 0 : (beyond + s.stride[axis] - 1) / s.stride[axis],
          ts_min(s.outputs[axis], from_start / s.stride[axis] + 1)};
}
TS_KERNEL(pool_backward, PoolBackward, 256) {
  const PoolShape& s = p.shape;
  const int64_t outputs = s.outputs[0] * s.outputs[1], size = s.size[0] * s.size[1];
  for (int64_t item = first_item(); item < s.planes * size; item += item_step()) {
    const int64_t plane = item / size, place = item - plane * size;
    const int64_t row = place / s.size[1];
    Range rows = {0, s.outputs[0]}, columns = {0, s.outputs[1]};
    if (!p.marked[plane]) {
      rows = windows_over(s, 0, row);
      columns = windows_over(s, 1, place - row * s.size[1]);
    }
    const float* g = p.g + plane * outputs;
    const int64_t* index = p.index + plane * outputs;
    float sum = 0.0f;
    for (int64_t oy = rows.first; oy < rows.last; ++oy)
      for (int64_t ox = columns.first; ox < columns.last; ++ox)
        if (index[oy * s.outputs[1] + ox] == place) sum = sum + g[oy * s.outputs[1] + ox];
    put1(p.out + item, sum);
  }
}

}  // namespace tallystick::TS_ISA
