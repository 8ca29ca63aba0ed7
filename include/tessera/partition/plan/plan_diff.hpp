#ifndef TESSERA_PARTITION_PLAN_PLAN_DIFF_HPP
#define TESSERA_PARTITION_PLAN_PLAN_DIFF_HPP
#include <tessera/base/push_macros.hpp>

#include <cstddef>
#include <cstdint>
#include <string>

#include <tessera/base/growable.hpp>
#include <tessera/base/planning.hpp>
#include <tessera/partition/plan/explain.hpp>
#include <tessera/partition/plan/plan_memory.hpp>

TESSERA_PLANNING_BEGIN

namespace tessera {

namespace detail {

/// Compares two plans line by line.
class PlanDiff {
 public:
  PlanDiff(const Plan& before, const Plan& after) : before_(lines(before)), after_(lines(after)) {
    const Mesh &from = before.given_mesh, &to = after.given_mesh;
    if (!(from == to)) out_ += concat_text("- ", from.text(), "\n+ ", to.text(), "\n");
    add_lines();
    add_total("on the wire of a device", before.wire_bytes(), after.wire_bytes(), " B");
    add_total("peak memory of a device", memory_of(before).peak, memory_of(after).peak, " B");
    add_total("read and written", before.traffic_bytes(), after.traffic_bytes(), " B");
    add_total("computed", before.flops(), after.flops(), " flops");
  }
  std::string text() { return std::move(out_); }

 private:
  Growable<std::string> before_, after_;
  std::string out_;

  static Growable<std::string> lines(const Plan& plan) {
    Growable<std::string> list;
    plan.for_each_collective([&](const CollectiveInfo& c, std::int64_t times) {
      if (c.kind == Collective::slice) return;
      const std::string at = c.source.text();
      list.push_back(concat_text(times, " ", name_of(c.kind), " over ", axes_text(plan.mesh, c.axes), " of ",
                                 name_of(c.dtype), ": ", bytes_text(c.payload_bytes), ", ", bytes_text(c.wire_bytes),
                                 " on the wire", at.empty() ? "" : "  at ", at, "  (", c.why,
                                 c.requested ? ")\n" : "; implicit)\n"));
    });
    return list;
  }

  /// Adds the lines that are in only one of the plans: all but a longest common subsequence.
  void add_lines() {
    const std::size_t n = before_.size(), m = after_.size();
    Growable<std::size_t> common((n + 1) * (m + 1));  // [i, j]: its length for the lines from i and from j on
    const auto at = [&](std::size_t i, std::size_t j) -> std::size_t& { return common[i * (m + 1) + j]; };
    for (std::size_t i = n; i-- > 0;)
      for (std::size_t j = m; j-- > 0;)
        at(i, j) = before_[i] == after_[j]        ? at(i + 1, j + 1) + 1
                   : at(i + 1, j) >= at(i, j + 1) ? at(i + 1, j)
                                                  : at(i, j + 1);
    std::size_t i = 0, j = 0;
    while (i < n || j < m) {
      if (i < n && j < m && before_[i] == after_[j]) {
        ++i;
        ++j;
      } else if (i < n && (j == m || at(i + 1, j) >= at(i, j + 1))) {
        out_ += "- " + before_[i++];
      } else {
        out_ += "+ " + after_[j++];
      }
    }
  }

  void add_total(const char* what, std::int64_t before, std::int64_t after, const char* unit) {
    if (before == after) return;
    out_ += concat_text(what, ": ", grouped(before), unit, " -> ", grouped(after), unit, "\n");
  }
};

}  // namespace detail

/// The difference between two plans as text: collectives that are gone (-) or new (+), in the order in which they run,
/// and totals that differ. Empty when the plans communicate, compute and hold the same.
inline std::string diff(const Plan& before, const Plan& after) { return detail::PlanDiff(before, after).text(); }

}  // namespace tessera

TESSERA_PLANNING_END

#include <tessera/base/pop_macros.hpp>

#endif
