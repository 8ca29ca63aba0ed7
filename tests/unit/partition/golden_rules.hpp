#ifndef TESSERA_TESTS_PARTITION_GOLDEN_RULES_HPP
#define TESSERA_TESTS_PARTITION_GOLDEN_RULES_HPP

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "planned.hpp"

#include <tessera/partition/plan/static_plan.hpp>

// Texts of sharding rules, and of the plans that follow from them, for tests that compare them with expected texts.

namespace tessera::tests::rules {

inline constexpr Mesh mesh({{"x", 2}, {"y", 2}});

/// The rule of an operation: factors of each operand and of the result, one letter each, and the kinds of factors that
/// are not passed through: "ab, bc -> ac b summed".
inline std::string rule_text(const GraphView& graph, Op op) {
  int id = graph.size - 1;
  while (id >= 0 && graph[id].op != op) --id;
  if (id < 0) return "no such operation";
  FactorRule rule;
  row_of(op).sharding(graph, id, rule);
  const auto dims = [](const DimFactors& list, int rank) {
    std::string text;
    for (int d = 0; d < rank; ++d) {
      const auto& factors = list.dims[d];
      if (factors.size() > 1) text += "(";
      for (const std::int8_t f : factors) text += static_cast<char>('a' + f);
      if (factors.size() > 1) text += ")";
      if (factors.empty()) text += "1";
    }
    return text.empty() ? "." : text;
  };
  std::string text, kinds;
  for (std::size_t i = 0; i < rule.operands.size(); ++i) {
    const int x = graph.operand(id, static_cast<int>(i));
    if (x < 0 || graph[x].rank == 0) continue;
    text += (text.empty() ? "" : ", ") + dims(rule.operands[i], graph[x].rank);
  }
  for (std::size_t f = 0; f < rule.kinds.size(); ++f)
    if (rule.kinds[f] != FactorKind::pass)
      kinds += concat_text("  ", static_cast<char>('a' + f),
                           rule.kinds[f] == FactorKind::reduction     ? " summed"
                           : rule.kinds[f] == FactorKind::permutation ? " moved"
                                                                      : " whole");
  return text + " -> " + dims(rule.result, graph[id].rank) + kinds;
}

inline std::string plan_text(const Plan& plan) {
  const GraphPlan& main = plan.main();
  std::string line = tessera::text(main.values[static_cast<std::size_t>(main.outputs[0])].sharding, plan.mesh);
  plan.for_each_collective([&](const CollectiveInfo& c, std::int64_t) {
    if (c.kind != Collective::slice)
      line += concat_text(" ", name_of(c.kind), "(", detail::axes_text(plan.mesh, c.axes), ") ", c.payload_bytes);
  });
  return line;
}

/// A family: a line with its rule, then one line for each combination of operand shardings.
class Golden {
 public:
  template <class F, class... A> void rule(std::string_view name, Op op, F, const A&...) {
    out_ += concat_text(name, ": ", rule_text(Traced<F, typename A::type...>::program().main(), op), "\n");
  }
  template <class F, class... A> void row(F f, const A&... arguments) {
    std::string line;
    const auto add = [&](const Abstract& leaf) { line += (line.empty() ? "  " : " ") + leaf.spec.text(); };
    (add(arguments.leaves[0]), ...);
    out_ += line + " -> " + plan_text(plan(f, mesh, arguments...)) + "\n";
  }
  const std::string& text() const { return out_; }

 private:
  std::string out_ = "\n";
};

template <std::size_t N> auto f32(const std::int64_t (&shape)[N], const PartitionSpec& spec) {
  return abstract<float>(shape, spec);
}
inline PartitionSpec spec(std::string_view text) { return parse_spec(text); }

}  // namespace tessera::tests::rules

#endif
