#ifndef TESSERA_TENSOR_PROGRAM_PLAN_CACHE_HPP
#define TESSERA_TENSOR_PROGRAM_PLAN_CACHE_HPP
#include <tessera/base/push_macros.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <new>
#include <shared_mutex>
#include <span>
#include <utility>

#include <tessera/base/compiled.hpp>
#include <tessera/base/growable.hpp>
#include <tessera/base/integers/hash.hpp>
#include <tessera/base/planning.hpp>
#include <tessera/kernels/at_fork.hpp>
#include <tessera/kernels/made_once.hpp>
#include <tessera/mesh/mesh.hpp>
#include <tessera/partition/plan/make_plan.hpp>
#include <tessera/partition/plan/plan_options.hpp>
#include <tessera/runtime/executor/compiled_program.hpp>
#if TESSERA_HAS_DEFINITIONS
#include <tessera/runtime/executor/executable.hpp>
#include <tessera/runtime/executor/profile_hook.hpp>
#include <tessera/runtime/memory/run_memory.hpp>
#if TESSERA_HAS_DEFINITIONS && defined(TESSERA_VERIFY)
#include <tessera/graph/ir/verify.hpp>
#include <tessera/partition/plan/verify_plan.hpp>
#include <tessera/runtime/executor/verify_moves.hpp>
#endif
#endif

namespace tessera {

namespace runtime {
class Executable;
}

/// Hits and misses of the plan cache, and its present size.
struct CacheStatistics {
  std::int64_t hits = 0, misses = 0;  ///< calls that found a cached plan, and calls that made a new one
  std::int64_t evictions = 0;         ///< plans removed to keep the limit, or by clear_plan_cache
  std::int64_t entries = 0;           ///< plans in the cache
  std::int64_t bytes = 0;             ///< their approximate size, without the memory in which programs run (shared)
};

/// The largest size of the plan cache of a process. Beyond it, the least recently used plans are removed.
struct PlanCacheLimit {
  std::int64_t entries = 2048;
  std::int64_t bytes = std::int64_t{256} << 20;
};

namespace detail {

TESSERA_ONCE void destroy_executable(runtime::Executable* executable);
/// Calls a function, since this header only declares the executor: its destructor is compiled with its definition.
struct DestroyExecutable {
  void operator()(runtime::Executable* executable) const { destroy_executable(executable); }
};
using ExecutablePtr = std::unique_ptr<runtime::Executable, DestroyExecutable>;

/// Plans a program for arguments, and prepares it to run.
TESSERA_ONCE ExecutablePtr make_executable(const CompiledProgram& compiled, const Mesh& mesh,
                                           std::span<const ArgumentInfo> arguments, const PlanOptions& options);
TESSERA_ONCE const Plan& plan_of(const runtime::Executable& executable);
/// Whether no argument is a Stack, and the only result is a tensor that a step computes.
TESSERA_ONCE bool is_plain(const runtime::Executable& executable);
#if TESSERA_HAS_DEFINITIONS
TESSERA_ONCE ExecutablePtr make_executable(const CompiledProgram& compiled, const Mesh& mesh,
                                           std::span<const ArgumentInfo> arguments, const PlanOptions& options) {
  const runtime::ProfiledRange range(runtime::ProfiledWork::planning);
#ifdef TESSERA_VERIFY
  verify(compiled.program);
#endif
  ExecutablePtr made(
      new runtime::Executable(compiled, make_plan(compiled.program, compiled.units, mesh, arguments.data(),
                                                  static_cast<int>(arguments.size()), options)));
#ifdef TESSERA_VERIFY
  verify_plan(made->plan(), compiled.program, compiled.units);
  verify_moves(*made);
#endif
  return made;
}
TESSERA_ONCE void destroy_executable(runtime::Executable* executable) { delete executable; }
TESSERA_ONCE const Plan& plan_of(const runtime::Executable& executable) { return executable.plan(); }
TESSERA_ONCE bool is_plain(const runtime::Executable& executable) { return executable.is_plain(); }
#endif

class ProgramCache;
class PlanLease;

/// Holds one plan. A slot is never freed but reused for other plans: a thread that remembers a slot and a serial number
/// compares the number to learn whether its plan is still there.
struct PlanSlot {
  std::mutex mutex;          // held by the PlanLease of the plan
  std::uint64_t serial = 0;  // unique to the plan; 0: no plan. Written under this mutex and the table's
  std::atomic<std::uint64_t> last_use{0};
  ExecutablePtr executable;

