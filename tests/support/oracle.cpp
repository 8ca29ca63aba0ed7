// Compiled once, with optimisation and without sanitizers: it takes much longer than the programs that it checks.
#include "oracle.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <stdexcept>
#include <utility>
#include <vector>

#include "dense_operations.hpp"

#include <tessera/ops/rows.hpp>

namespace oracle {
namespace {

class Interpreter {
 public:
  Interpreter(const ProgramView& program, const std::vector<Array>& arguments, Draw draw = fixed_draw,
              Disturb disturb = {})
      : program_(program), arguments_(arguments), draw_(std::move(draw)), disturb_(std::move(disturb)) {
    if (static_cast<int>(arguments.size()) != program.argument_count)
      throw std::logic_error("oracle: number of arguments");
  }

  std::vector<Array> run() { return run_graph(0, arguments_, {}); }

 private:
  using Values = std::vector<std::vector<Array>>;  // outputs of each node; only a repeat has several

  const ProgramView& program_;
  const std::vector<Array>& arguments_;
  Draw draw_;
  Disturb disturb_;

  static std::size_t at(int i) { return static_cast<std::size_t>(i); }

  std::vector<Array> run_graph(int g, const std::vector<Array>& arguments, const Layers& layers) {
    const GraphView& graph = program_.graphs[g];
    Values values(at(graph.size));
    for (int id = 0; id < graph.size; ++id) {
      const Node& node = graph[id];
      std::vector<const Array*> x;
      for (int i = 0; i < node.arity; ++i) {
        const int operand = graph.operand(id, i);
        if (operand >= id) throw std::logic_error("oracle: operand after its user");
        const bool single = operand >= 0 && values[at(operand)].size() == 1;
        x.push_back(single && node.op != Op::project ? &values[at(operand)][0] : nullptr);
      }
      if (node.op == Op::repeat) {
        values[at(id)] = repeat(node, x, layers);
      } else if (node.op == Op::project) {
        values[at(id)] = {values[at(graph.operand(id, 0))].at(at(tessera::output_of(node)))};
      } else if (node.op == Op::argument) {
        values[at(id)] = {arguments.at(at(node.index()))};
      } else {
        values[at(id)] = {evaluate(graph, id, x, layers)};
        if (disturb_) disturb(graph, id, x, layers, values[at(id)][0]);
      }
      if (node.op != Op::repeat) check_type(node, values[at(id)][0]);
    }
    std::vector<Array> outputs;
    for (int k = 0; k < graph.output_count; ++k) outputs.push_back(values[at(graph.outputs[k])].at(0));
    return outputs;
  }

  void disturb(const GraphView& graph, int id, const std::vector<const Array*>& x, const Layers& layers, Array& value) {
    const Node& node = graph[id];
    const bool ragged = dense::is(node, "ragged_dot") || dense::is(node, "ragged_outer");
    if (node.op != Op::sum && node.op != Op::einsum && !dense::is(node, "prod") && !ragged)
      return disturb_(node, value, value);
    std::vector<Array> sizes;
    for (const Array* operand : x) {
      sizes.push_back(*operand);
      if (ragged && operand == x.back()) continue;
      for (double& v : sizes.back().data) v = std::fabs(v);
    }
    std::vector<const Array*> operands;
    for (const Array& size : sizes) operands.push_back(&size);
    disturb_(node, value, evaluate(graph, id, operands, layers));
  }

  static void check_type(const Node& node, const Array& value) {
    if (static_cast<int>(value.shape.size()) != node.rank) throw std::logic_error("oracle: rank of a node");
    for (int d = 0; d < node.rank; ++d)
      if (node.is_singleton(d) && value.shape[at(d)] != 1)
        throw std::logic_error("oracle: a singleton dim that extends");
  }

