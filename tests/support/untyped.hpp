#ifndef TESSERA_TESTS_SUPPORT_UNTYPED_HPP
#define TESSERA_TESTS_SUPPORT_UNTYPED_HPP

#include "gradients.hpp"

namespace oracle {

/// A program built node by node, for property tests on random graphs: labels, dims and ranks can be run-time values.
class UntypedProgram {
 public:
  tessera::Value argument(int rank, unsigned unit = 0, tessera::DType dtype = tessera::DType::f32) {
    const Node node{.op = Op::argument,
                    .dtype = dtype,
                    .rank = static_cast<std::uint8_t>(rank),
                    .singletons = static_cast<std::uint8_t>(unit),
                    .value = static_cast<double>(arguments_.size())};
    return source(node);
  }
  /// An argument with one slice per layer of a Stack, along its leading dim.
  tessera::Value stacked_argument(int rank, tessera::DType dtype) {
    return source(tessera::stored_as(tessera::Storage::layers,
                                     tessera::argument_node(static_cast<int>(arguments_.size()), dtype, rank)));
  }
  /// A ts::Dim and a ts::Scalar.
  tessera::Value dim() { return source(tessera::dim_node(static_cast<int>(arguments_.size()))); }
  tessera::Value scalar() { return source(tessera::scalar_node(static_cast<int>(arguments_.size()))); }
  tessera::Value number(double value, tessera::DType dtype = tessera::DType::i64) {
    return {&module_, 0, module_.main().add({.op = Op::constant, .dtype = dtype, .value = value}), {}};
  }
  void output(tessera::Value value) { module_.main().outputs.push_back(value.id); }

  /// Outputs sum(y * weights) and its gradient with respect to all earlier arguments; weights become the last argument.
  void output_gradients(tessera::Value y) {
    tessera::Growable<std::int32_t> sources;
    for (const tessera::Value& v : arguments_)
      if (tessera::is_floating(v.dtype()) && v.node().is_argument()) sources.push_back(v.id);
    const tessera::Value weights = argument(y.rank(), y.node().singletons, y.dtype());
    const unsigned all = (1u << y.rank()) - 1;
    const tessera::Value loss = tessera::build::reduce(Op::sum, y * weights, all, false);
    output(loss);
    for (std::int32_t id : tessera::differentiate(loss, sources)) module_.main().outputs.push_back(id);
  }

  Program finish(bool simplified = true) {
    if (simplified) tessera::simplify(module_);
    Program program(module_, static_cast<int>(arguments_.size()));
    tessera::verify(program.view());
    return program;
  }

 private:
  tessera::Module module_;
  std::vector<tessera::Value> arguments_;

  tessera::Value source(const Node& node) {
    arguments_.push_back({&module_, 0, module_.main().add(node), {}});
    return arguments_.back();
  }
};

}  // namespace oracle

#endif
