// The words in which the device kernels are written. CUDA's compilers read them as CUDA; a C++
// compiler reads them as calls of the emulation (tests/gpu/emulation), which runs the same sources
// on the host. Kernels use no other CUDA name, so that both readings are of one text.
//
// A kernel's name begins with the name of its file and an underscore: the host finds the file so.
// A kernel has one parameter, a struct of slots of 8 bytes: pointers, int64_t, F32, F64. A block is
// one-dimensional. There is no atomic operation on floats, and no flag between blocks: the order in
// which blocks run is not known, so it must not decide a bit.
#pragma once
#include "tallystick/ts_base.hpp"

namespace tallystick::TS_ISA {
// Faults that the tests plant in kernels to see that they are found; there are none on a GPU.
enum class Fault : int { none, missing_barrier, race, missing_wait, one_bit };
}  // namespace tallystick::TS_ISA

#ifdef __CUDACC__

#define TS_KERNEL(name, Params, most_threads) \
  extern "C" __global__ void __launch_bounds__(most_threads) name(const __grid_constant__ Params p)
// A kernel of which `at_once` blocks fit on a multiprocessor: so many registers has a thread.
#define TS_KERNEL_AT_ONCE(name, Params, most_threads, at_once) \
  extern "C" __global__ void __launch_bounds__(most_threads, at_once) \
      name(const __grid_constant__ Params p)
#define TS_SHARED(type, name, count) __shared__ __align__(16) type name[count]
#define TS_DYNAMIC_SHARED(type, name)                              \
  extern __shared__ __align__(16) unsigned char ts_dynamic_bytes[]; \
  type* name = reinterpret_cast<type*>(ts_dynamic_bytes)
#define TS_UNROLL _Pragma("unroll")
#define TS_ROLLED _Pragma("unroll 1")
#define TS_PRAGMA(words) _Pragma(#words)
#define TS_UNROLL_BY(times) TS_PRAGMA(unroll times)

