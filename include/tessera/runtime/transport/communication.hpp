#ifndef TESSERA_RUNTIME_TRANSPORT_COMMUNICATION_HPP
#define TESSERA_RUNTIME_TRANSPORT_COMMUNICATION_HPP
#include <tessera/base/push_macros.hpp>

#include <cstdint>
#include <string>
#include <string_view>

#include <tessera/base/error.hpp>
#include <tessera/base/growable.hpp>
#include <tessera/base/here.hpp>
#include <tessera/base/source.hpp>
#include <tessera/partition/plan/plan.hpp>

namespace tessera {

/// The most communication that a CommunicationScope permits.
struct CommunicationLimit {
  std::int64_t wire_bytes = INT64_MAX;   ///< sent by each device
  std::int64_t collectives = INT64_MAX;  ///< number of collectives, without slices, which send nothing
  bool forbid_implicit_reshards = false;
};

/// The collectives of one kind over the same axes that ran in a CommunicationScope.
struct CommunicationTotal {
  Collective kind = Collective::all_reduce;
  InlineVector<Name, max_axes> axes;
  std::int64_t count = 0;
  std::int64_t payload_bytes = 0;
  std::int64_t wire_bytes = 0;  ///< sent by each device
};

/// Counts the collectives that this thread executes while the scope is alive: those of programs, of reshards of tensors
/// and those called as functions. Scopes nest; a collective counts in each enclosing scope.
///
/// With a limit, a program that would exceed the rest of the limit does not start, but throws `policy`.
///
///     ts::CommunicationScope scope({.wire_bytes = 1 << 20});
///     step(model, x);
///     assert(scope.count(ts::all_reduce, "data") == 3);
class CommunicationScope {
 public:
  explicit CommunicationScope(const CommunicationLimit& limit = {}, Here at = Here::current())
      : limit_(limit), source_(Source::from(at)), outer_(innermost()) {
    innermost() = this;
  }
  CommunicationScope(const CommunicationScope&) = delete;
  CommunicationScope& operator=(const CommunicationScope&) = delete;
  ~CommunicationScope() { innermost() = outer_; }

  /// The number of collectives of this kind; with `axis`, only those over that single axis.
  std::int64_t count(Collective kind, std::string_view axis = {}) const {
    return total(axis, [&](const CommunicationTotal& t) { return t.kind == kind ? t.count : 0; });
  }
  /// Bytes that each device sent, as planned; with `axis`, only by collectives over that single axis.
  std::int64_t wire_bytes(std::string_view axis = {}) const {
    return total(axis, [](const CommunicationTotal& t) { return t.wire_bytes; });
  }
  std::int64_t payload_bytes(Collective kind, std::string_view axis = {}) const {
    return total(axis, [&](const CommunicationTotal& t) { return t.kind == kind ? t.payload_bytes : 0; });
  }
  /// Bytes of memory that this process read and wrote for the collectives. May be less than the devices send, since
  /// replicas share one buffer.
  std::int64_t copied_bytes() const { return copied_; }
  /// Bytes sent between devices, summed over devices and counted by the transport, independently of the plan's
  /// totals(). With even shards and one collective per step, equals wire_bytes() times the number of devices; with
  /// uneven shards or several collectives per reshard, usually less.
  std::int64_t moved_bytes() const { return moved_; }
  const Growable<CommunicationTotal>& totals() const { return totals_; }

  /// One line per kind and axes, such as "2 all_reduce over data: 8192 B, 8192 B on the wire".
  std::string text() const {
    std::string out;
    for (const CommunicationTotal& t : totals_) {
      std::string axes;
      for (const Name& name : t.axes) axes += concat_text(axes.empty() ? "" : ",", name.view());
      out += concat_text(t.count, " ", name_of(t.kind), " over ", axes, ": ", t.payload_bytes, " B, ", t.wire_bytes,
                         " B on the wire\n");
    }
    return out.empty() ? "no communication\n" : out;
  }
  void clear() {
    totals_.clear();
    copied_ = moved_ = 0;
  }

  /// This thread's innermost scope, or null. For code that executes collectives.
  static CommunicationScope*& innermost() {
    static thread_local CommunicationScope* scope = nullptr;
    return scope;
  }

