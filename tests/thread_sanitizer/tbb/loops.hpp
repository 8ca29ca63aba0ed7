#ifndef TESSERA_TESTS_THREAD_SANITIZER_TBB_LOOPS_HPP
#define TESSERA_TESTS_THREAD_SANITIZER_TBB_LOOPS_HPP

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace tbb {

template <class T> class blocked_range {
 public:
  blocked_range(T begin, T end, std::size_t grain = 1) : begin_(begin), end_(end), grain_(grain) {}
  T begin() const { return begin_; }
  T end() const { return end_; }
  std::size_t size() const { return static_cast<std::size_t>(end_ - begin_); }
  std::size_t grainsize() const { return grain_; }
  bool empty() const { return !(begin_ < end_); }

 private:
  T begin_, end_;
  std::size_t grain_;
};

namespace info {
// Never one: a loop that nobody else runs has no races to find.
inline int default_concurrency() { return std::max(2, static_cast<int>(std::thread::hardware_concurrency())); }
}  // namespace info

class global_control {
 public:
  enum parameter { max_allowed_parallelism, thread_stack_size };
  global_control(parameter, std::size_t) {}
};

namespace detail {
struct Here {
  int concurrency = info::default_concurrency();
  int index = 0;
};
inline thread_local Here here;

/// Sets a value for the length of a scope.
class Scope {
 public:
  explicit Scope(Here now) : before_(std::exchange(here, now)) {}
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;
  ~Scope() { here = before_; }

 private:
  Here before_;
};
}  // namespace detail

class task_arena {
 public:
  static constexpr int automatic = -1;
  explicit task_arena(int concurrency = automatic)
      : concurrency_(concurrency == automatic ? info::default_concurrency() : concurrency) {}
  int max_concurrency() const { return concurrency_; }
  template <class F> auto execute(F&& f) {
    const detail::Scope scope({concurrency_, 0});
    return f();
  }

 private:
  int concurrency_;
};

namespace this_task_arena {
template <class F> auto isolate(F&& f) { return f(); }
inline int max_concurrency() { return detail::here.concurrency; }
inline int current_thread_index() { return detail::here.index; }
}  // namespace this_task_arena

template <class T, class Body> void parallel_for(const blocked_range<T>& range, const Body& body) {
  if (range.empty()) return;
  const std::size_t grain = std::max<std::size_t>(1, range.grainsize());
  const std::size_t chunks = (range.size() + grain - 1) / grain;
  const int concurrency = detail::here.concurrency;

  // Relaxed on purpose: an order between items that oneTBB does not promise would hide their races.
  std::atomic<std::size_t> next{0};
  std::atomic<bool> cancelled{false};
  std::exception_ptr error;
  std::once_flag first_error;
  const auto work = [&](int index) {
    const detail::Scope scope({concurrency, index});
    for (std::size_t chunk; (chunk = next.fetch_add(1, std::memory_order_relaxed)) < chunks;) {
      if (cancelled.load(std::memory_order_relaxed)) return;
      const T begin = range.begin() + static_cast<T>(chunk * grain);
      const T end = chunk + 1 == chunks ? range.end() : begin + static_cast<T>(grain);
      try {
        body(blocked_range<T>(begin, end, grain));
      } catch (...) {
        std::call_once(first_error, [&] { error = std::current_exception(); });
        cancelled.store(true, std::memory_order_relaxed);
      }
    }
  };

  std::vector<std::thread> helpers;
  const int threads = static_cast<int>(std::min<std::size_t>(chunks, static_cast<std::size_t>(concurrency)));
  for (int index = 1; index < threads; ++index) helpers.emplace_back(work, index);
  work(detail::here.index);
  for (std::thread& helper : helpers) helper.join();
  if (error) std::rethrow_exception(error);
}

template <class Index, class F> void parallel_for(Index begin, Index end, const F& f) {
  parallel_for(blocked_range<Index>(begin, end), [&](const blocked_range<Index>& range) {
    for (Index i = range.begin(); i < range.end(); ++i) f(i);
  });
}

}  // namespace tbb

#endif