  std::vector<Array> repeat(const Node& node, const std::vector<const Array*>& x, Layers around) {
    const tessera::Repeat r = tessera::Repeat::of(node);
    const int stacked_end = r.carried + r.stacked;
    if (r.stacked == 0 && !r.counted) throw std::logic_error("oracle: a repeat without a number of layers");
    const std::int64_t layers = r.counted ? static_cast<std::int64_t>(x.back()->data[0]) : x[at(r.carried)]->shape[0];
    std::vector<Array> inner(x.size());
    for (std::size_t i = 0; i < x.size(); ++i) inner[i] = *x[i];
    std::int64_t running = layers;
    if (r.limited)
      running = std::clamp<std::int64_t>(static_cast<std::int64_t>(x[at(r.limit(node.arity))]->data[0]), 0, layers);
    // Layers that don't run, and one on zeros where there are none, give the shapes of the results.
    std::vector<std::vector<Array>> results(at(static_cast<int>(std::max<std::int64_t>(layers, 1))));
    std::vector<Array> outputs(inner.begin(), inner.begin() + r.carried);
    around.push_back(0);
    for (std::int64_t step = 0; step < static_cast<std::int64_t>(results.size()); ++step) {
      const std::int64_t layer = r.reverse && step < running ? running - 1 - step : step;
      for (int i = r.carried; i < stacked_end; ++i) inner[at(i)] = layer_of(*x[at(i)], layer);
      around.back() = static_cast<int>(layer);
      std::vector<Array> made = run_graph(node.index(), inner, around);
      for (int i = 0; i < r.carried && step < running; ++i) inner[at(i)] = outputs[at(i)] = made[at(i)];
      for (Array& result : made)
        if (step >= running) std::fill(result.data.begin(), result.data.end(), 0);
      results[at(static_cast<int>(layer))] = std::move(made);
    }
    if (layers == 0)
      for (std::size_t k = 0; k < results[0].size(); ++k) results[0][k].data.clear();
    for (std::size_t k = at(r.carried); k < results[0].size(); ++k) {
      Shape shape = results[0][k].shape;
      shape.insert(0, layers);
      Array all;
      all.shape = shape;
      for (const auto& result : results) all.data.insert(all.data.end(), result[k].data.begin(), result[k].data.end());
      outputs.push_back(std::move(all));
    }
    return outputs;
  }
  static Array layer_of(const Array& stacked, std::int64_t layer) {
    Array slice;
    slice.shape = stacked.shape;
    slice.shape.erase(0);
    const std::int64_t n = tessera::volume(slice.shape);
    if (stacked.shape[0] == 0) return Array(slice.shape);
    slice.data.assign(stacked.data.begin() + layer * n, stacked.data.begin() + (layer + 1) * n);
    return slice;
  }

