#ifndef TESSERA_OPS_ROWS_HPP
#define TESSERA_OPS_ROWS_HPP
#include <tessera/base/push_macros.hpp>

#include <cstddef>

#include <tessera/graph/transform/simplify.hpp>
#include <tessera/ops/attention/attention_rows.hpp>
#include <tessera/ops/constraint_rows.hpp>
#include <tessera/ops/contraction/contraction_rows.hpp>
#include <tessera/ops/contraction/ragged_rows.hpp>
#include <tessera/ops/contraction/window_rows.hpp>
#include <tessera/ops/control_rows.hpp>
#include <tessera/ops/cumulative/cumulative_rows.hpp>
#include <tessera/ops/custom/custom_call_rows.hpp>
#include <tessera/ops/data_movement/data_movement_rows.hpp>
#include <tessera/ops/elementwise/gcd.hpp>
#include <tessera/ops/elementwise/incomplete_gamma.hpp>
#include <tessera/ops/elementwise/nextafter.hpp>
#include <tessera/ops/elementwise/operations.hpp>
#include <tessera/ops/gradient_rows.hpp>
#include <tessera/ops/indexing/indexed_rows.hpp>
#include <tessera/ops/indexing/scatter_rows.hpp>
#include <tessera/ops/indexing/sort_rows.hpp>
#include <tessera/ops/random/key_rows.hpp>
#include <tessera/ops/random/random_rows.hpp>
#include <tessera/ops/reduction/reduction_rows.hpp>
#include <tessera/ops/source/argument_rows.hpp>
#include <tessera/ops/source/extent_rows.hpp>
#include <tessera/ops/source/position_rows.hpp>
#include <tessera/ops/vmap/example_rows.hpp>

namespace tessera {

namespace ops {

/// All operations of the library.
using Operations = JoinedLists<ArgumentOperations, ExtentOperations, PositionOperations, RandomOperations,
                               ConstraintOperations, ElementwiseOperations, ReductionOperations, ContractionOperations,
                               DataMovementOperations, IndexedOperations, WindowOperations, CumulativeOperations,
                               SortOperations, ScatterOperations, AttentionOperations, ControlOperations,
                               GradientOperations, NextafterOperations, GcdOperations, IncompleteGammaOperations,
                               KeyOperations, CustomCallOperations, RaggedOperations, ExampleOperations>::type;

namespace detail {

/// What an operation has besides its row. Null: it has none.
struct OperationRules {
  GradientRule gradient = nullptr;
  SimplifyRule simplify = nullptr;
  AttributeText attributes = nullptr;
  CheckRule check = nullptr;
  BatchRule batch = nullptr;
};
template <class Operation> constexpr OperationRules rules_of() {
  OperationRules rules{.check = Operation::check};
  if constexpr (requires { Operation::gradient; }) rules.gradient = Operation::gradient;
  if constexpr (requires { Operation::simplify; }) rules.simplify = Operation::simplify;
  if constexpr (requires { Operation::attributes; }) rules.attributes = Operation::attributes;
  if constexpr (requires { Operation::batch; }) rules.batch = Operation::batch;
  return rules;
}

/// The rules of operations by id: a hash table with open addressing. It is read only in constant expressions, so that a
/// program contains only the code of its own operations.
template <class Entry> class OperationTable {
 public:
  constexpr void add(Op op, Entry entry) {
    std::size_t at = slot(op);
    for (; taken_[at]; at = (at + 1) % size)
      if (ids_[at] == op)
        fail(errc::graph_invalid, "[ops] two operations have equal ids: rename one of the operations");
    taken_[at] = true;
    ids_[at] = op;
    entries_[at] = entry;
  }
  constexpr Entry operator[](Op op) const {
    std::size_t at = slot(op);
    while (ids_[at] != op) {
      if (!taken_[at]) fail(errc::graph_invalid, "[ops] the operation is in no OperationList of ops/rows.hpp");
      at = (at + 1) % size;
    }
    return entries_[at];
  }

 private:
  static constexpr std::size_t size = 1024;
  Op ids_[size]{};
  bool taken_[size]{};
  Entry entries_[size]{};

  static constexpr std::size_t slot(Op op) { return static_cast<std::size_t>(op) % size; }
};

template <class... Operation> constexpr auto make_row_table(OperationList<Operation...>) {
  OperationTable<const OpRow*> table;
  (table.add(op_v<Operation>, &row_v<Operation>), ...);
  return table;
}
/// A table of one kind of rule: a program that reads the texts of attributes contains no gradients.
template <class Rule, class... Operation>
constexpr auto make_rule_table(OperationList<Operation...>, Rule OperationRules::*rule) {
  OperationTable<Rule> table;
  (table.add(op_v<Operation>, rules_of<Operation>().*rule), ...);
  return table;
}
inline constexpr auto row_table = make_row_table(Operations{});
inline constexpr auto gradient_table = make_rule_table(Operations{}, &OperationRules::gradient);
inline constexpr auto simplify_table = make_rule_table(Operations{}, &OperationRules::simplify);
inline constexpr auto text_table = make_rule_table(Operations{}, &OperationRules::attributes);
inline constexpr auto check_table = make_rule_table(Operations{}, &OperationRules::check);
inline constexpr auto batch_table = make_rule_table(Operations{}, &OperationRules::batch);

}  // namespace detail
}  // namespace ops

constexpr const OpRow& row_of(Op op) { return *ops::detail::row_table[op]; }
constexpr SimplifyRule simplify_rule_of(Op op) { return ops::detail::simplify_table[op]; }
constexpr AttributeText attribute_text_of(Op op) { return ops::detail::text_table[op]; }
constexpr CheckRule check_of(Op op) { return ops::detail::check_table[op]; }
constexpr BatchRule batch_rule_of(Op op) { return ops::detail::batch_table[op]; }
constexpr GradientRule gradient_of(Op op) { return ops::detail::gradient_table[op]; }

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
