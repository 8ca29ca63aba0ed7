#include "gradients.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <tessera/graph/transform/gradient.hpp>

namespace oracle {

namespace {

using tessera::Module;
using tessera::Value;

/// A recorded program whose outputs are replaced by a scalar and its gradient.
class Differentiated {
 public:
  Differentiated(const Module& recorded, const std::vector<bool>& floating)
      : module_(recorded), floating_(floating), count_(static_cast<int>(floating.size())),
        result_(value(module_.main().outputs[0])) {}
  Differentiated(const Differentiated&) = delete;  // values refer to the module
  Differentiated& operator=(const Differentiated&) = delete;

  /// Loss and its gradient; the weights are the last argument.
  Program first() && {
    const Value loss = loss_with(count_);
    return std::move(*this).with_gradient(loss, count_ + 1);
  }
  /// Slope and its gradient; the arguments are followed by the direction and the weights.
  Program second() && {
    const Value loss = loss_with(2 * count_);
    const tessera::Growable<std::int32_t> gradient = tessera::differentiate(loss, sources());
    Value slope = loss.number(0.0);
    std::size_t next = 0;
    for (int k = 0; k < count_; ++k) {
      if (!floating_[static_cast<std::size_t>(k)]) continue;
      const Value along = argument(count_ + k, value(k).dtype(), value(k).rank());
      slope = slope + tessera::build::cast(sum_of(value(gradient[next++]) * along), loss.dtype());
    }
    return std::move(*this).with_gradient(slope, 2 * count_ + 1);
  }

 private:
  Module module_;
  const std::vector<bool>& floating_;
  int count_;
  Value result_;

  Value value(int id) { return {&module_, 0, id, {}}; }
  Value argument(int number, tessera::DType dtype, int rank) {
    return value(module_.main().add(tessera::argument_node(number, dtype, rank)));
  }
  static Value sum_of(const Value& x) { return tessera::build::reduce(Op::sum, x, (1u << x.rank()) - 1, false); }
  Value loss_with(int weights) { return sum_of(result_ * argument(weights, result_.dtype(), result_.rank())); }
  /// The nodes of arguments come first, in their order.
  tessera::Growable<std::int32_t> sources() const {
    tessera::Growable<std::int32_t> ids;
    for (int k = 0; k < count_; ++k)
      if (floating_[static_cast<std::size_t>(k)]) ids.push_back(k);
    return ids;
  }
  /// Arguments without a gradient are outputs too, so that output k + 1 belongs to argument k.
  Program with_gradient(const Value& scalar, int argument_count) && {
    const tessera::Growable<std::int32_t> gradient = tessera::differentiate(scalar, sources());
    tessera::Growable<std::int32_t> outputs;
    outputs.push_back(scalar.id);
    std::size_t next = 0;
    for (int k = 0; k < count_; ++k) outputs.push_back(floating_[static_cast<std::size_t>(k)] ? gradient[next++] : k);
    module_.main().outputs = outputs;
    return simplified(std::move(module_), argument_count);
  }
};

}  // namespace

void check_against_differences(const Program& program, const std::vector<Array>& arguments,
                               const std::vector<bool>& floating) {
  const std::vector<Array> out = run(program.view(), arguments);
  const auto value = [&](const std::vector<Array>& at) { return run(program.view(), at).at(0).data[0]; };
  for (std::size_t k = 0; k < floating.size(); ++k)
    if (floating[k])
      expect_near(out.at(k + 1), finite_difference(value, arguments, k), 1e-6, "argument " + std::to_string(k));
}

void check_derivatives(const Module& recorded, const std::vector<Array>& arguments, const std::vector<bool>& floating,
                       int order, OpSet* covered) {
  const Program forward = simplified(recorded, static_cast<int>(arguments.size()));
  if (covered != nullptr)
    for (const GraphView& graph : forward.graphs)
      for (int id = 0; id < graph.size; ++id) covered->insert(graph[id].op);
  const Shape result = run(forward.view(), arguments).at(0).shape;

  std::vector<Array> with_weights = arguments;
  with_weights.push_back(random_array(result, 77, 0.5, 1.5));
  check_against_differences(Differentiated(recorded, floating).first(), with_weights, floating);
  if (order == 1) return;
  std::vector<Array> with_direction = arguments;
  for (std::size_t k = 0; k < arguments.size(); ++k)
    with_direction.push_back(random_array(arguments[k].shape, 99 + static_cast<unsigned>(k)));
  with_direction.push_back(with_weights.back());
  check_against_differences(Differentiated(recorded, floating).second(), with_direction, floating);
}

}  // namespace oracle
