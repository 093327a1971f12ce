// The look for races (races.hpp). Without -DTS_RACECHECK its functions do nothing.
#include "races.hpp"

#include <memory>
#include <unordered_map>

namespace emulation::races {
#ifdef TS_RACECHECK
namespace {

constexpr uint32_t kWarp = 32;

struct Place { uint32_t block, thread, of_block, of_warp; };

bool is_before(const Place& a, const Moment& b) {
  if (a.block != b.block) return false;
  if (a.thread == b.thread || a.of_block != b.of_block) return true;
  return a.thread / kWarp == b.thread / kWarp && a.of_warp != b.of_warp;
}

// Accesses that may be of many threads. `one` is the last of them that is unlike those before. Others
// at the same moment: of the same warp (`lanes`), of other warps of the block, of other blocks.
struct Crowd {
  Place one;
  bool any, lanes, warps, blocks;

  void add(const Moment& m) {
    const Place here = {m.block, m.thread, m.of_block, m.of_warp};
    if (!any || one.block != m.block) {
      blocks = any;
      lanes = warps = false;
      one = here;
    } else if (one.of_block != m.of_block) {
      lanes = warps = false;
      one = here;
    } else if (one.thread / kWarp != m.thread / kWarp) {
      warps = true;
    } else if (one.of_warp != m.of_warp) {
      lanes = false;
      one = here;
    } else if (one.thread != m.thread) {
      lanes = true;
    }
    any = true;
  }
  bool are_before(const Moment& m) const {
    if (!any) return true;
    if (blocks || one.block != m.block) return false;
    if (one.of_block != m.of_block) return true;
    if (warps || one.thread / kWarp != m.thread / kWarp) return false;
    return one.of_warp != m.of_warp || (!lanes && one.thread == m.thread);
  }
};

// What was done to four bytes, or to one, in this launch.
struct Cell {
  Place write;
  bool written, copied;  // copied: by a copy that is under way
  Crowd reads, atomics;
};

constexpr uint64_t kPage = 4096;
struct Page {
  uint64_t launch = 0;
  Cell words[kPage / 4];
  std::unique_ptr<Cell[]> bytes;  // of accesses that are no whole words
};
std::unordered_map<uint64_t, std::unique_ptr<Page>> pages;
uint64_t launch = 1;

Page& page_of(uint64_t address) {
  static uint64_t last = ~uint64_t{0};
  static Page* found = nullptr;
  if (address / kPage != last) {
    std::unique_ptr<Page>& page = pages[address / kPage];
    if (!page) page = std::make_unique<Page>();
    found = page.get(), last = address / kPage;
  }
  if (found->launch != launch) {
    found->launch = launch;
    for (Cell& cell : found->words) cell = {};
    found->bytes.reset();
  }
  return *found;
}

bool look(const Cell& cell, Access kind, const Moment& m) {
  const auto say = [&](const char* what, const Place& other) {
    found(what, m, other.block, other.thread);
    return false;
  };
  const bool ends = kind == Access::copy_ends;
  if (cell.copied && !(ends && cell.write.thread == m.thread))
    return say("touches what an asynchronous copy is still writing, begun", cell.write);
  if (cell.written && !is_before(cell.write, m)) return say("touches what was written", cell.write);
  if (kind != Access::atomic && !cell.atomics.are_before(m))
    return say("touches what was changed atomically", cell.atomics.one);
  if (kind != Access::read && !cell.reads.are_before(m))
    return say("writes what was read", cell.reads.one);
  return true;
}
void add(Cell& cell, Access kind, const Moment& m) {
  if (kind == Access::read) return cell.reads.add(m);
  if (kind == Access::atomic) return cell.atomics.add(m);
  cell = {};
  cell.write = {m.block, m.thread, m.of_block, m.of_warp};
  cell.written = true;
  cell.copied = kind == Access::copy_begins;
}

}  // namespace

void new_launch() { ++launch; }

void forget(const void* at, size_t count) {
  uint64_t address = reinterpret_cast<uint64_t>(at);
  for (const uint64_t end = address + count; address < end; ++address) {
    Page& page = page_of(address);
    page.words[address % kPage / 4] = {};
    if (page.bytes) page.bytes[address % kPage] = {};
  }
}

void access(const void* at, size_t count, Access kind) {
  const Moment* m = now();
  const char* first = static_cast<const char*>(at);
  if (!m || (first >= m->stack && first < m->stack_end)) return;
  uint64_t address = reinterpret_cast<uint64_t>(at);
  for (const uint64_t end = address + count; address < end;) {
    Page& page = page_of(address);
    const uint64_t place = address % kPage;
    Cell& word = page.words[place / 4];
    if (!look(word, kind, *m)) return;
    if (address % 4 == 0 && end - address >= 4) {
      for (uint64_t i = 0; page.bytes && i < 4; ++i)
        if (!look(page.bytes[place + i], kind, *m)) return;
      add(word, kind, *m);
      address += 4;
    } else {
      if (!page.bytes) page.bytes = std::make_unique<Cell[]>(kPage);
      if (!look(page.bytes[place], kind, *m)) return;
      add(page.bytes[place], kind, *m);
      ++address;
    }
  }
}

#else
void new_launch() {}
void forget(const void*, size_t) {}
void access(const void*, size_t, Access) {}
#endif
}  // namespace emulation::races

#ifdef TS_RACECHECK
// What -fsanitize=thread calls.
#define TS_CALLS(n)                                                                          \
  void __tsan_read##n(void* at) { access(at, n, Access::read); }                             \
  void __tsan_write##n(void* at) { access(at, n, Access::write); }                           \
  void __tsan_unaligned_read##n(void* at) { access(at, n, Access::read); }                   \
  void __tsan_unaligned_write##n(void* at) { access(at, n, Access::write); }
extern "C" {
using emulation::races::access, emulation::races::Access;
void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
TS_CALLS(1)
TS_CALLS(2)
TS_CALLS(4)
TS_CALLS(8)
TS_CALLS(16)
void __tsan_read_range(void* at, unsigned long n) { access(at, n, Access::read); }
void __tsan_write_range(void* at, unsigned long n) { access(at, n, Access::write); }
}
#endif
