#include "thread_pool.hpp"

#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <new>
#include <thread>
#include <utility>
#include <vector>

#include <pthread.h>
#if defined(__linux__)
#include <sched.h>
#endif

#include "environment.hpp"

#if defined(__x86_64__)
#include <immintrin.h>
#define TS_PAUSE() _mm_pause()
#else
#define TS_PAUSE() std::this_thread::yield()
#endif

namespace tallystick {
namespace {

// Spinning bridges the time between two operators of a step; longer waits sleep.
constexpr int kIdleSpins = 16000;
constexpr int kSpins = 2000;

thread_local bool inside_task = false;

struct Job {
  TaskFn fn = nullptr;
  void* ctx = nullptr;
  size_t n_tasks = 0;
  std::atomic<size_t> next{0};
  std::atomic<bool> failed{false};
  std::exception_ptr error;  // of the first task that failed; guarded by `failed`'s owner
};

// Marks the time of a stretch of tasks: calls from inside of them run serially.
struct InsideTask {
  InsideTask() { inside_task = true; }
  ~InsideTask() { inside_task = false; }
};

class Pool {
 public:
  // As many workers as the system gives, perhaps none: a limit on threads or memory costs time, and
  // never a bit or an error.
  explicit Pool(int workers) {
    try {
      threads_.reserve(static_cast<size_t>(workers));
      for (int i = 0; i < workers; ++i) threads_.emplace_back([this] { work(); });
    } catch (const std::exception&) {
    }
  }
  ~Pool() {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      stop_ = true;
      generation_.fetch_add(1, std::memory_order_release);
    }
    wake_.notify_all();
    for (auto& t : threads_) t.join();
  }
  // Rethrows the error of the first failing task; tasks that had not begun are left out then.
  void run(size_t n_tasks, TaskFn fn, void* ctx) {
    keep_off_this_cpu();
    {
      std::lock_guard<std::mutex> lock(mutex_);
      job_.fn = fn;
      job_.ctx = ctx;
      job_.n_tasks = n_tasks;
      job_.next.store(0, std::memory_order_relaxed);
      job_.failed.store(false, std::memory_order_relaxed);
      open_ = true;
      generation_.fetch_add(1, std::memory_order_release);
    }
    wake_.notify_all();
    drain();
    // The caller waits only for workers that joined. On a busy machine a worker that has not even
    // woken may take milliseconds, and finds the job closed.
    {
      std::lock_guard<std::mutex> lock(mutex_);
      open_ = false;
    }
    for (int spin = 0; active_.load(std::memory_order_acquire) != 0;) {
      if (++spin < kSpins) {
        TS_PAUSE();
      } else {
        std::this_thread::yield();
      }
    }
    if (job_.failed.load(std::memory_order_relaxed))
      std::rethrow_exception(std::exchange(job_.error, nullptr));
  }

 private:
  // Linux often wakes a thread on its waker's processor, and then lets it wait there for up to a
  // tick (4 ms) though another processor is idle. So a worker may not run on the caller's
  // processor.
  void keep_off_this_cpu() {
#if defined(__linux__)
    const int cpu = sched_getcpu();
    if (cpu < 0 || cpu == kept_off_) return;
    cpu_set_t allowed;
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return;
    kept_off_ = cpu;
    if (CPU_COUNT(&allowed) < 2) return;
    CPU_CLR(static_cast<size_t>(cpu), &allowed);
    for (auto& t : threads_) pthread_setaffinity_np(t.native_handle(), sizeof allowed, &allowed);
#endif
  }
  // Never throws: other threads may still be at work on the caller's data.
  void drain() noexcept {
    const InsideTask inside;
    try {
      for (;;) {
        const size_t t = job_.next.fetch_add(1, std::memory_order_relaxed);
        if (t >= job_.n_tasks || job_.failed.load(std::memory_order_relaxed)) break;
        job_.fn(job_.ctx, t);
      }
    } catch (...) {
      if (!job_.failed.exchange(true)) job_.error = std::current_exception();
    }
  }
  void work() {
    unsigned seen = 0;
    for (;;) {
      for (int spin = 0;
           generation_.load(std::memory_order_acquire) == seen && spin < kIdleSpins; ++spin)
        TS_PAUSE();
      {
        std::unique_lock<std::mutex> lock(mutex_);
        wake_.wait(lock, [&] { return generation_.load(std::memory_order_acquire) != seen; });
        seen = generation_.load(std::memory_order_acquire);
        if (stop_) return;
        if (!open_) continue;
        active_.fetch_add(1, std::memory_order_relaxed);
      }
      fp_environment_enter();  // each time: other code may have run in this thread
      drain();
      active_.fetch_sub(1, std::memory_order_release);
    }
  }

  std::vector<std::thread> threads_;
  int kept_off_ = -1;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::atomic<unsigned> generation_{0};
  std::atomic<int> active_{0};
  bool open_ = false;  // guarded by mutex_, like stop_
  bool stop_ = false;
  Job job_;
};

std::mutex run_mutex;
std::atomic<int> wanted{0};
Pool* pool = nullptr;
int pool_size = 1;

int default_threads() {
  const unsigned n = std::thread::hardware_concurrency();
  return n == 0 ? 1 : static_cast<int>(n > 256 ? 256 : n);
}

// A forked child has no workers: it starts with a fresh pool when it first needs one.
void after_fork_in_child() {
  pool = nullptr;
  pool_size = 1;
  new (&run_mutex) std::mutex();
}

void ensure_pool() {
  static const int registered = pthread_atfork(nullptr, nullptr, after_fork_in_child);
  (void)registered;
  const int n = thread_count();
  if (n == pool_size) return;
  delete pool;
  pool = nullptr;
  pool_size = n;
  if (n > 1) pool = new (std::nothrow) Pool(n - 1);
}

}  // namespace

int thread_count() {
  int n = wanted.load(std::memory_order_relaxed);
  if (n == 0) {
    n = default_threads();
    wanted.store(n, std::memory_order_relaxed);
  }
  return n;
}

void set_thread_count(int n) {
  wanted.store(n < 1 ? 1 : (n > 256 ? 256 : n), std::memory_order_relaxed);
}

void parallel_for(size_t n_tasks, TaskFn fn, void* ctx) {
  if (n_tasks == 0) return;
  if (n_tasks == 1 || inside_task || thread_count() == 1) {
    for (size_t t = 0; t < n_tasks; ++t) fn(ctx, t);
    return;
  }
  std::lock_guard<std::mutex> lock(run_mutex);
  ensure_pool();
  if (pool) return pool->run(n_tasks, fn, ctx);
  const InsideTask serial;
  for (size_t t = 0; t < n_tasks; ++t) fn(ctx, t);
}

}  // namespace tallystick
