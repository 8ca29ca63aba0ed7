#ifndef TESSERA_RUNTIME_ORACLE_ORACLE_HPP
#define TESSERA_RUNTIME_ORACLE_ORACLE_HPP
#include <tessera/base/push_macros.hpp>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <span>
#include <string>
#include <utility>

#include <tessera/base/dtype.hpp>
#include <tessera/base/error.hpp>
#include <tessera/base/growable.hpp>
#include <tessera/base/shape.hpp>
#include <tessera/base/source.hpp>

namespace tessera {

/// One element that differs between the mesh and one device.
struct OracleElement {
  Shape index;         ///< in the global tensor
  int device = -1;     ///< a device that holds the element; -1 for a partial value, whose parts are on several
  double sharded = 0;  ///< the value on the mesh; of a partial value, the combined parts
  double one_device = 0;
  double allowed = 0;  ///< the difference that rounding can cause
};

/// A value that differs between a program on its mesh and the same program on one device.
struct OracleDifference {
  std::string what;   ///< "sum f32[64]{model}, layer 3": operation, shape, sharding
  std::string after;  ///< the collective after which it first differs, "all_reduce over data"; empty: the operation
  Source source{};    ///< the source line of the operation
  std::int64_t count = 0, elements = 0;  ///< elements that differ, and all elements
  OracleElement first, largest;

  /// A description of a few lines.
  std::string text() const;
};

struct Leaf;
namespace runtime {
class Executable;
}

namespace detail {

/// Collects the differences found in this thread. While a sink is alive, programs of its thread are compared as they
/// run.
struct OracleSink {
  /// Runs a program and compares it. A pointer, so that only translation units that use oracle mode instantiate its
  /// code.
  using Run = Growable<Leaf> (*)(runtime::Executable&, std::span<const Leaf>);

  bool throws = true;
  Growable<OracleDifference> differences{};
  std::int64_t compared = 0;
  Run run = nullptr;

  static OracleSink*& innermost() {
    static thread_local OracleSink* sink = nullptr;
    return sink;
  }
  /// The comparison for threads without a sink, or null for none.
  static std::atomic<Run>& everywhere() {
    static std::atomic<Run> run{nullptr};
    return run;
  }
  static Run running() {
    const OracleSink* const sink = innermost();
    return sink != nullptr ? sink->run : everywhere().load(std::memory_order_acquire);
  }
};

inline bool oracle_is_on() { return OracleSink::running() != nullptr; }

/// Reports differences to the sink; without a sink, or if it throws, fails. Errors: `oracle`.
inline void add_differences(std::int64_t compared, Growable<OracleDifference> found) {
  OracleSink* const sink = OracleSink::innermost();
  if (sink != nullptr) sink->compared += compared;
  if (found.empty()) return;
  if (sink == nullptr || sink->throws) throw error(errc::oracle, "[oracle] " + found[0].text(), found[0].source);
  for (OracleDifference& one : found) sink->differences.push_back(std::move(one));
}

}  // namespace detail

inline std::string OracleDifference::text() const {
  char numbers[128];
  const auto element = [&](const OracleElement& e) {
    std::string at = "[";
    for (std::size_t d = 0; d < e.index.size(); ++d) at += concat_text(d == 0 ? "" : ",", e.index[d]);
    std::snprintf(numbers, sizeof numbers, "]: %.9g on ", e.sharded);
    at += numbers + (e.device < 0 ? std::string("the mesh, all parts combined")
                                  : concat_text("device ", e.device, " of the mesh"));
    std::snprintf(numbers, sizeof numbers, ", %.9g on a single device (rounding explains up to %.2g)", e.one_device,
                  e.allowed);
    return at + numbers;
  };
  return concat_text("values differ: ", what, source, after.empty() ? "" : ", after ", after, ": ", count, " of ",
                     elements, " elements\n  first difference   ", element(first), "\n  largest difference ",
                     element(largest));
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
