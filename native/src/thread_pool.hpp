// The core's own threads. Work is partitioned by output only, so the number of threads never
// changes a bit (NUMERICS 1.8). No OpenMP: a second runtime beside torch's would oversubscribe.
// How many there are, and on which instruction set they compute, the context says (context.hpp).
#pragma once
#include <cstddef>

namespace tallystick {

using TaskFn = void (*)(void* ctx, size_t task);

// Runs fn(ctx, 0..n_tasks-1), on the calling thread and the pool's. Returns when all are done.
// Calls from inside a task run serially on that thread. Concurrent calls in one context are
// serialised; calls in two contexts are not. The error of a task (no memory) is thrown here once no
// task runs any more. Where the system gives no threads, fewer threads or the caller alone do the
// work.
void parallel_for(size_t n_tasks, TaskFn fn, void* ctx);

// The same, or one task after the other where they are not worth another thread.
void for_tasks(size_t n_tasks, TaskFn fn, void* ctx, bool serial);

// Of the calling thread's context.
int thread_count();

// parallel_for over [0, n) in ranges of at least `grain`: f(begin, end).
template <class F>
void parallel_ranges(size_t n, size_t grain, F&& f) {
  if (n == 0) return;
  const size_t threads = static_cast<size_t>(thread_count());
  size_t tasks = grain ? (n + grain - 1) / grain : n;
  if (tasks > threads * 4) tasks = threads * 4;
  if (tasks <= 1 || threads == 1) {
    f(static_cast<size_t>(0), n);
    return;
  }
  struct Ctx {
    F* f;
    size_t n, tasks;
  } ctx{&f, n, tasks};
  parallel_for(
      tasks,
      [](void* p, size_t t) {
        Ctx* c = static_cast<Ctx*>(p);
        const size_t begin = c->n * t / c->tasks, end = c->n * (t + 1) / c->tasks;
        if (begin < end) (*c->f)(begin, end);
      },
      &ctx);
}

}  // namespace tallystick