  Array evaluate(const GraphView& graph, int id, const std::vector<const Array*>& x, const Layers& layers) {
    const Node& node = graph[id];
    switch (node.op) {
      case Op::dim:
      case Op::scalar:
        return arguments_.at(at(node.index()));
      case Op::constant:
        return Array::number(node.value);
      case Op::extent:
        return Array::number(static_cast<double>(x[0]->shape[at(tessera::dim_of(node))]));
      case Op::arange: {
        Array y(Shape{static_cast<std::int64_t>(x[0]->data[0])});
        for (std::size_t i = 0; i < y.data.size(); ++i) y.data[i] = static_cast<double>(i);
        return y;
      }
      case Op::iota: {
        Array y(x[0]->shape);
        for_each_index(y.shape, [&](const Shape& i) { y.at(i) = static_cast<double>(i[at(tessera::dim_of(node))]); });
        return y;
      }
      case Op::permute: {  // by a shift, or by pairs (source, destination); zeros at other destinations
        const auto d = at(tessera::dim_of(node));
        Array y(x[0]->shape);
        for_each_index(y.shape, [&](const Shape& i) {
          const auto number = [&](std::size_t k) { return static_cast<std::int64_t>(x[k]->data[0]); };
          const std::int64_t n = y.shape[d];
          if (x.size() == 2) y.at(dense::with_extent(i, d, ((i[d] + number(1)) % n + n) % n)) = x[0]->at(i);
          for (std::size_t k = 1; x.size() > 2 && k < x.size(); k += 2)
            if (number(k) == i[d]) y.at(dense::with_extent(i, d, number(k + 1))) = x[0]->at(i);
        });
        return y;
      }
      case Op::random: {
        Array y(x[0]->shape);
        for (std::size_t i = 0; i < y.data.size(); ++i)
          y.data[i] = draw_(node, x[1]->data[0], layers, static_cast<std::int64_t>(i));
        return y;
      }
      case Op::alike:
      case Op::barrier:
        return *x[0];
      case Op::broadcast: {
        Array y(x[1]->shape);
        for_each_index(y.shape,
                       [&](const Shape& i) { y.at(i) = dense::broadcast_at(graph.operand_node(id, 0), *x[0], i); });
        return y;
      }
      case Op::sum:
      case Op::max:
      case Op::min:
        return dense::reduce(node, *x[0]);
      case Op::einsum:
        return dense::einsum(node, *x[0], *x[1]);
      case Op::rearrange:
        return dense::rearrange(node, x);
      case Op::slice: {
        const auto d = at(tessera::dim_of(node));
        Array y(dense::with_extent(x[0]->shape, d, static_cast<std::int64_t>(x[2]->data[0])));
        for_each_index(y.shape, [&](const Shape& i) {
          y.at(i) = x[0]->at(dense::with_extent(i, d, i[d] + static_cast<std::int64_t>(x[1]->data[0])));
        });
        return y;
      }
      case Op::pad: {
        const auto d = at(tessera::dim_of(node));
        const auto extent = x[2]->shape.empty() ? static_cast<std::int64_t>(x[2]->data[0]) : x[2]->shape[d];
        Array y(dense::with_extent(x[0]->shape, d, extent));
        for_each_index(x[0]->shape, [&](const Shape& i) {
          y.at(dense::with_extent(i, d, i[d] + static_cast<std::int64_t>(x[1]->data[0]))) = x[0]->at(i);
        });
        return y;
      }
      case Op::concat: {
        const auto d = at(tessera::dim_of(node));
        std::int64_t total = 0, start = 0;
        for (const Array* part : x) total += part->shape[d];
        Array y(dense::with_extent(x[0]->shape, d, total));
        for (const Array* part : x) {
          for_each_index(part->shape,
                         [&](const Shape& i) { y.at(dense::with_extent(i, d, i[d] + start)) = part->at(i); });
          start += part->shape[d];
        }
        return y;
      }
      case Op::embedding: {  // table, indices
        Shape shape = x[1]->shape;
        for (std::size_t d = 1; d < x[0]->shape.size(); ++d) shape.push_back(x[0]->shape[d]);
        Array y(shape);
        for_each_index(shape, [&](const Shape& i) { y.at(i) = x[0]->at(dense::table_index(*x[1], i)); });
        return y;
      }
      case Op::index_add: {  // rows, indices, a value with the shape of the table
        Array y(x[2]->shape);
        for_each_index(x[0]->shape, [&](const Shape& i) { y.at(dense::table_index(*x[1], i)) += x[0]->at(i); });
        return y;
      }
      case Op::cumsum:
        return dense::cumulative(node, *x[0]);
      case Op::patches:
      case Op::fold_patches: {
        const bool takes = node.op == Op::patches;
        const auto first = at(tessera::dim_of(node)), count = at(node.labels[1]), step = takes ? at(5) : at(4);
        const auto number = [&](std::size_t d, std::size_t i) {
          return static_cast<std::int64_t>(x[1 + step * d + i]->data[0]);
        };
        Shape line = x[0]->shape, runs = x[0]->shape;
        for (std::size_t d = 0; takes && d < count; ++d) {  // count the windows that end inside the padded dim
          const std::int64_t padded = line[first + d] + number(d, 3) + number(d, 4);
          std::int64_t windows = 0;
          while (windows * number(d, 1) + (number(d, 0) - 1) * number(d, 2) < padded) ++windows;
          runs[first + 2 * d] = windows;
          runs.insert(first + 2 * d + 1, number(d, 0));
        }
        for (std::size_t d = 0; !takes && d < count; ++d) {
          line.erase(first + d + 1);
          line[first + d] = number(d, 3);
        }
        Array y(takes ? runs : line);
        for_each_index(runs, [&](const Shape& i) {
          Shape row = i;
          bool inside = true;
          for (std::size_t d = 0; d < count; ++d) {
            const std::size_t own = first + d;
            row[own] = row[own] * number(d, takes ? 1 : 0) + row[own + 1] * number(d, takes ? 2 : 1) -
                       number(d, takes ? 3 : 2);
            row.erase(own + 1);
            inside = inside && row[own] >= 0 && row[own] < line[own];
          }
          if (takes)
            y.at(i) = inside ? x[0]->at(row) : node.labels[2] != 0 ? -std::numeric_limits<double>::infinity() : 0.0;
          else if (inside)
            y.at(row) += x[0]->at(i);
        });
        return y;
      }
      case Op::argsort: {
        const auto d = at(tessera::dim_of(node));
        const bool down = tessera::order_of(node) == tessera::Order::descending;
        Array y(dense::with_extent(x[0]->shape, d,
                                   x.size() > 1 ? static_cast<std::int64_t>(x[1]->data[0]) : x[0]->shape[d]));
        // The sorted index of an element is the number of elements that come before it.
        for_each_index(x[0]->shape, [&](const Shape& i) {
          std::int64_t place = 0;
          for (std::int64_t k = 0; k < x[0]->shape[d]; ++k) {
            const double own = x[0]->at(i), other = x[0]->at(dense::with_extent(i, d, k));
            const bool equal = own == other || (std::isnan(own) && std::isnan(other));
            const bool before = std::isnan(own) || std::isnan(other) ? std::isnan(down ? other : own)
                                : down                               ? other > own
                                                                     : other < own;
            place += equal ? k < i[d] : before;
          }
          if (place < y.shape[d]) y.at(dense::with_extent(i, d, place)) = static_cast<double>(i[d]);
        });
        return y;
      }
      case Op::gather:
      case Op::scatter_add: {
        const auto d = at(tessera::dim_of(node));
        const bool takes = node.op == Op::gather;
        Array y(takes ? dense::with_extent(x[0]->shape, d, x[1]->shape[d]) : x[2]->shape);
        for_each_index(takes ? y.shape : x[0]->shape, [&](const Shape& i) {
          const Shape from = dense::with_extent(i, d, dense::index_of(*x[1], i));
          takes ? y.at(i) = x[0]->at(from) : y.at(from) += x[0]->at(i);
        });
        return y;
      }
      case Op::scatter: {
        const auto d = at(tessera::dim_of(node));
        const tessera::ScatterRule rule = tessera::ScatterRule::of(node);
        Array y = *x[2];
        for_each_index(x[0]->shape, [&](const Shape& i) {
          double& own = y.at(dense::with_extent(i, d, dense::index_of(*x[1], i)));
          own = rule.replaces ? x[0]->at(i) : tessera::facts_of(rule.reduction).combined(own, x[0]->at(i));
        });
        return y;
      }
      case Op::attention_lse:
      case Op::attention:
      case Op::attention_grad:
        return dense::attention(node, x, [&] {
          const tessera::AttentionForm form = tessera::AttentionForm::of_node(node);
          return form.biased && graph.operand_node(id, form.bias()).dtype == tessera::DType::bool_;
        }());
      case Op::custom_call:
        return dense::custom_call(graph, id, x);
      case Op::constraint:
        return *x[0];
      default:
        if (dense::is(node, "prod")) return dense::reduce(node, *x[0]);
        if (dense::is(node, "flip")) {
          const auto d = at(tessera::dim_of(node));
          Array y(x[0]->shape);
          for_each_index(y.shape,
                         [&](const Shape& i) { y.at(i) = x[0]->at(dense::with_extent(i, d, y.shape[d] - 1 - i[d])); });
          return y;
        }
        if (dense::is(node, "ragged_dot") || dense::is(node, "ragged_outer"))
          return dense::ragged(node, *x[0], *x[1], *x[2]);
        if (dense::is(node, "cumprod") || dense::is(node, "cummax") || dense::is(node, "cummin"))
          return dense::cumulative(node, *x[0]);
        return dense::elementwise(graph, id, x);
    }
  }
};

}  // namespace

std::vector<Array> run(const ProgramView& program, const std::vector<Array>& arguments, Draw draw, Disturb disturb) {
  return Interpreter(program, arguments, std::move(draw), std::move(disturb)).run();
}

}  // namespace oracle
