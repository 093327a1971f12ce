// An execution context: how many threads compute, and on which instruction set. Two runs, or a run
// and a dispute, may live in one process, each in a context of its own. No choice changes a bit
// (NUMERICS 1.8).
#pragma once
#include <atomic>
#include <memory>
#include <mutex>

#include "dispatch.hpp"

namespace tallystick {

class Pool;

class Context {
 public:
  // `threads` is clamped to 1..256; 1 means: no pool threads.
  Context(int threads, Isa isa);
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  int threads() const { return threads_.load(std::memory_order_relaxed); }
  // Takes effect at the next parallel_for.
  void set_threads(int n);
  Isa isa() const { return isa_.load(std::memory_order_relaxed); }
  // Returns false and changes nothing if the machine cannot run it.
  bool set_isa(Isa isa);

 private:
  friend void parallel_for(size_t, void (*)(void*, size_t), void*);
  friend void after_fork_in_child();
  Pool* ready_pool();  // null where one thread does the work; `running_` is held

  std::atomic<int> threads_;
  std::atomic<Isa> isa_;
  std::unique_ptr<std::mutex> running_;
  Pool* pool_ = nullptr;
  int pool_size_ = 1;
};

// What a thread uses that has entered none: this machine's threads and best instruction set, or
// TALLYSTICK_ISA.
Context& default_context();
// The one that the calling thread entered last.
Context& current_context();
// Contexts are entered and left in pairs, on one thread; `context` outlives the pair.
void enter_context(Context& context);
void leave_context();

}  // namespace tallystick