namespace tallystick::TS_ISA {

TS_INLINE bool has_fault(Fault) { return false; }
TS_INLINE uint32_t thread_index() { return threadIdx.x; }
TS_INLINE uint32_t thread_count() { return blockDim.x; }
TS_INLINE uint32_t block_x() { return blockIdx.x; }
TS_INLINE uint32_t block_y() { return blockIdx.y; }
TS_INLINE uint32_t block_z() { return blockIdx.z; }
TS_INLINE uint32_t grid_x() { return gridDim.x; }
TS_INLINE uint32_t grid_y() { return gridDim.y; }

// Every thread of the block arrives here before any goes on; what each wrote is then seen by all.
TS_INLINE void block_barrier() { __syncthreads(); }
TS_INLINE void warp_barrier() { __syncwarp(); }
// The value of lane `lane`, or of the lane whose number differs in the bits `mask`. All 32 lanes of
// a warp call it together.
template <class T>
TS_INLINE T warp_from(T value, uint32_t lane) { return __shfl_sync(0xffffffffu, value, lane); }
template <class T>
TS_INLINE T warp_xor(T value, uint32_t mask) { return __shfl_xor_sync(0xffffffffu, value, mask); }
TS_INLINE uint32_t warp_ballot(bool value) { return __ballot_sync(0xffffffffu, value); }

// On integers, where every order of the calls gives the same result.
TS_INLINE void atomic_min(uint32_t* at, uint32_t value) { atomicMin(at, value); }
TS_INLINE void atomic_max(uint32_t* at, uint32_t value) { atomicMax(at, value); }
TS_INLINE void atomic_min(uint64_t* at, uint64_t value) {
  atomicMin(reinterpret_cast<unsigned long long*>(at), static_cast<unsigned long long>(value));
}
TS_INLINE void atomic_max(uint64_t* at, uint64_t value) {
  atomicMax(reinterpret_cast<unsigned long long*>(at), static_cast<unsigned long long>(value));
}
TS_INLINE void atomic_add(uint32_t* at, uint32_t value) { atomicAdd(at, value); }
TS_INLINE void atomic_add(uint64_t* at, uint64_t value) {
  atomicAdd(reinterpret_cast<unsigned long long*>(at), static_cast<unsigned long long>(value));
}
TS_INLINE void atomic_or(uint32_t* at, uint32_t value) { atomicOr(at, value); }
TS_INLINE void atomic_and(uint32_t* at, uint32_t value) { atomicAnd(at, value); }
// A word that other threads may be changing by the operations above.
TS_INLINE uint32_t atomic_read(const uint32_t* at) { return *static_cast<const volatile uint32_t*>(at); }

// Copies from global to shared memory that need no register and no waiting. The thread that started
// them calls async_commit, which makes them one group, and later async_wait<n>, after which all of
// its groups but the newest n have arrived. Another thread sees them after a barrier that follows.
// `inside` is the number of floats that are read (0 to 1, 0 to 4); the others become +0. An address of
// which nothing is read need not exist.
TS_INLINE void async_copy1(float* to, const float* from) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::
      "r"(static_cast<uint32_t>(__cvta_generic_to_shared(to))), "l"(from) : "memory");
}
TS_INLINE void async_copy1(float* to, const float* from, bool inside) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::
      "r"(static_cast<uint32_t>(__cvta_generic_to_shared(to))), "l"(from), "r"(inside ? 4 : 0)
      : "memory");
}
TS_INLINE void async_copy4(float* to, const float* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::
      "r"(static_cast<uint32_t>(__cvta_generic_to_shared(to))), "l"(from) : "memory");
}
TS_INLINE void async_copy4(float* to, const float* from, int inside) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::
      "r"(static_cast<uint32_t>(__cvta_generic_to_shared(to))), "l"(from), "r"(4 * inside)
      : "memory");
}
TS_INLINE void async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int Newest>
TS_INLINE void async_wait() { asm volatile("cp.async.wait_group %0;" ::"n"(Newest) : "memory"); }
// Matrices of 8-bit integers, by a warp (PTX ISA: ldmatrix; fragments of mma.m16n8k32, .s8).
// Lane 8·i + r of matrix_load4 gives the address, in shared memory and a multiple of 16, of row r of
// matrix i: 8 rows of 16 bytes. Word i of lane l becomes bytes 4·(l % 4) and following of row l / 4 of
// matrix i.
TS_INLINE void matrix_load4(uint32_t (&to)[4], const int8_t* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
      : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
      : "r"(static_cast<uint32_t>(__cvta_generic_to_shared(row))) : "memory");
}
// sum (16 x 8, 32 bits) += a (16 x 32) · b (32 x 8). Of lane l with g = l / 4 and t = l % 4: a holds
// bytes 4·t and following of rows g and g + 8, then 16 bytes further on of both; b0 and b1 those of
// column g; sum columns 2·t and 2·t + 1 of row g, then of row g + 8.
TS_INLINE void matrix_multiply(int32_t (&sum)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+r"(sum[0]), "+r"(sum[1]), "+r"(sum[2]), "+r"(sum[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
// The number of bits that are 1.
TS_INLINE uint32_t bit_count(uint32_t x) {
  return static_cast<uint32_t>(__popc(static_cast<int>(x)));
}
// Four of the eight bytes of low (0 to 3) and high (4 to 7): the hexadecimal digits of `which`, from
// the most significant byte of the result to the least.
TS_INLINE uint32_t pick_bytes(uint32_t low, uint32_t high, uint32_t which) {
  return __byte_perm(low, high, which);
}

}  // namespace tallystick::TS_ISA

#else
#include "emulation.hpp"
#endif

