#ifndef TESSERA_TENSOR_ORACLE_HPP
#define TESSERA_TENSOR_ORACLE_HPP
#include <tessera/base/push_macros.hpp>

#include <atomic>
#include <cstdint>
#include <span>

#include <tessera/base/compiled.hpp>
#include <tessera/base/growable.hpp>
#include <tessera/runtime/oracle/oracle.hpp>
#if TESSERA_HAS_DEFINITIONS
#include <utility>

#include <tessera/runtime/executor/profile_hook.hpp>
#include <tessera/runtime/oracle/oracle_run.hpp>
#endif

namespace tessera {

namespace detail {

/// Runs a program on one device and on its mesh, and reports differences to the innermost scope.
TESSERA_ONCE Growable<Leaf> run_compared(runtime::Executable& executable, std::span<const Leaf> arguments);

#if TESSERA_HAS_DEFINITIONS
TESSERA_ONCE Growable<Leaf> run_compared(runtime::Executable& executable, std::span<const Leaf> arguments) {
  const runtime::ProfiledRange range(runtime::ProfiledWork::oracle);
  runtime::OracleRun run = runtime::run_with_oracle(executable, arguments);
  add_differences(run.compared, std::move(run.differences));
  return std::move(run.results);
}
#endif

}  // namespace detail

/// While an OracleScope exists, each program that this thread runs is run twice, on one device and on its mesh, and the
/// result of each step is compared; so are results of local_map. Scopes nest; the innermost is in effect.
///
/// Each step starts from the single-device values, so an error is reported at the step that causes it, and the
/// program's results are those of a single device. Tolerances: docs/spmd.md. Memory: all values of the program on one
/// device. Errors: a program in the scope throws `oracle` for the first value that differs, unless the scope keeps the
/// differences; donated arguments are then empty if a result was already written over one of them.
class OracleScope {
 public:
  enum class On : std::uint8_t { difference_throws, difference_is_kept };

  explicit OracleScope(On on = On::difference_throws) : outer_(detail::OracleSink::innermost()) {
    sink_.throws = on == On::difference_throws;
    sink_.run = &detail::run_compared;
    detail::OracleSink::innermost() = &sink_;
  }
  OracleScope(const OracleScope&) = delete;
  OracleScope& operator=(const OracleScope&) = delete;
  ~OracleScope() { detail::OracleSink::innermost() = outer_; }

  /// The values that differed, in the order in which they were computed.
  const Growable<OracleDifference>& differences() const { return sink_.differences; }
  /// Number of values that were compared. A value in the body of a Stack counts once per layer.
  std::int64_t compared() const { return sink_.compared; }

 private:
  detail::OracleSink sink_;
  detail::OracleSink* outer_;
};

/// Turns the comparison on or off for all threads. If it is on, the first value that differs is an `oracle` error.
inline void set_oracle_mode(bool on) {
  detail::OracleSink::everywhere().store(on ? &detail::run_compared : nullptr, std::memory_order_release);
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
