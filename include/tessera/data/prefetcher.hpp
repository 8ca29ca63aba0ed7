#ifndef TESSERA_DATA_PREFETCHER_HPP
#define TESSERA_DATA_PREFETCHER_HPP
#include <tessera/base/push_macros.hpp>

#include <cstdint>
#include <functional>
#include <memory>

#include <tessera/base/compiled.hpp>
#include <tessera/base/here.hpp>

#if TESSERA_HAS_DEFINITIONS
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

#include <tessera/base/error.hpp>
#include <tessera/base/source.hpp>
#endif

namespace tessera::data {

/// Loads items of a sequence ahead of their use, on a separate thread: while item 5 is used, items 6 and 7 are loaded.
/// Items are returned in order. If loading an item throws, get() rethrows the exception for that item.
class Prefetcher {
 public:
  using Load = std::function<std::shared_ptr<void>(std::int64_t)>;

  /// Loads at most `ahead` items ahead; with 0 each item is loaded when it is needed, without a thread. Errors:
  /// `option` for a negative number and for an empty function.
  Prefetcher(int ahead, Load load, Here at = Here::current());
  Prefetcher(const Prefetcher&) = delete;
  Prefetcher& operator=(const Prefetcher&) = delete;
  /// Waits for the item that is being loaded.
  ~Prefetcher();

  /// The item; from now on, the items after it are loaded.
  std::shared_ptr<void> get(std::int64_t item);

 private:
  struct Work;
  std::unique_ptr<Work> work_;
};

#if TESSERA_HAS_DEFINITIONS
struct Prefetcher::Work {
  struct Result {
    std::shared_ptr<void> item;
    std::exception_ptr error;
  };

  Work(int most, Load function) : ahead(most), load(std::move(function)) {}

  const int ahead;
  const Load load;
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<Result> ready;  // items first, first + 1, ...
  std::int64_t first = 0;
  std::int64_t restarts = 0;  // counts jumps, so that an item loaded before a jump is dropped
  bool running = false, stopping = false;
  std::thread thread;

  Result loaded(std::int64_t item) const {
    try {
      return {load(item), nullptr};
    } catch (...) {
      return {nullptr, std::current_exception()};
    }
  }
  void run() {
    std::unique_lock lock(mutex);
    while (true) {
      changed.wait(lock, [&] { return stopping || static_cast<int>(ready.size()) < ahead; });
      if (stopping) return;
      const std::int64_t item = first + static_cast<std::int64_t>(ready.size()), before = restarts;
      lock.unlock();
      Result result = loaded(item);
      lock.lock();
      if (before != restarts) continue;
      ready.push_back(std::move(result));
      changed.notify_all();
    }
  }
  Result take(std::int64_t item) {
    if (ahead == 0) return loaded(item);
    std::unique_lock lock(mutex);
    if (!running || item != first) {
      first = item;
      ready.clear();
      ++restarts;
      changed.notify_all();
    }
    if (!running) {
      thread = std::thread([this] { run(); });
      running = true;
    }
    changed.wait(lock, [&] { return !ready.empty(); });
    Result result = std::move(ready.front());
    ready.pop_front();
    ++first;
    changed.notify_all();
    return result;
  }
};

TESSERA_ONCE Prefetcher::Prefetcher(int ahead, Load load, Here at) {
  if (ahead < 0) fail(errc::option, "[Prefetcher] ahead: ", ahead, " is negative", Source::from(at));
  if (!load) fail(errc::option, "[Prefetcher] load: is an empty function", Source::from(at));
  work_ = std::make_unique<Work>(ahead, std::move(load));
}
TESSERA_ONCE Prefetcher::~Prefetcher() {
  {
    const std::lock_guard lock(work_->mutex);
    work_->stopping = true;
  }
  work_->changed.notify_all();
  if (work_->thread.joinable()) work_->thread.join();
}
TESSERA_ONCE std::shared_ptr<void> Prefetcher::get(std::int64_t item) {
  const Work::Result result = work_->take(item);
  if (result.error) std::rethrow_exception(result.error);
  return result.item;
}
#endif

}  // namespace tessera::data

#include <tessera/base/pop_macros.hpp>

#endif
