#include "../../support/random_program.hpp"

#include <tessera/graph/ir/verify.hpp>

namespace ts = tessera;
using namespace oracle;

namespace {

struct Layer {
  Float<2> w;
  constexpr auto operator()(const auto& x) const { return x + ts::tanh(ts::matmul(x, w)); }
};
constexpr auto train = [](const auto& model, const auto& x, const ts::Dim& parts) {
  return ts::value_and_grad([](const auto& m, const auto& a, const auto& p) {
    const auto y = ts::rearrange<"b (p d) -> p b d">(m(a), ts::len<"p">(p));
    return ts::mean(ts::softmax(ts::slice<0>(y, 0, 1)) * ts::max<2>(y, ts::keepdims));
  })(model, x, parts);
};

TEST(Verify, AcceptsWhatTheLibraryMakes) {
  EXPECT_FALSE(ts::find_defect(trace<decltype(train), ts::Stack<Layer>, Float<2>, ts::Dim>().view()));
  for (unsigned seed = 0; seed < 100; ++seed)
    EXPECT_FALSE(ts::find_defect(RandomProgram(seed).finish(seed % 2 == 0).view())) << seed;
}

/// Changes one field of the first node of an operation: the verifier must reject the graph.
void expect_defect(Op op, const std::function<void(ts::Module&, Node&)>& damage, std::string_view part_of_rule) {
  Program program = trace<decltype(train), ts::Stack<Layer>, Float<2>, ts::Dim>();
  for (ts::Graph& graph : program.module.graphs)
    for (Node& node : graph.nodes) {
      if (node.op != op) continue;
      damage(program.module, node);
      const Program damaged(program.module, program.argument_count);
      const ts::Defect defect = ts::find_defect(damaged.view());
      EXPECT_TRUE(defect) << ts::row_of(op).name;
      EXPECT_NE(defect.rule.find(part_of_rule), std::string_view::npos) << defect.rule;
      EXPECT_THROW(ts::verify(damaged.view()), ts::error);
      return;
    }
  FAIL() << "no " << ts::row_of(op).name;
}

TEST(Verify, NamesTheRuleThatIsBroken) {
  const auto rank = [](ts::Module&, Node& n) { ++n.rank; };
  const auto unit = [](ts::Module&, Node& n) { n.singletons ^= 1; };
  const auto type = [](ts::Module&, Node& n) { n.dtype = ts::DType::f64; };
  const auto label = [](int i, int value) {
    return
        [i, value](ts::Module&, Node& n) { n.labels[static_cast<std::size_t>(i)] = static_cast<std::int8_t>(value); };
  };
  expect_defect(Op::tanh, rank, "broadcast");
  expect_defect(Op::tanh, unit, "broadcast");
  expect_defect(Op::tanh, type, "element type");
  expect_defect(
      Op::tanh, [](ts::Module&, Node& n) { n.arity = 2; }, "number of operands");
  expect_defect(Op::einsum, rank, "label");
  expect_defect(Op::einsum, unit, "extent 1");
  expect_defect(Op::einsum, label(0, 1), "once");
  expect_defect(Op::einsum, label(16, 9), "of an operand");
  expect_defect(Op::sum, label(0, 1 << 5), "dims of the operand");
  expect_defect(Op::max, label(1, 0), "kept");
  expect_defect(Op::rearrange, label(0, 7), "the dims of a factor");
  expect_defect(Op::rearrange, label(8, 0), "one position");
  expect_defect(Op::slice, label(0, 4), "dim is a dim");
  expect_defect(
      Op::slice, [](ts::Module&, Node& n) { n.singletons = 0b10; }, "one dim changes");
  expect_defect(Op::extent, label(0, 3), "dim of the operand");
  expect_defect(
      Op::argument, [](ts::Module&, Node& n) { n.value = 40; }, "argument");
  expect_defect(
      Op::repeat, [](ts::Module&, Node& n) { n.value = 0; }, "body");
  expect_defect(Op::repeat, label(0, 2), "");
  expect_defect(Op::project, rank, "projection");
  expect_defect(
      Op::project, [](ts::Module&, Node& n) { n.value = 9; }, "output");
  const auto counted = [](bool on, int stacked) {
    return [on, stacked](ts::Module&, Node& n) {
      ts::Repeat repeat = ts::Repeat::of(n);
      repeat.counted = on;
      repeat.stacked = stacked;
      n.labels = repeat.pack();
    };
  };
  expect_defect(Op::repeat, counted(false, 0), "count its layers");
  expect_defect(Op::repeat, counted(true, 1), "are operands");
  expect_defect(Op::repeat, counted(true, 0), "an integer");
  expect_defect(Op::repeat, counted(false, 1000), "are operands");
  expect_defect(
      Op::tanh,
      [](ts::Module& m, Node& n) {
        for (ts::Graph& graph : m.graphs)
          if (&n >= graph.nodes.data() && &n < graph.nodes.data() + graph.nodes.size())
            graph.operands[static_cast<std::size_t>(n.first)] = static_cast<std::int32_t>(&n - graph.nodes.data());
      },
      "before the nodes that read them");
  expect_defect(
      Op::tanh, [](ts::Module& m, Node&) { m.main().outputs[0] = 1000; }, "output");
}

// Invariants of the rows that passes rely on, for every operation of the library.
void expect_row_is_consistent(const ts::OpRow& row) {
  SCOPED_TRACE(row.name);
  EXPECT_EQ(row.kind == ts::OpKind::alone, row.unit != ts::UnitKind::fused);
  EXPECT_EQ(row.kind == ts::OpKind::elementwise, row.number != nullptr);
  EXPECT_TRUE(!row.folds_constants || row.number != nullptr);
  EXPECT_TRUE(row.host_source == ts::HostSource::no || (row.host != nullptr && row.kind == ts::OpKind::source));
  EXPECT_TRUE(row.view == nullptr || row.unit == ts::UnitKind::data_movement);
  EXPECT_TRUE(row.permutation == nullptr || row.offset == nullptr);
  EXPECT_TRUE(!row.constrains || row.unit == ts::UnitKind::constraint);
  EXPECT_TRUE(!row.optional_operands || row.arity == ts::any_arity);
  EXPECT_TRUE(!row.scatters || row.arity == 3) << "what a scatter fills has the shape of its third operand";
  if (row.arity != ts::any_arity) {
    EXPECT_LT(row.sharded_as, row.arity);
    EXPECT_LT(row.joins_operand, row.arity);
  }
}
template <class... Operation> void expect_rows_are_consistent(ts::ops::OperationList<Operation...>) {
  (expect_row_is_consistent(ts::ops::row_v<Operation>), ...);
}
TEST(Verify, RowsOfAllOperationsAreConsistent) { expect_rows_are_consistent(ts::ops::Operations{}); }

}  // namespace