  /// Throws `policy` if these collectives would exceed the limit of this scope or of one that encloses it.
  /// `describe(collective)` throws for an implicit reshard where a scope forbids them.
  template <class Collectives, class Describe>
  void permit(const Collectives& collectives, const Describe& describe) const {
    std::int64_t wire = 0, count = 0, largest_wire = -1;
    CollectiveInfo largest, implicit;
    bool is_implicit = false;
    collectives([&](const CollectiveInfo& c, std::int64_t times) {
      if (c.kind == Collective::slice) return;
      wire += c.wire_bytes * times;
      count += times;
      if (c.wire_bytes * times > largest_wire) {
        largest_wire = c.wire_bytes * times;
        largest = c;
      }
      if (!c.requested && !is_implicit) implicit = c;
      is_implicit = is_implicit || !c.requested;
    });
    for (const CommunicationScope* scope = this; scope != nullptr; scope = scope->outer_) {
      const CommunicationLimit& limit = scope->limit_;
      if (is_implicit && limit.forbid_implicit_reshards) describe(implicit);
      if (wire > limit.wire_bytes - scope->wire_bytes())
        scope->fail_limit("bytes on the wire", wire, scope->wire_bytes(), limit.wire_bytes, largest);
      if (count > limit.collectives - scope->collectives())
        scope->fail_limit("collectives", count, scope->collectives(), limit.collectives, largest);
    }
  }

  /// Counts one executed collective.
  void add(const Mesh& mesh, const CollectiveInfo& collective) {
    for (CommunicationScope* scope = this; scope != nullptr; scope = scope->outer_) scope->add_here(mesh, collective);
  }
  void add_copied(std::int64_t bytes) {
    for (CommunicationScope* scope = this; scope != nullptr; scope = scope->outer_) scope->copied_ += bytes;
  }
  void add_moved(std::int64_t bytes) {
    for (CommunicationScope* scope = this; scope != nullptr; scope = scope->outer_) scope->moved_ += bytes;
  }

 private:
  CommunicationLimit limit_;
  Source source_;
  CommunicationScope* outer_;
  Growable<CommunicationTotal> totals_;
  std::int64_t copied_ = 0, moved_ = 0;

  template <class Of> std::int64_t total(std::string_view axis, Of of) const {
    std::int64_t n = 0;
    for (const CommunicationTotal& t : totals_)
      if (axis.empty() || (t.axes.size() == 1 && t.axes[0].view() == axis)) n += of(t);
    return n;
  }
  std::int64_t collectives() const {
    return total({}, [](const CommunicationTotal& t) { return t.kind == Collective::slice ? 0 : t.count; });
  }
  void add_here(const Mesh& mesh, const CollectiveInfo& collective) {
    const InlineVector<Name, max_axes> axes = axis_names(mesh, collective.axes);
    std::size_t t = 0;
    while (t < totals_.size() && (totals_[t].kind != collective.kind || !(totals_[t].axes == axes))) ++t;
    if (t == totals_.size()) totals_.push_back({collective.kind, axes, 0, 0, 0});
    ++totals_[t].count;
    totals_[t].payload_bytes += collective.payload_bytes;
    totals_[t].wire_bytes += collective.wire_bytes;
  }
  [[noreturn]] void fail_limit(std::string_view what, std::int64_t more, std::int64_t used, std::int64_t allowed,
                               const CollectiveInfo& largest) const {
    fail(errc::policy, "[communication] ", what, ": ", more, " needed and ", used, " used before, but the scope",
         source_, " allows ", allowed, "; the largest collective is ", name_of(largest.kind), " of ",
         largest.payload_bytes, " bytes", largest.source);
  }
};

namespace detail {
/// Suspends this thread's CommunicationScopes, their counts and limits, while it is alive.
class Uncounted {
 public:
  Uncounted() : scope_(CommunicationScope::innermost()) { CommunicationScope::innermost() = nullptr; }
  Uncounted(const Uncounted&) = delete;
  Uncounted& operator=(const Uncounted&) = delete;
  ~Uncounted() { CommunicationScope::innermost() = scope_; }

 private:
  CommunicationScope* scope_;
};
}  // namespace detail

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
