#ifndef TESSERA_TESTS_PARTITION_OPS_PAGE_HPP
#define TESSERA_TESTS_PARTITION_OPS_PAGE_HPP

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "golden_rules.hpp"

#include <tessera/ops/rows.hpp>

// What the library says of operations and functions, for the tables of docs/ops.md: it is read from rows, from recorded
// programs and from plans.

namespace tessera::tests::ops_page {

/// A function recorded for arguments of these types.
class Recorded {
 public:
  Recorded(Module module, int arguments) : module_(std::move(module)), arguments_(arguments) {
    for (const Graph& graph : module_.graphs) graphs_.push_back(graph.view());
  }
  template <class F, class... Args> static Recorded of(bool simplified = false) {
    auto [module, arguments] = Trace<F, Args...>::record();
    if (simplified) simplify(module);
    return {std::move(module), arguments};
  }
  const GraphView& main() const { return graphs_[0]; }
  DType type() const { return main()[main().outputs[0]].dtype; }
  ProgramView view() const {
    return {graphs_.data(), static_cast<int>(graphs_.size()), module_.specs.data(), arguments_,
            static_cast<int>(module_.specs.size())};
  }
  const GraphView* with(Op op) const {
    for (const GraphView& graph : graphs_)
      for (int id = 0; id < graph.size; ++id)
        if (graph[id].op == op) return &graph;
    return nullptr;
  }
  /// Whether a floating-point argument has a gradient: operations with a gradient lead from it to a result.
  bool has_gradient() const {
    const GraphView& graph = main();
    std::vector<bool> has(static_cast<std::size_t>(graph.size));
    for (int id = 0; id < graph.size; ++id) {
      const Node& node = graph[id];
      bool leads = node.is_argument();
      for (int i = 0; i < node.arity && !leads; ++i) {
        const int x = graph.operand(id, i);
        leads = x >= 0 && has[static_cast<std::size_t>(x)] && !has_operand(row_of(node).shape_only, i) &&
                (gradient_of(node.op) != nullptr || node.op == Op::project);
      }
      has[static_cast<std::size_t>(id)] = leads && (is_floating(node.dtype) || node.op == Op::repeat);
    }
    for (int k = 0; k < graph.output_count; ++k)
      if (has[static_cast<std::size_t>(graph.outputs[k])]) return true;
    return false;
  }

 private:
  Module module_;
  int arguments_;
  std::vector<GraphView> graphs_;
};

/// Kinds of collectives in the order in which they run, "all_gather, permute"; "none". `result`: "f32[8]".
inline std::string collectives_of(const Recorded& recorded, const std::vector<ArgumentInfo>& arguments,
                                  const Mesh& mesh, std::string& result) {
  const Planned planned(recorded.view(), mesh, arguments);
  result =
      shape_text(recorded.type(), planned.plan.main().shapes[static_cast<std::size_t>(recorded.main().outputs[0])]);
  std::vector<std::string> kinds;
  planned.plan.for_each_collective([&](const CollectiveInfo& c, std::int64_t) {
    const std::string kind(name_of(c.kind));
    if (c.kind != Collective::slice && std::find(kinds.begin(), kinds.end(), kind) == kinds.end())
      kinds.push_back(kind);
  });
  std::string text;
  for (const std::string& kind : kinds) text += (text.empty() ? "" : ", ") + kind;
  return text.empty() ? "none" : text;
}

/// The element type of the result for operands of an operation of this row, if it is elementwise.
inline std::string types_text(const OpRow& row) {
  if (row.converts) return "any";
  if (row.predicate) return row.of_bools ? "bool" : "bool; no bools";
  if (row.fractional) return "f32 of integers and bools";
  return row.of_bools ? "that of the operands" : "that of the operands; no bools";
}

}  // namespace tessera::tests::ops_page

#endif
