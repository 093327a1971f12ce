// The engine of the emulation: fibers, the order in which they run, and launches by name.
#undef _FORTIFY_SOURCE  // its longjmp refuses to jump between stacks
#include <setjmp.h>
#include <ucontext.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(at, bytes)
#define ASAN_UNPOISON_MEMORY_REGION(at, bytes)
#endif

#define TS_ISA emulated
#include "tallystick/ts_base.hpp"

namespace tallystick {
namespace TS_ISA {
enum class Fault : int;  // device.hpp
}
}  // namespace tallystick
#include "emulation.hpp"
#include "races.hpp"

namespace emulation {
int planted = 0;
namespace {

constexpr size_t kStack = 256 * 1024;
constexpr uint32_t kWarp = 32;
constexpr uint8_t kPattern = 0xa7;

struct Kernel { std::string file; size_t param_bytes; uint32_t most_threads; Body body; };
std::map<std::string, Kernel>& kernels() {
  static std::map<std::string, Kernel> all;
  return all;
}

enum class State { ready, at_block_barrier, at_warp_barrier, ended };

// Copies to shared memory that have been started and not waited for.
struct Copy { void* to; const void* from; uint32_t bytes, inside; bool has_arrived; };

// What a lane gives to its warp: one of two in turn, so that a lane that goes on does not overwrite
// what others still read.
struct Gifts { uint64_t words[2][3]; uint32_t turn; };

struct Fiber {
  std::unique_ptr<char[]> stack;
  Gifts gifts;
  ucontext_t first;
  jmp_buf at;
  bool started = false;
  State state;
  Source waits_at;  // where it waits for others
  Where where;
  races::Moment moment;
  std::vector<std::vector<Copy>> copies;  // by group; the last one is not committed yet
};

struct Shared { const void* key; size_t bytes; std::unique_ptr<uint64_t[]> data; };

struct Block {
  std::vector<Fiber> fibers;  // kept from launch to launch, for their stacks
  uint32_t threads = 0;
  std::vector<Shared> arrays;
  std::vector<uint64_t> dynamic;
  size_t dynamic_bytes = 0;
  std::vector<uint64_t> lanes;  // values under way in a shuffle, one a thread
  Fiber* now = nullptr;
  jmp_buf engine;
  const Kernel* kernel = nullptr;
  const void* params = nullptr;
};
Block block;
std::mt19937_64 random_bits;
std::string fault;

void fill_pattern(void* at, size_t bytes) { std::memset(at, kPattern, bytes); }

void to_engine() {
  if (_setjmp(block.now->at) == 0) _longjmp(block.engine, 1);
}

// A fiber runs the body once for every block, so that its stack is set up once.
void run_fiber() {
  for (;;) {
    block.kernel->body(block.params);
    block.now->state = State::ended;
    to_engine();
  }
}

void resume(Fiber& fiber) {
  block.now = &fiber;
  if (_setjmp(block.engine) != 0) return;
  if (fiber.started) _longjmp(fiber.at, 1);
  fiber.started = true;
  getcontext(&fiber.first);
  fiber.first.uc_stack.ss_sp = fiber.stack.get();
  fiber.first.uc_stack.ss_size = kStack;
  fiber.first.uc_link = nullptr;
  makecontext(&fiber.first, run_fiber, 0);
  setcontext(&fiber.first);
}

uint32_t warps_of(uint32_t threads) { return (threads + kWarp - 1) / kWarp; }
uint32_t end_of(uint32_t warp) { return std::min((warp + 1) * kWarp, block.threads); }

// True if the lanes of a warp can go on: some may run, or all have arrived. A lane that has ended
// never arrives.
bool can_go_on(uint32_t warp) {
  bool all = true;
  for (uint32_t i = warp * kWarp; i < end_of(warp); ++i) {
    if (block.fibers[i].state == State::ready) return true;
    all = all && block.fibers[i].state == State::at_warp_barrier;
  }
  return all;
}

bool all_wait(uint32_t warp) {
  for (uint32_t i = warp * kWarp; i < end_of(warp); ++i)
    if (block.fibers[i].state != State::at_warp_barrier) return false;
  return true;
}

bool all_are(State state) {
  for (uint32_t i = 0; i < block.threads; ++i)
    if (block.fibers[i].state != state) return false;
  return true;
}

// A GPU leaves it undefined what happens when threads that wait for each other do so at several places
// of a kernel.
void see_that_they_meet(uint32_t first, uint32_t end) {
  const Source& one = block.fibers[first].waits_at;
  for (uint32_t i = first + 1; i < end; ++i) {
    const Source& other = block.fibers[i].waits_at;
    if (one.line != other.line || std::strcmp(one.file, other.file) != 0)
      fault = "threads wait for each other at line " + std::to_string(one.line) + " and at line " +
              std::to_string(other.line) + " of " + other.file;
  }
}

// Who runs next: the lanes of some warps that can go on. Mostly that is one warp, and mostly the one
// that ran before, so that warps are far apart where no barrier of the block holds them; else all.
class Turns {
 public:
  explicit Turns(uint32_t threads) : warps_(warps_of(threads)) {
    for (uint32_t i = 0; i < warps_.size(); ++i) warps_[i] = i;
    std::shuffle(warps_.begin(), warps_.end(), random_bits);
  }
  // Empty where nobody can go on.
  const std::vector<uint32_t>& next() {
    const uint64_t chance = random_bits();
    if (chance % 16 == 0) alone_ = (chance >> 8) % 4 != 0;
    if ((chance >> 16) % 16 == 0)
      std::swap(warps_[0], warps_[(chance >> 24) % warps_.size()]);
    lanes_.clear();
    for (uint32_t warp : warps_) {
      if (!can_go_on(warp)) continue;
      if (block.fibers[warp * kWarp].state == State::at_warp_barrier && all_wait(warp))
        see_that_they_meet(warp * kWarp, end_of(warp));
      for (uint32_t i = warp * kWarp; i < end_of(warp); ++i) {
        State& state = block.fibers[i].state;
        if (state == State::at_warp_barrier) state = State::ready;
        if (state == State::ready) lanes_.push_back(i);
      }
      if (alone_) break;
    }
    std::shuffle(lanes_.begin(), lanes_.end(), random_bits);
    return lanes_;
  }

