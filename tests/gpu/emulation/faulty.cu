// Kernels with faults that the emulation must see (test_emulation_faults.py, test_watched.py). No GPU
// ever gets them.
#include "device.hpp"

namespace tallystick {
namespace TS_ISA {

struct Faulty { uint32_t* out; };

// The warps of a block wait for each other at two places.
TS_KERNEL(faulty_barriers, Faulty, 64) {
  if (warp_index() == 0) block_barrier();
  else
    block_barrier();
  p.out[thread_index()] = thread_index();
}

// So do the lanes of a warp.
TS_KERNEL(faulty_shuffles, Faulty, 32) {
  uint32_t found;
  if (lane_index() < 16) found = warp_xor(lane_index(), 1);
  else
    found = warp_xor(lane_index(), 1);
  p.out[thread_index()] = found;
}

// A barrier that some threads never reach.
TS_KERNEL(faulty_deserters, Faulty, 64) {
  p.out[thread_index()] = 0;
  if (thread_index() < 40) block_barrier();
}

// A lane reads what another one of its warp has put into shared memory, as if a shuffle ordered them.
TS_KERNEL(faulty_order, Faulty, 32) {
  TS_SHARED(uint32_t, room, 32);
  room[lane_index()] = lane_index();
  const uint32_t one = warp_xor(1, 1);
  p.out[thread_index()] = room[lane_index() ^ one];
}

// As it must be written.
TS_KERNEL(faulty_mended, Faulty, 32) {
  TS_SHARED(uint32_t, room, 32);
  room[lane_index()] = lane_index();
  warp_barrier();
  p.out[thread_index()] = room[lane_index() ^ 1];
}

// A reader of a word that an atomic operation of another thread changes.
TS_KERNEL(faulty_mixed, Faulty, 64) {
  if (thread_index() == 0) atomic_add(p.out, 1);
  if (thread_index() == 63) p.out[1] = p.out[0];
}

}  // namespace TS_ISA
}  // namespace tallystick
