// Copies of strided tensors: bits move, values are never read (NUMERICS 9).
#include "device.hpp"

namespace tallystick {
namespace TS_ISA {

struct CopyStrided {
  Space space;
  Strides strides[1];
  const void* source;
  void* target;
};

template <class T>
TS_INLINE void copy_strided(const CopyStrided& p) {
  const T* source = static_cast<const T*>(p.source);
  T* target = static_cast<T*>(p.target);
  for (int64_t i = first_item(); i < p.space.count; i += item_step())
    target[i] = source[places<1>(p.space, p.strides, i).at[0]];
}

TS_KERNEL(copy_strided_1, CopyStrided, 256) { copy_strided<uint8_t>(p); }
TS_KERNEL(copy_strided_4, CopyStrided, 256) { copy_strided<uint32_t>(p); }
TS_KERNEL(copy_strided_8, CopyStrided, 256) { copy_strided<uint64_t>(p); }

}  // namespace TS_ISA
}  // namespace tallystick