 private:
  std::vector<uint32_t> warps_, lanes_;
  bool alone_ = true;
};

// Runs one block to its end. False where some threads wait for others that never arrive.
bool run_block() {
  for (Shared& array : block.arrays) {
    fill_pattern(array.data.get(), array.bytes);
    races::forget(array.data.get(), array.bytes);
  }
  fill_pattern(block.dynamic.data(), block.dynamic_bytes);
  races::forget(block.dynamic.data(), block.dynamic_bytes);
  for (;;) {
    Turns turns(block.threads);
    for (const auto* lanes = &turns.next(); !lanes->empty(); lanes = &turns.next())
      for (uint32_t i : *lanes) resume(block.fibers[i]);
    if (all_are(State::ended)) return true;
    if (!all_are(State::at_block_barrier)) return false;
    see_that_they_meet(0, block.threads);
    for (uint32_t i = 0; i < block.threads; ++i) {
      block.fibers[i].state = State::ready;
      ++block.fibers[i].moment.of_block;
    }
  }
}

void wait(State state, const Source& from) {
  block.now->waits_at = from;
  block.now->state = state;
  to_engine();
}
// The lanes of a warp meet, which orders none of their accesses.
void meet(const Source& from) { wait(State::at_warp_barrier, from); }

}  // namespace

Registered::Registered(const char* name, const char* file, size_t param_bytes,
                       uint32_t most_threads, Body body) {
  kernels()[name] = {file, param_bytes, most_threads, body};
}

const Where& here() { return block.now->where; }

void* shared(const void* key, size_t bytes) {
  for (Shared& array : block.arrays)
    if (array.key == key) return array.data.get();
  const size_t words = (bytes + 7) / 8 + 2;
  block.arrays.push_back({key, bytes, std::make_unique<uint64_t[]>(words)});
  char* at = reinterpret_cast<char*>(block.arrays.back().data.get());
  fill_pattern(at, bytes);
  ASAN_POISON_MEMORY_REGION(at + bytes, words * 8 - bytes);
  return at;
}

void* dynamic_shared() { return block.dynamic.data(); }

void block_barrier(const Source& from) { wait(State::at_block_barrier, from); }
void warp_barrier(const Source& from) {
  meet(from);
  ++block.now->moment.of_warp;
}
uint64_t exchange(uint64_t mine, uint32_t lane, const Source& from) {
  const uint32_t thread = here().thread, first = thread / kWarp * kWarp;
  block.lanes[thread] = mine;
  meet(from);
  const uint64_t found = block.lanes[first + lane];
  meet(from);
  return found;
}
uint32_t ballot(bool mine, const Source& from) {
  const uint32_t thread = here().thread, first = thread / kWarp * kWarp;
  block.lanes[thread] = mine;
  meet(from);
  uint32_t found = 0;
  for (uint32_t i = 0; i < kWarp && first + i < block.threads; ++i)
    found |= static_cast<uint32_t>(block.lanes[first + i] != 0) << i;
  meet(from);
  return found;
}

void run_copy(Copy& copy) {
  if (copy.has_arrived) return;
  copy.has_arrived = true;
  std::memcpy(copy.to, copy.from, copy.inside);
  std::memset(static_cast<char*>(copy.to) + copy.inside, 0, copy.bytes - copy.inside);
}
bool misaligned(const void* at, uint32_t bytes) {
  return reinterpret_cast<uintptr_t>(at) % bytes != 0;
}
void async_copy(void* to, const void* from, uint32_t bytes, uint32_t inside) {
  // A GPU stops here too.
  if (misaligned(to, bytes) || misaligned(from, bytes)) fault = "an asynchronous copy is misaligned";
  races::access(from, inside, races::Access::read);
  races::access(to, bytes, races::Access::copy_begins);
  auto& groups = block.now->copies;
  if (groups.empty()) groups.emplace_back();
  groups.back().push_back({to, from, bytes, inside, false});
  if (random_bits() % 2 != 0) run_copy(groups.back().back());
}
void async_commit() {
  auto& groups = block.now->copies;
  if (groups.empty()) groups.emplace_back();
  groups.emplace_back();
}
void async_wait(uint32_t newest) {
  auto& groups = block.now->copies;
  const size_t committed = groups.empty() ? 0 : groups.size() - 1;
  if (committed <= newest) return;
  for (size_t i = 0; i < committed - newest; ++i)
    for (Copy& copy : groups[i]) {
      run_copy(copy);
      races::access(copy.to, copy.bytes, races::Access::copy_ends);
    }
  groups.erase(groups.begin(), groups.begin() + static_cast<ptrdiff_t>(committed - newest));
}

template <class T>
void changed(Atomic operation, T* at, T value) {
  races::access(at, sizeof(T), races::Access::atomic);
  switch (operation) {
    case Atomic::min_of: *at = std::min(*at, value); return;
    case Atomic::max_of: *at = std::max(*at, value); return;
    case Atomic::add_of: *at += value; return;
    case Atomic::or_of: *at |= value; return;
    case Atomic::and_of: *at &= value; return;
  }
}
void atomic(Atomic operation, uint32_t* at, uint32_t value) { changed(operation, at, value); }
void atomic(Atomic operation, uint64_t* at, uint64_t value) { changed(operation, at, value); }
uint32_t atomic_read(const uint32_t* at) {
  races::access(at, sizeof(*at), races::Access::atomic);
  return *at;
}

// Gives three words to the warp; in `use`, given(lane) are those of a lane.
template <class Use>
void together(uint64_t first, uint64_t second, uint64_t third, const Source& from, const Use& use) {
  Gifts& own = block.now->gifts;
  const uint32_t turn = own.turn ^= 1;
  own.words[turn][0] = first, own.words[turn][1] = second, own.words[turn][2] = third;
  meet(from);
  const uint32_t base = here().thread / kWarp * kWarp;
  use([&](uint32_t lane) { return block.fibers[base + lane].gifts.words[turn]; });
}
void matrix_load4(uint32_t* to, const void* row, const Source& from) {
  if (misaligned(row, 16)) fault = "a row of a matrix is misaligned";
  const uint32_t lane = here().thread % kWarp;
  together(reinterpret_cast<uintptr_t>(row), 0, 0, from, [&](const auto& given) {
    for (uint32_t i = 0; i < 4; ++i) {
      const auto* at = reinterpret_cast<const char*>(given(8 * i + lane / 4)[0]);
      std::memcpy(to + i, at + 4 * (lane % 4), 4);
      races::access(at + 4 * (lane % 4), 4, races::Access::read);
    }
  });
}
// The 32 bytes of a line of a matrix: of lanes 4·line to +3, each with two words.
struct Line { int8_t of[32]; };
// The sum of the products; 32 of 2^14 fit.
int32_t product(const Line& a, const Line& b) {
  int32_t sum = 0;
  for (int k = 0; k < 32; ++k) sum += static_cast<int32_t>(a.of[k]) * b.of[k];
  return sum;
}
void matrix_multiply(int32_t* sum, const uint32_t* a, uint32_t b0, uint32_t b1, const Source& from) {
  const auto two = [](uint32_t low, uint32_t high) { return static_cast<uint64_t>(high) << 32 | low; };
  const uint32_t lane = here().thread % kWarp, row = lane / 4, column = lane % 4 * 2;
  // Bytes 0 to 15 of a line are in the first words, 16 to 31 in the second ones.
  together(two(a[0], a[2]), two(a[1], a[3]), two(b0, b1), from, [&](const auto& given) {
    const auto line = [&](uint32_t number, int word) {
      Line found;
      for (uint32_t u = 0; u < 4; ++u) {
        const uint64_t bytes = given(4 * number + u)[word];
        std::memcpy(found.of + 4 * u, &bytes, 4);
        std::memcpy(found.of + 16 + 4 * u, reinterpret_cast<const char*>(&bytes) + 4, 4);
      }
      return found;
    };
    const Line left[2] = {line(row, 0), line(row, 1)};
    const Line right[2] = {line(column, 2), line(column + 1, 2)};
    for (int i = 0; i < 4; ++i) {
      const uint32_t more = static_cast<uint32_t>(product(left[i / 2], right[i % 2]));
      sum[i] = static_cast<int32_t>(static_cast<uint32_t>(sum[i]) + more);
    }
  });
}

const races::Moment* races::now() { return block.now ? &block.now->moment : nullptr; }
void races::found(const char* what, const Moment& here, uint32_t other_block,
                  uint32_t other_thread) {
  if (!fault.empty()) return;
  fault = "a race: thread " + std::to_string(here.thread) + " of block " +
          std::to_string(here.block) + " " + what + " by thread " + std::to_string(other_thread) +
          " of block " + std::to_string(other_block) + ", and nothing orders the two";
}

}  // namespace emulation