  // PlanCache::mutex_ guards the fields below. They copy the request, because PlanOptions only points to its parts.
  ProgramCache* program = nullptr;
  std::uint64_t hash = 0;
  Mesh mesh{}, sizes{};
  Growable<ArgumentInfo> arguments;
  Growable<OutputRequest> outputs;
  PlanOptions options;
  std::int64_t bytes = 0;
  PlanSlot* next = nullptr;  // in the list of a hash bucket, or in the list of free slots
};

/// Exclusive use of a plan by one thread: while the lease exists, no other thread runs or removes the plan.
class PlanLease {
 public:
  PlanLease() = default;
  /// Waits until no other thread has a lease of the slot. Empty if the slot then holds another plan.
  PlanLease(PlanSlot& slot, std::uint64_t serial) : slot_(&slot), serial_(serial) {
    slot.mutex.lock();
    if (slot.serial == serial)
      mark_used();
    else
      give_back();
  }
  PlanLease(PlanLease&& other) noexcept : slot_(std::exchange(other.slot_, nullptr)), serial_(other.serial_) {}
  PlanLease& operator=(PlanLease&& other) noexcept {
    std::swap(slot_, other.slot_);
    std::swap(serial_, other.serial_);
    return *this;
  }
  ~PlanLease() {
    if (slot_ != nullptr) give_back();
  }

  explicit operator bool() const { return slot_ != nullptr; }
  runtime::Executable& operator*() const { return *slot_->executable; }
  runtime::Executable* operator->() const { return slot_->executable.get(); }
  PlanSlot* slot() const { return slot_; }
  std::uint64_t serial() const { return serial_; }

 private:
  friend class PlanCache;
  // Ticks once per plan that is made; plans used within one tick count as equally recent.
  static inline constinit std::atomic<std::uint64_t> clock{1};

  PlanSlot* slot_ = nullptr;
  std::uint64_t serial_ = 0;

  /// A lease of a slot whose mutex this thread already holds.
  explicit PlanLease(PlanSlot& slot) : slot_(&slot), serial_(slot.serial) { mark_used(); }
  void mark_used() { slot_->last_use.store(clock.load(std::memory_order_relaxed), std::memory_order_relaxed); }
  void give_back() { std::exchange(slot_, nullptr)->mutex.unlock(); }
};

/// The key of a plan in the cache, together with its program. Holds references only.
struct PlanRequest {
  const Mesh& mesh;
  std::span<const ArgumentInfo> arguments;
  const PlanOptions& options;
};

/// The plans of one program in the PlanCache. Never destroyed.
class ProgramCache {
 public:
  explicit ProgramCache(const CompiledProgram& compiled);
  ProgramCache(const ProgramCache&) = delete;
  ProgramCache& operator=(const ProgramCache&) = delete;

  /// The plan of a request, from the cache if it has one, otherwise a new one.
  PlanLease find(const PlanRequest& request);
  CacheStatistics statistics() const;
  /// Counts a call that found its plan in RecentCalls, without find().
  void count_hit() { hits_.fetch_add(1, std::memory_order_relaxed); }
  const CompiledProgram& compiled() const { return compiled_; }

 private:
  friend class PlanCache;
  CompiledProgram compiled_;
  std::atomic<std::int64_t> hits_{0}, misses_{0};
  std::mutex planning_;  // held by the thread that plans this program; other threads wait and use its plan
  std::int64_t evictions_ = 0, entries_ = 0, bytes_ = 0;  // guarded by PlanCache::mutex_
  ProgramCache* next_ = nullptr;
};

/// All plans of the process: one hash table with one limit.
class PlanCache {
 public:
  static PlanCache& instance() {
    static constinit MadeOnce<PlanCache> cache;
    return cache.get([] { return new PlanCache; });
  }

  CacheStatistics statistics() const;
  void set_limit(const PlanCacheLimit& limit);
  /// Removes the plans of one program, or of all, except plans that are running.
  void clear(const ProgramCache* only = nullptr);

 private:
  friend class ProgramCache;

  mutable std::shared_mutex mutex_;
  Growable<PlanSlot*> slots_;  // all slots, used and free
  Growable<PlanSlot*> table_;  // the first slot of each hash bucket; its size is a power of two
  PlanSlot* free_ = nullptr;
  std::atomic<ProgramCache*> programs_{nullptr};  // only grows, at its head
  PlanCacheLimit limit_;
  std::uint64_t last_serial_ = 0;
  std::int64_t entries_ = 0, bytes_ = 0;

