#ifndef TESSERA_RUNTIME_TRANSPORT_COMMUNICATION_HPP
#define TESSERA_RUNTIME_TRANSPORT_COMMUNICATION_HPP
#include <tessera/base/push_macros.hpp>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <tessera/base/error.hpp>
#include <tessera/base/here.hpp>
#include <tessera/base/source.hpp>
#include <tessera/partition/plan/plan.hpp>

namespace tessera {

/// What a CommunicationScope allows to happen while it lives.
struct CommunicationLimit {
  std::int64_t wire_bytes = INT64_MAX;   ///< that a device may send
  std::int64_t collectives = INT64_MAX;  ///< slices, which move nothing, don't count
  bool forbid_implicit_reshards = false;
};

/// Collectives of one kind over the same axes that ran.
struct CommunicationTotal {
  Collective kind = Collective::all_reduce;
  InlineVector<Name, max_axes> axes;
  std::int64_t count = 0;
  std::int64_t payload_bytes = 0;
  std::int64_t wire_bytes = 0;  ///< that each device sends
};

/// Counts what really runs in this thread while the scope lives: each collective where it is carried out, in programs,
/// in reshards of tensors and in collectives called as functions. Scopes nest, and all of them count.
///
/// With a limit, a program that would communicate more than is left of it does not start.
/// Errors, of what runs inside: `policy`.
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

  /// How often a kind of collective ran; over one axis alone when it is named.
  std::int64_t count(Collective kind, std::string_view axis = {}) const {
    return total(axis, [&](const CommunicationTotal& t) { return t.kind == kind ? t.count : 0; });
  }
  /// Bytes that each device sent.
  std::int64_t wire_bytes(std::string_view axis = {}) const {
    return total(axis, [](const CommunicationTotal& t) { return t.wire_bytes; });
  }
  std::int64_t payload_bytes(Collective kind, std::string_view axis = {}) const {
    return total(axis, [&](const CommunicationTotal& t) { return t.kind == kind ? t.payload_bytes : 0; });
  }
  /// Bytes that this process read and wrote in memory to carry it out. Replicas are stored once, so it may be less
  /// than what devices send.
  std::int64_t copied_bytes() const { return copied_; }
  /// Bytes that crossed from one device to another, those of all devices together, counted by what moved them from
  /// what it moved: totals() are what the plan says of the same. With even shards and one collective a step, this is
  /// wire_bytes() times the number of devices; uneven shards and paths of several collectives move less, as a rule.
  std::int64_t moved_bytes() const { return moved_; }
  const std::vector<CommunicationTotal>& totals() const { return totals_; }

  /// A line for each kind and axes: "2 all_reduce over data: 8192 B, 8192 B on the wire".
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

  /// The scope that this thread is in; null outside of any. For what carries out collectives.
  static CommunicationScope*& innermost() {
    static thread_local CommunicationScope* scope = nullptr;
    return scope;
  }

  /// Before something runs: whether it fits every scope. `describe(text)` says what it is.
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

  /// One collective ran.
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
  std::vector<CommunicationTotal> totals_;
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
    fail(errc::policy, "[communication] ", what, ": ", more, " more after ", used, ", the scope", source_, " allows ",
         allowed, "; most of it is ", name_of(largest.kind), " of ", largest.payload_bytes, " bytes", largest.source);
  }
};

namespace detail {
/// What runs while it lives is counted nowhere, and no limit holds for it.
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