#define TS_EXPORT extern "C" __attribute__((visibility("default")))

// 0, or a fault that ts_emulation_fault() describes.
TS_EXPORT int ts_emulation_launch(const char* name, const uint32_t* grid, uint32_t threads,
                                  uint32_t dynamic_bytes, const void* params, size_t param_bytes,
                                  uint64_t seed) {
  using namespace emulation;
  const auto found = kernels().find(name);
  const auto fail = [&](const std::string& why) {
    fault = std::string(name) + ": " + why;
    return 1;
  };
  if (found == kernels().end()) return fail("no such kernel");
  const Kernel& kernel = found->second;
  if (param_bytes != kernel.param_bytes)
    return fail("its parameters have " + std::to_string(kernel.param_bytes) + " bytes, got " +
                std::to_string(param_bytes));
  if (!threads || threads > kernel.most_threads || threads > 1024)
    return fail("a block of " + std::to_string(threads) + " threads");
  if (!grid[0] || !grid[1] || !grid[2] || grid[0] > 0x7fffffffu || grid[1] > 65535u || grid[2] > 65535u)
    return fail("a grid that no device takes");
  random_bits.seed(seed);
  fault.clear();
  races::new_launch();
  block.threads = threads;
  block.kernel = &kernel;
  block.params = params;
  block.arrays.clear();
  ASAN_UNPOISON_MEMORY_REGION(block.dynamic.data(), block.dynamic.size() * 8);
  block.dynamic.assign((dynamic_bytes + 15) / 16 * 2 + 2, 0);
  block.dynamic_bytes = dynamic_bytes;
  ASAN_POISON_MEMORY_REGION(reinterpret_cast<char*>(block.dynamic.data()) + dynamic_bytes,
                            block.dynamic.size() * 8 - dynamic_bytes);
  block.lanes.assign((threads + kWarp - 1) / kWarp * kWarp, 0);
  while (block.fibers.size() < threads) {
    block.fibers.emplace_back();
    block.fibers.back().stack.reset(new char[kStack]);
  }
  const uint64_t count = static_cast<uint64_t>(grid[0]) * grid[1] * grid[2];
  std::vector<uint64_t> blocks(count);
  for (uint64_t i = 0; i < count; ++i) blocks[i] = i;
  std::shuffle(blocks.begin(), blocks.end(), random_bits);
  for (uint64_t b : blocks) {
    for (uint32_t i = 0; i < threads; ++i) {
      Fiber& fiber = block.fibers[i];
      fiber.state = State::ready;
      fiber.copies.clear();
      fiber.gifts.turn = 0;
      fiber.moment = {static_cast<uint32_t>(b), i, 0, 0, fiber.stack.get(),
                      fiber.stack.get() + kStack};
      fiber.where = {i, threads,
                     {static_cast<uint32_t>(b % grid[0]), static_cast<uint32_t>(b / grid[0] % grid[1]),
                      static_cast<uint32_t>(b / grid[0] / grid[1])},
                     {grid[0], grid[1], grid[2]}};
    }
    const bool ended = run_block();
    block.now = nullptr;
    if (!ended) {
      block.fibers.clear();  // they stand in the middle of the body
      return fail("some threads of a block wait for threads that never arrive");
    }
    if (!fault.empty()) return fail(std::string(fault));
  }
  return 0;
}

TS_EXPORT const char* ts_emulation_fault() { return emulation::fault.c_str(); }

// The number of kernels; the name, file and bytes of parameters of kernel `i`.
TS_EXPORT size_t ts_emulation_count() { return emulation::kernels().size(); }
TS_EXPORT const char* ts_emulation_name(size_t i) {
  auto at = emulation::kernels().begin();
  std::advance(at, static_cast<ptrdiff_t>(i));
  return at->first.c_str();
}
TS_EXPORT const char* ts_emulation_file(size_t i) {
  auto at = emulation::kernels().begin();
  std::advance(at, static_cast<ptrdiff_t>(i));
  return at->second.file.c_str();
}
TS_EXPORT size_t ts_emulation_param_bytes(size_t i) {
  auto at = emulation::kernels().begin();
  std::advance(at, static_cast<ptrdiff_t>(i));
  return at->second.param_bytes;
}

// The fault that kernels have from now on: a Fault of device.hpp, 0 for none.
TS_EXPORT void ts_emulation_plant(int fault) { emulation::planted = fault; }
