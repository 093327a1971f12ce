#include "thread_pool.hpp"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <new>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include <pthread.h>
#if defined(__linux__)
#include <sched.h>
#endif

#include "context.hpp"
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
thread_local Context* current = nullptr;  // read at every operator: no more than a pointer

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

}  // namespace

class Pool {
 public:
  // As many workers as the system gives, perhaps none: a limit on threads or memory costs time, and
  // never a bit or an error.
  Pool(int workers, Context& context) {
    try {
      threads_.reserve(static_cast<size_t>(workers));
      for (int i = 0; i < workers; ++i) threads_.emplace_back([this, &context] {
          current = &context;  // a task may ask for the instruction set
          work();
        });
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

namespace {

// Never destroyed: threads may outlive what the runtime destroys at exit.
struct Contexts {
  std::mutex mutex;
  std::vector<Context*> all;
};

Contexts& contexts() {
  static Contexts* made = new Contexts;
  return *made;
}

thread_local std::vector<Context*> outside_it;  // those that this thread goes back to

int clamped(int n) { return n < 1 ? 1 : (n > 256 ? 256 : n); }

}  // namespace

// A forked child has no workers: each context starts with a fresh pool when it first needs one.
// The child's copy of the list is whole, because the parent held its mutex across the fork.
void before_fork() { contexts().mutex.lock(); }
void after_fork_in_parent() { contexts().mutex.unlock(); }
void after_fork_in_child() {
  Contexts& known = contexts();
  new (&known.mutex) std::mutex();
  for (Context* context : known.all) {
    context->pool_ = nullptr;
    context->pool_size_ = 1;
    (void)context->running_.release();  // it may be held by a thread that is not here
    context->running_.reset(new std::mutex);
  }
}

Context::Context(int threads, Isa isa)
    : threads_(clamped(threads)), isa_(isa), running_(new std::mutex) {
  static const int registered = pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
  (void)registered;
  std::lock_guard<std::mutex> lock(contexts().mutex);
  contexts().all.push_back(this);
}

Context::~Context() {
  {
    std::lock_guard<std::mutex> lock(contexts().mutex);
    auto& all = contexts().all;
    all.erase(std::find(all.begin(), all.end(), this));
  }
  delete pool_;
}

void Context::set_threads(int n) { threads_.store(clamped(n), std::memory_order_relaxed); }

bool Context::set_isa(Isa isa) {
  if (!isa_supported(isa)) return false;
  isa_.store(isa, std::memory_order_relaxed);
  return true;
}

Pool* Context::ready_pool() {
  const int n = threads();
  if (n != pool_size_) {
    delete pool_;
    pool_ = nullptr;
    pool_size_ = n;
    if (n > 1) pool_ = new (std::nothrow) Pool(n - 1, *this);
  }
  return pool_;
}

Context& default_context() {
  static Context* made =
      new Context(static_cast<int>(std::thread::hardware_concurrency()), initial_isa());
  return *made;
}

Context& current_context() { return current != nullptr ? *current : default_context(); }

void enter_context(Context& context) {
  outside_it.push_back(current);
  current = &context;
}

void leave_context() {
  if (outside_it.empty()) throw std::logic_error("this thread has entered no context");
  current = outside_it.back();
  outside_it.pop_back();
}

void for_tasks(size_t n_tasks, TaskFn fn, void* ctx, bool serial) {
  if (!serial) return parallel_for(n_tasks, fn, ctx);
  for (size_t t = 0; t < n_tasks; ++t) fn(ctx, t);
}

int thread_count() { return current_context().threads(); }

void parallel_for(size_t n_tasks, TaskFn fn, void* ctx) {
  if (n_tasks == 0) return;
  Context& context = current_context();
  if (n_tasks == 1 || inside_task || context.threads() == 1) {
    for (size_t t = 0; t < n_tasks; ++t) fn(ctx, t);
    return;
  }
  std::lock_guard<std::mutex> lock(*context.running_);
  if (Pool* pool = context.ready_pool()) return pool->run(n_tasks, fn, ctx);
  const InsideTask serial;
  for (size_t t = 0; t < n_tasks; ++t) fn(ctx, t);
}

}  // namespace tallystick