  PlanCache();
  PlanSlot*& bucket(std::uint64_t hash) { return table_[hash & (table_.size() - 1)]; }
  /// The slot and the serial number of a plan, or null.
  std::pair<PlanSlot*, std::uint64_t> look_up(const ProgramCache& program, const PlanRequest& request,
                                              std::uint64_t hash) const;
  PlanLease insert(ProgramCache& program, const PlanRequest& request, std::uint64_t hash, ExecutablePtr executable);
  void make_room();
  void keep_within_limit(const PlanSlot* added, PlanSlot*& dropped);
  bool take_away(PlanSlot& slot, PlanSlot*& dropped);
  void unlink(PlanSlot& slot);
  void recycle(PlanSlot* dropped);
  void after_fork();

  static std::uint64_t hash_of(const ProgramCache& program, const PlanRequest& request);
  static bool is_for(const PlanSlot& slot, const ProgramCache& program, const PlanRequest& request);
};

#if TESSERA_HAS_DEFINITIONS
TESSERA_ONCE PlanCache::PlanCache() : table_(64, nullptr) {
  at_fork([] { instance().mutex_.lock(); }, [] { instance().mutex_.unlock(); }, [] { instance().after_fork(); });
}
/// Runs in the child of a fork, which has no other threads: a mutex that another thread held is never unlocked, so it
/// is made anew, and the plan that it guarded is abandoned.
TESSERA_ONCE void PlanCache::after_fork() {
  new (&mutex_) std::shared_mutex;  // glibc identifies the writer by its thread id, which differs in the child
  for (PlanSlot* slot : slots_) {
    if (slot->mutex.try_lock()) {
      slot->mutex.unlock();
      continue;
    }
    new (&slot->mutex) std::mutex;
    if (slot->program == nullptr) continue;
    slot->serial = 0;
    (void)slot->executable.release();  // another thread was running it, so its state is inconsistent: leak it
    unlink(*slot);
    slot->next = std::exchange(free_, slot);
  }
  for (ProgramCache* program = programs_; program != nullptr; program = program->next_) {
    if (program->planning_.try_lock())
      program->planning_.unlock();
    else
      new (&program->planning_) std::mutex;
  }
}

TESSERA_ONCE std::uint64_t PlanCache::hash_of(const ProgramCache& program, const PlanRequest& request) {
  std::uint64_t hash = hash_mix(request.mesh.hash(), reinterpret_cast<std::uintptr_t>(&program));
  for (const ArgumentInfo& a : request.arguments) {
    hash = hash_mix(hash_mix(hash, a.sharding.hash()), a.number);
    for (std::int64_t extent : a.shape) hash = hash_mix(hash, static_cast<std::uint64_t>(extent));
  }
  const PlanOptions& o = request.options;
  hash = hash_mix(hash, std::uint64_t{o.forbid_implicit_reshards} << 2 | std::uint64_t{o.fuse_steps} << 1 |
                            std::uint64_t{o.deterministic});
  for (const Name& axis : o.explicit_axes) hash = hash_mix(hash, axis.view());
  if (o.sizes != nullptr) hash = hash_mix(hash, o.sizes->hash());
  if (o.outputs != nullptr)
    for (int k = 0; k < program.compiled_.program.main().output_count; ++k)
      hash = hash_mix(hash, o.outputs[k].given ? o.outputs[k].sharding.hash() : 1);
  return hash;
}
TESSERA_ONCE bool PlanCache::is_for(const PlanSlot& slot, const ProgramCache& program, const PlanRequest& request) {
  const PlanOptions &a = slot.options, &b = request.options;
  if (slot.program != &program || !(slot.mesh == request.mesh) || slot.arguments.size() != request.arguments.size() ||
      a.forbid_implicit_reshards != b.forbid_implicit_reshards || a.deterministic != b.deterministic ||
      a.fuse_steps != b.fuse_steps || !(a.explicit_axes == b.explicit_axes) ||
      (a.sizes == nullptr) != (b.sizes == nullptr) || (a.outputs == nullptr) != (b.outputs == nullptr) ||
      (b.sizes != nullptr && !(slot.sizes == *b.sizes)))
    return false;
  for (std::size_t i = 0; i < slot.arguments.size(); ++i) {
    const ArgumentInfo &x = slot.arguments[i], &y = request.arguments[i];
    if (!(x.shape == y.shape) || !(x.sharding == y.sharding) || x.number != y.number) return false;
  }
  for (std::size_t k = 0; k < slot.outputs.size(); ++k)
    if (slot.outputs[k].given != b.outputs[k].given ||
        (b.outputs[k].given && !(slot.outputs[k].sharding == b.outputs[k].sharding)))
      return false;
  return true;
}

TESSERA_ONCE std::pair<PlanSlot*, std::uint64_t> PlanCache::look_up(const ProgramCache& program,
                                                                    const PlanRequest& request,
                                                                    std::uint64_t hash) const {
  const std::shared_lock lock(mutex_);
  for (PlanSlot* slot = table_[hash & (table_.size() - 1)]; slot != nullptr; slot = slot->next)
    if (slot->hash == hash && is_for(*slot, program, request)) return {slot, slot->serial};
  return {nullptr, 0};
}

TESSERA_PLANNING TESSERA_ONCE PlanLease PlanCache::insert(ProgramCache& program, const PlanRequest& request,
                                                          std::uint64_t hash, ExecutablePtr executable) {
  // Allocations that may throw come first, before the table changes.
  Growable<ArgumentInfo> arguments;
  arguments.append(request.arguments.data(), request.arguments.data() + request.arguments.size());
  Growable<OutputRequest> outputs;
  if (const OutputRequest* given = request.options.outputs)
    outputs.append(given, given + program.compiled_.program.main().output_count);
  const std::int64_t bytes = executable->bytes();
  PlanSlot *dropped = nullptr, *slot = nullptr;
  {
    const std::unique_lock lock(mutex_);
    make_room();
    slot = std::exchange(free_, free_->next);
  }
  // Lock order: a thread that holds a slot may wait for the table, so a thread that holds the table never waits for
  // a slot.
  slot->mutex.lock();
  PlanLease lease;
  {
    const std::unique_lock lock(mutex_);
    slot->program = &program;
    slot->hash = hash;
    slot->mesh = request.mesh;
    slot->arguments = std::move(arguments);
    slot->outputs = std::move(outputs);
    slot->options = request.options;
    if (request.options.sizes != nullptr) slot->sizes = *request.options.sizes;
    slot->bytes = bytes;
    slot->executable = std::move(executable);
    slot->next = std::exchange(bucket(hash), slot);
    slot->serial = ++last_serial_;
    PlanLease::clock.fetch_add(1, std::memory_order_relaxed);
    lease = PlanLease(*slot);
    ++entries_;
    ++program.entries_;
    bytes_ += bytes;
    program.bytes_ += bytes;
    keep_within_limit(slot, dropped);
  }
  recycle(dropped);
  return lease;
}
/// Makes sure that there is a free slot, and that the table has at least as many buckets as plans.
TESSERA_ONCE void PlanCache::make_room() {
  if (free_ == nullptr) {
    slots_.reserve(slots_.size() + 1);
    free_ = new PlanSlot;
    slots_.push_back(free_);
  }
  if (static_cast<std::size_t>(entries_) < table_.size()) return;
  Growable<PlanSlot*> larger(table_.size() * 2, nullptr);
  table_ = std::move(larger);
  for (PlanSlot* slot : slots_)
    if (slot->program != nullptr) slot->next = std::exchange(bucket(slot->hash), slot);
}
/// Searches all slots for each plan that is removed, which costs about a hundredth of making a plan.
TESSERA_ONCE void PlanCache::keep_within_limit(const PlanSlot* added, PlanSlot*& dropped) {
  std::uint64_t before = 0;  // plans last used before this tick are running, and stay
  while (entries_ > limit_.entries || bytes_ > limit_.bytes) {
    PlanSlot* oldest = nullptr;
    std::uint64_t least = UINT64_MAX;
    for (PlanSlot* slot : slots_) {
      const std::uint64_t use = slot->last_use.load(std::memory_order_relaxed);
      if (slot->program == nullptr || slot == added || use < before || use >= least) continue;
      least = use;
      oldest = slot;
    }
    if (oldest == nullptr) return;
    if (!take_away(*oldest, dropped)) before = least + 1;
  }
}
TESSERA_ONCE bool PlanCache::take_away(PlanSlot& slot, PlanSlot*& dropped) {
  if (!slot.mutex.try_lock()) return false;
  slot.serial = 0;
  slot.mutex.unlock();
  unlink(slot);
  slot.next = std::exchange(dropped, &slot);
  return true;
}
TESSERA_ONCE void PlanCache::unlink(PlanSlot& slot) {
  PlanSlot** at = &bucket(slot.hash);
  while (*at != &slot) at = &(*at)->next;
  *at = slot.next;
  ++slot.program->evictions_;
  --slot.program->entries_;
  slot.program->bytes_ -= slot.bytes;
  --entries_;
  bytes_ -= slot.bytes;
  slot.program = nullptr;
}
/// Destroys plans that are no longer in the table. Called without the lock, since destruction takes long.
TESSERA_ONCE void PlanCache::recycle(PlanSlot* dropped) {
  PlanSlot* last = nullptr;
  for (PlanSlot* slot = dropped; slot != nullptr; slot = slot->next) {
    slot->executable.reset();
    slot->arguments = {};
    slot->outputs = {};
    last = slot;
  }
  if (last == nullptr) return;
  const std::unique_lock lock(mutex_);
  last->next = std::exchange(free_, dropped);
}

TESSERA_ONCE CacheStatistics PlanCache::statistics() const {
  const std::shared_lock lock(mutex_);
  CacheStatistics all{0, 0, 0, entries_, bytes_};
  for (const ProgramCache* program = programs_; program != nullptr; program = program->next_) {
    all.hits += program->hits_.load(std::memory_order_relaxed);
    all.misses += program->misses_.load(std::memory_order_relaxed);
    all.evictions += program->evictions_;
  }
  return all;
}
TESSERA_ONCE void PlanCache::set_limit(const PlanCacheLimit& limit) {
  if (limit.entries < 1 || limit.bytes < 0)
    fail(errc::option, "[plan_cache] limit: ", limit.entries, " plans and ", limit.bytes,
         " bytes; the limit is at least 1 plan, and not negative in bytes");
  PlanSlot* dropped = nullptr;
  {
    const std::unique_lock lock(mutex_);
    limit_ = limit;
    keep_within_limit(nullptr, dropped);
  }
  recycle(dropped);
}
TESSERA_ONCE void PlanCache::clear(const ProgramCache* only) {
  PlanSlot* dropped = nullptr;
  {
    const std::unique_lock lock(mutex_);
    for (PlanSlot* slot : slots_)
      if (slot->program != nullptr && (only == nullptr || slot->program == only)) take_away(*slot, dropped);
  }
  recycle(dropped);
}

TESSERA_ONCE ProgramCache::ProgramCache(const CompiledProgram& compiled) : compiled_(compiled) {
  std::atomic<ProgramCache*>& programs = PlanCache::instance().programs_;
  next_ = programs.load(std::memory_order_relaxed);
  while (!programs.compare_exchange_weak(next_, this, std::memory_order_acq_rel, std::memory_order_relaxed)) {
  }
}
TESSERA_ONCE PlanLease ProgramCache::find(const PlanRequest& request) {
  PlanCache& all = PlanCache::instance();
  const std::uint64_t hash = PlanCache::hash_of(*this, request);
  const auto found = [&] {
    // Another thread may remove the plan between look_up and the lease.
    for (;;) {
      const auto [slot, serial] = all.look_up(*this, request, hash);
      if (slot == nullptr) return PlanLease();
      if (PlanLease lease{*slot, serial}) {
        count_hit();
        return lease;
      }
    }
  };
  if (PlanLease lease = found()) return lease;
  const std::lock_guard planning(planning_);
  if (PlanLease lease = found()) return lease;
  misses_.fetch_add(1, std::memory_order_relaxed);
  return all.insert(*this, request, hash, make_executable(compiled_, request.mesh, request.arguments, request.options));
}
TESSERA_ONCE CacheStatistics ProgramCache::statistics() const {
  const std::shared_lock lock(PlanCache::instance().mutex_);
  return {hits_.load(std::memory_order_relaxed), misses_.load(std::memory_order_relaxed), evictions_, entries_, bytes_};
}
#endif

}  // namespace detail

/// Statistics of all programs of this process: compiled functions, expressions, and programs of the library itself.
TESSERA_ONCE CacheStatistics plan_cache_statistics();

/// Removes all plans that are not running, and frees the memory in which programs run. Later calls plan again.
TESSERA_ONCE void clear_plan_cache();

/// Sets the limit of the plan cache. Errors: `option` for less than one plan, or a negative number of bytes.
TESSERA_ONCE void set_plan_cache_limit(const PlanCacheLimit& limit);

#if TESSERA_HAS_DEFINITIONS
TESSERA_ONCE CacheStatistics plan_cache_statistics() { return detail::PlanCache::instance().statistics(); }
TESSERA_ONCE void clear_plan_cache() {
  detail::PlanCache::instance().clear();
  runtime::RunMemory::release();
}
TESSERA_ONCE void set_plan_cache_limit(const PlanCacheLimit& limit) { detail::PlanCache::instance().set_limit(limit); }
#endif

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
