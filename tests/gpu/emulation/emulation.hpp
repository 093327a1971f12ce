// A small emulation of a GPU, for native/cuda/device.hpp: grids, blocks, shared memory, barriers and
// warp shuffles. Threads are fibers. Between two barriers the threads of a block run one after the
// other in a random order, warps far apart or together, and blocks run in a random order: a kernel
// whose result depends on either gives other bits with another seed. Shared memory starts as a pattern,
// so that a read before the write is seen.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>

#define TS_SHARED(type, name, count)       \
  static const char ts_shared_of_##name = 0; \
  type* const name =                       \
      static_cast<type*>(::emulation::shared(&ts_shared_of_##name, sizeof(type) * (count)))
#define TS_DYNAMIC_SHARED(type, name) \
  type* const name = static_cast<type*>(::emulation::dynamic_shared())
#define TS_UNROLL
#define TS_ROLLED
#define TS_KERNEL_AT_ONCE(name, Params, most_threads, at_once) TS_KERNEL(name, Params, most_threads)
#define TS_UNROLL_BY(times)
#define TS_KERNEL(name, Params, most_threads)                                              \
  static void name(const Params& p);                                                       \
  static const ::emulation::Registered ts_registered_##name(                               \
      #name, __FILE__, sizeof(Params), most_threads,                                                \
      [](const void* params) { name(*static_cast<const Params*>(params)); });              \
  static void name([[maybe_unused]] const Params& p)

namespace emulation {

extern int planted;  // a Fault of device.hpp
using Body = void (*)(const void* params);
struct Registered {
  Registered(const char* name, const char* file, size_t param_bytes, uint32_t most_threads, Body body);
};

struct Where { uint32_t thread, threads, block[3], grid[3]; };
const Where& here();
void* shared(const void* key, size_t bytes);
void* dynamic_shared();
// A place of a kernel's source, at which all threads of a block or of a warp must meet. As a default
// argument it is that of the caller.
struct Source { const char* file; int line; };
#define TS_CALLER ::emulation::Source from = {__builtin_FILE(), __builtin_LINE()}
void block_barrier(const Source& from);
void warp_barrier(const Source& from);
// Each lane of the warp gives 8 bytes; each gets those of lane `lane`.
uint64_t exchange(uint64_t mine, uint32_t lane, const Source& from);
uint32_t ballot(bool mine, const Source& from);
// A copy of `bytes` bytes, those beyond `inside` zeros. It happens at once or when the thread waits
// for it, at random: a kernel that does not wait, or that overwrites too early, gives other bits.
void async_copy(void* to, const void* from, uint32_t bytes, uint32_t inside);
void async_commit();
void async_wait(uint32_t newest);
// Fibers of one host thread take turns, so a plain operation is an atomic one. It stands in the
// engine, where the look for races knows it from a plain access of a kernel.
enum class Atomic { min_of, max_of, add_of, or_of, and_of };
void atomic(Atomic operation, uint32_t* at, uint32_t value);
void atomic(Atomic operation, uint64_t* at, uint64_t value);
uint32_t atomic_read(const uint32_t* at);
// Of device.hpp, by all lanes of a warp together.
void matrix_load4(uint32_t* to, const void* row, const Source& from);
void matrix_multiply(int32_t* sum, const uint32_t* a, uint32_t b0, uint32_t b1, const Source& from);

}  // namespace emulation

namespace tallystick {
namespace TS_ISA {

TS_INLINE bool has_fault(Fault fault) { return ::emulation::planted == static_cast<int>(fault); }
TS_INLINE uint32_t thread_index() { return ::emulation::here().thread; }
TS_INLINE uint32_t thread_count() { return ::emulation::here().threads; }
TS_INLINE uint32_t block_x() { return ::emulation::here().block[0]; }
TS_INLINE uint32_t block_y() { return ::emulation::here().block[1]; }
TS_INLINE uint32_t block_z() { return ::emulation::here().block[2]; }
TS_INLINE uint32_t grid_x() { return ::emulation::here().grid[0]; }
TS_INLINE uint32_t grid_y() { return ::emulation::here().grid[1]; }
TS_INLINE void block_barrier(TS_CALLER) { ::emulation::block_barrier(from); }
TS_INLINE void warp_barrier(TS_CALLER) { ::emulation::warp_barrier(from); }
template <class T>
TS_INLINE T warp_from(T value, uint32_t lane, TS_CALLER) {
  static_assert(sizeof(T) <= 8, "a shuffle moves at most 8 bytes");
  uint64_t bytes = 0;
  std::memcpy(&bytes, &value, sizeof(T));
  bytes = ::emulation::exchange(bytes, lane % 32, from);
  std::memcpy(&value, &bytes, sizeof(T));
  return value;
}
template <class T>
TS_INLINE T warp_xor(T value, uint32_t mask, TS_CALLER) {
  return warp_from(value, (thread_index() % 32) ^ mask, from);
}
TS_INLINE uint32_t warp_ballot(bool value, TS_CALLER) { return ::emulation::ballot(value, from); }

TS_INLINE void async_copy1(float* to, const float* from, bool inside = true) {
  ::emulation::async_copy(to, from, 4, inside ? 4 : 0);
}
TS_INLINE void async_copy4(float* to, const float* from, int inside = 4) {
  ::emulation::async_copy(to, from, 16, static_cast<uint32_t>(4 * inside));
}
TS_INLINE void async_commit() { ::emulation::async_commit(); }
template <int Newest>
TS_INLINE void async_wait() { ::emulation::async_wait(Newest); }

TS_INLINE void matrix_load4(uint32_t (&to)[4], const int8_t* row, TS_CALLER) {
  ::emulation::matrix_load4(to, row, from);
}
TS_INLINE void matrix_multiply(int32_t (&sum)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1,
                               TS_CALLER) {
  ::emulation::matrix_multiply(sum, a, b0, b1, from);
}

#define TS_ATOMIC(name, type) \
  TS_INLINE void atomic_##name(type* at, type value) { \
    ::emulation::atomic(::emulation::Atomic::name##_of, at, value); \
  }
TS_ATOMIC(min, uint32_t)
TS_ATOMIC(max, uint32_t)
TS_ATOMIC(min, uint64_t)
TS_ATOMIC(max, uint64_t)
TS_ATOMIC(add, uint32_t)
TS_ATOMIC(add, uint64_t)
TS_ATOMIC(or, uint32_t)
TS_ATOMIC(and, uint32_t)
#undef TS_ATOMIC
TS_INLINE uint32_t atomic_read(const uint32_t* at) { return ::emulation::atomic_read(at); }

TS_INLINE uint32_t bit_count(uint32_t x) { return static_cast<uint32_t>(__builtin_popcount(x)); }
TS_INLINE uint32_t pick_bytes(uint32_t low, uint32_t high, uint32_t which) {
  const uint64_t both = static_cast<uint64_t>(high) << 32 | low;
  uint32_t found = 0;
  for (int i = 0; i < 4; ++i)
    found |= static_cast<uint32_t>(both >> (which >> (4 * i) & 7) * 8 & 0xff) << (8 * i);
  return found;
}

}  // namespace TS_ISA
}  // namespace tallystick
