#ifndef TESSERA_RUNTIME_EXECUTOR_PROFILE_HOOK_HPP
#define TESSERA_RUNTIME_EXECUTOR_PROFILE_HOOK_HPP
#include <tessera/base/push_macros.hpp>

#include <cstdint>
#include <span>

#include <tessera/base/dtype.hpp>
#include <tessera/base/growable.hpp>
#include <tessera/base/shape.hpp>
#include <tessera/base/source.hpp>
#include <tessera/runtime/executor/compiled_program.hpp>
#include <tessera/runtime/memory/storage.hpp>

namespace tessera::runtime {

class Executable;
class ProfiledRange;

/// How a thread runs programs while it has a ts::Profiler. Pointers to functions, so that only translation units with a
/// profiler compile them.
struct ProfileHook {
  // `source`: the line of an expression, whose program has no lines, or of ts::compile.
  Growable<Leaf> (*run)(Executable&, std::span<const Leaf>, const Source& source);
  StoragePtr (*run_plain)(Executable&, TensorStorage* const* tensors, const HostNumber* numbers, const Source& source);
  void (*begin)(ProfiledRange&);
  void (*end)(ProfiledRange&) noexcept;

  /// The hook of this thread; null without a profiler.
  static const ProfileHook*& own() {
    static thread_local const ProfileHook* hook = nullptr;
    return hook;
  }
};

/// The timers of a thread that run at the same time, innermost first.
struct OpenTimer {
  OpenTimer* outer = nullptr;
  std::int64_t* inner_ns = nullptr;  ///< the total time of inner timers while the present timer runs
};

/// What a ts::Profiler times beside the steps of programs.
enum class ProfiledWork : std::uint8_t { planning, oracle, reshard, to_host, shard };

/// Times what this thread does while the range is alive, if the thread has a profiler.
class ProfiledRange : public OpenTimer {
 public:
  explicit ProfiledRange(ProfiledWork done, Source at = {}) : work(done), source(at), hook_(ProfileHook::own()) {
    if (hook_ != nullptr) hook_->begin(*this);
  }
  /// A range for work that reads and writes each element of a tensor once.
  ProfiledRange(ProfiledWork done, Source at, const TensorStorage& moved) : ProfiledRange(done, at) {
    if (hook_ != nullptr) bytes = 2 * volume(moved.shape()) * static_cast<std::int64_t>(size_of(moved.dtype()));
  }
  ProfiledRange(const ProfiledRange&) = delete;
  ProfiledRange& operator=(const ProfiledRange&) = delete;
  ~ProfiledRange() {
    if (hook_ != nullptr) hook_->end(*this);
  }
  bool is_timed() const { return hook_ != nullptr; }

  const ProfiledWork work;
  const Source source;
  std::int64_t bytes = 0;       ///< read and written
  std::int64_t sent_bytes = 0;  ///< by each device
  std::int64_t begin_ns = 0, own_inner_ns = 0;

 private:
  const ProfileHook* const hook_;
};

}  // namespace tessera::runtime

#include <tessera/base/pop_macros.hpp>

#endif