namespace tallystick::TS_ISA {

// Slots of a kernel's parameters for numbers that are not integers.
struct F32 { float value; uint32_t unused; };
struct F64 { double value; };

constexpr uint32_t kWarp = 32;
constexpr uint32_t kAxes = 16;  // limits.tensor_rank

TS_INLINE uint32_t lane_index() { return thread_index() % kWarp; }
TS_INLINE uint32_t warp_index() { return thread_index() / kWarp; }
// This thread among all of the launch (of a grid with one axis), and how many there are.
TS_INLINE int64_t first_item() {
  return static_cast<int64_t>(block_x()) * thread_count() + thread_index();
}
TS_INLINE int64_t item_step() { return static_cast<int64_t>(grid_x()) * thread_count(); }

// The sizes of an iteration over elements in row-major order. The host has merged axes and left out
// those of one element. Strides count elements.
struct Space {
  int64_t count;  // of elements
  int64_t rank;
  int64_t size[kAxes];
};
struct Strides { int64_t of[kAxes]; };

// The element numbers of `Count` operands at place `i` of the space. `strides` is an array inside of
// the kernel's parameters, so that nothing is copied.
template <int Count>
struct Places { int64_t at[Count]; };
template <class Number, int Count>
TS_INLINE Places<Count> places_by(const Space& space, const Strides (&strides)[Count], int64_t i) {
  Places<Count> found = {};
  Number left = static_cast<Number>(i);
  for (int64_t axis = space.rank - 1; axis > 0; --axis) {
    const Number size = static_cast<Number>(space.size[axis]), rest = left / size;
    const int64_t here = static_cast<int64_t>(left - rest * size);
    for (int k = 0; k < Count; ++k) found.at[k] += here * strides[k].of[axis];
    left = rest;
  }
  const int64_t here = static_cast<int64_t>(left);
  for (int k = 0; k < Count; ++k) found.at[k] += here * strides[k].of[0];
  return found;
}
// A division of 64 bits takes a device many times as long as one of 32 bits.
template <int Count>
TS_INLINE Places<Count> places(const Space& space, const Strides (&strides)[Count], int64_t i) {
  if (space.count <= 0xffffffffll) return places_by<uint32_t>(space, strides, i);
  return places_by<uint64_t>(space, strides, i);
}

// Quotients of numbers that are not negative.
TS_INLINE int64_t quotient(int64_t a, int64_t b) {
  if (static_cast<uint64_t>(a | b) <= 0xffffffffull)
    return static_cast<uint32_t>(a) / static_cast<uint32_t>(b);
  return a / b;
}
// Without the device's division of 64 bits, a call for which a kernel keeps registers in memory.
TS_INLINE int64_t quotient_of_any(int64_t i, int64_t by) {
  if (((i | by) >> 32) == 0) return static_cast<uint32_t>(i) / static_cast<uint32_t>(by);
  uint64_t left = 0, found = 0;
  TS_ROLLED
  for (int bit = 62; bit >= 0; --bit) {
    left = left << 1 | (static_cast<uint64_t>(i) >> bit & 1);
    const bool goes = left >= static_cast<uint64_t>(by);
    left -= goes ? static_cast<uint64_t>(by) : 0;
    found = found << 1 | (goes ? 1 : 0);
  }
  return static_cast<int64_t>(found);
}

// A refusal of operands (NUMERICS 1.13): the least call that refuses, and its least bad position.
// The host gives every refusing call of a step a number, and reads the word before the state is
// overwritten. `word` starts as all ones.
struct Refusal {
  uint64_t* word;
  int64_t call;
};
TS_INLINE void refuse(const Refusal& refusal, int64_t position) {
  const uint64_t low = position < 0xffffffffll ? static_cast<uint64_t>(position) : 0xffffffffull;
  atomic_min(refusal.word, (static_cast<uint64_t>(refusal.call) << 32) | low);
}

// True if a call has refused since the host read the word. A kernel that overwrites an operand is
// started after the kernel that checks the indices, and asks first.
TS_INLINE bool refused(const Refusal& refusal) { return *refusal.word != ~uint64_t{0}; }

// 16 bytes that are moved at once.
struct alignas(16) Wide { uint64_t low, high; };

}  // namespace tallystick::TS_ISA
