// Compiled once, with optimisation and without sanitizers: it takes much longer than the programs that it checks.
#include "oracle.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <stdexcept>
#include <utility>
#include <vector>

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
    if (node.op != Op::sum && node.op != Op::einsum && !is(node, "prod")) return disturb_(node, value, value);
    std::vector<Array> sizes;
    for (const Array* operand : x) {
      sizes.push_back(*operand);
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
          if (x.size() == 2) y.at(with_extent(i, d, ((i[d] + number(1)) % n + n) % n)) = x[0]->at(i);
          for (std::size_t k = 1; x.size() > 2 && k < x.size(); k += 2)
            if (number(k) == i[d]) y.at(with_extent(i, d, number(k + 1))) = x[0]->at(i);
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
        return *x[0];
      case Op::broadcast: {
        Array y(x[1]->shape);
        for_each_index(y.shape, [&](const Shape& i) { y.at(i) = broadcast_at(graph.operand_node(id, 0), *x[0], i); });
        return y;
      }
      case Op::sum:
      case Op::max:
      case Op::min:
        return reduce(node, *x[0]);
      case Op::einsum:
        return einsum(node, *x[0], *x[1]);
      case Op::rearrange:
        return rearrange(node, x);
      case Op::slice: {
        const auto d = at(tessera::dim_of(node));
        Array y(with_extent(x[0]->shape, d, static_cast<std::int64_t>(x[2]->data[0])));
        for_each_index(y.shape, [&](const Shape& i) {
          y.at(i) = x[0]->at(with_extent(i, d, i[d] + static_cast<std::int64_t>(x[1]->data[0])));
        });
        return y;
      }
      case Op::pad: {
        const auto d = at(tessera::dim_of(node));
        const auto extent = x[2]->shape.empty() ? static_cast<std::int64_t>(x[2]->data[0]) : x[2]->shape[d];
        Array y(with_extent(x[0]->shape, d, extent));
        for_each_index(x[0]->shape, [&](const Shape& i) {
          y.at(with_extent(i, d, i[d] + static_cast<std::int64_t>(x[1]->data[0]))) = x[0]->at(i);
        });
        return y;
      }
      case Op::concat: {
        const auto d = at(tessera::dim_of(node));
        std::int64_t total = 0, start = 0;
        for (const Array* part : x) total += part->shape[d];
        Array y(with_extent(x[0]->shape, d, total));
        for (const Array* part : x) {
          for_each_index(part->shape, [&](const Shape& i) { y.at(with_extent(i, d, i[d] + start)) = part->at(i); });
          start += part->shape[d];
        }
        return y;
      }
      case Op::embedding: {  // table, indices
        Shape shape = x[1]->shape;
        for (std::size_t d = 1; d < x[0]->shape.size(); ++d) shape.push_back(x[0]->shape[d]);
        Array y(shape);
        for_each_index(shape, [&](const Shape& i) { y.at(i) = x[0]->at(table_index(*x[1], i)); });
        return y;
      }
      case Op::index_add: {  // rows, indices, a value with the shape of the table
        Array y(x[2]->shape);
        for_each_index(x[0]->shape, [&](const Shape& i) { y.at(table_index(*x[1], i)) += x[0]->at(i); });
        return y;
      }
      case Op::cumsum:
        return cumulative(node, *x[0]);
      case Op::windows:
      case Op::fold: {
        const auto d = at(tessera::dim_of(node));
        const bool takes = node.op == Op::windows;
        const auto number = [&](std::size_t i) { return static_cast<std::int64_t>(x[i]->data[0]); };
        const std::int64_t stride = number(takes ? 2 : 1), dilation = number(takes ? 3 : 2);
        Shape shape = x[0]->shape;
        if (takes) {
          shape[d] = 0;  // count the windows that end inside x
          while (shape[d] * stride + (number(1) - 1) * dilation < x[0]->shape[d]) ++shape[d];
          shape.insert(d + 1, number(1));
        } else {
          shape.erase(d + 1);
          shape[d] = number(3);
        }
        Array y(shape);
        for_each_index(takes ? y.shape : x[0]->shape, [&](const Shape& i) {
          Shape line = i;
          line.erase(d + 1);
          line[d] = i[d] * stride + i[d + 1] * dilation;
          takes ? y.at(i) = x[0]->at(line) : y.at(line) += x[0]->at(i);
        });
        return y;
      }
      case Op::argsort: {
        const auto d = at(tessera::dim_of(node));
        const bool down = tessera::order_of(node) == tessera::Order::descending;
        Array y(with_extent(x[0]->shape, d, x.size() > 1 ? static_cast<std::int64_t>(x[1]->data[0]) : x[0]->shape[d]));
        // The sorted index of an element is the number of elements that come before it.
        for_each_index(x[0]->shape, [&](const Shape& i) {
          std::int64_t place = 0;
          for (std::int64_t k = 0; k < x[0]->shape[d]; ++k) {
            const double own = x[0]->at(i), other = x[0]->at(with_extent(i, d, k));
            const bool equal = own == other || (std::isnan(own) && std::isnan(other));
            const bool before = std::isnan(own) || std::isnan(other) ? !std::isnan(other)
                                : down                               ? other > own
                                                                     : other < own;
            place += equal ? k < i[d] : before;
          }
          if (place < y.shape[d]) y.at(with_extent(i, d, place)) = static_cast<double>(i[d]);
        });
        return y;
      }
      case Op::gather:
      case Op::scatter_add: {
        const auto d = at(tessera::dim_of(node));
        const bool takes = node.op == Op::gather;
        Array y(takes ? x[1]->shape : x[2]->shape);
        for_each_index(x[1]->shape, [&](const Shape& i) {
          const Shape from = with_extent(i, d, static_cast<std::int64_t>(x[1]->at(i)));
          takes ? y.at(i) = x[0]->at(from) : y.at(from) += x[0]->at(i);
        });
        return y;
      }
      case Op::attention_lse:
      case Op::attention:
      case Op::attention_grad:
        return attention(node, x);
      case Op::constraint:
        return *x[0];
      default:
        if (is(node, "prod")) return reduce(node, *x[0]);
        if (is(node, "cumprod")) return cumulative(node, *x[0]);
        return elementwise(graph, id, x);
    }
  }
  /// By name, since an operation that no pass refers to has no enumerator.
  static bool is(const Node& node, std::string_view name) {
    return node.op == static_cast<Op>(tessera::operation_id(name));
  }

  static Shape with_extent(Shape shape, std::size_t dim, std::int64_t extent) {
    shape[dim] = extent;
    return shape;
  }
  /// The index into a table for index i of the result of a lookup: the looked-up row, then the rest of i.
  static Shape table_index(const Array& indices, const Shape& i) {
    Shape lookup;
    for (std::size_t d = 0; d < indices.shape.size(); ++d) lookup.push_back(i[d]);
    Shape index{static_cast<std::int64_t>(indices.at(lookup))};
    for (std::size_t d = indices.shape.size(); d < i.size(); ++d) index.push_back(i[d]);
    return index;
  }
  /// The element of x at index i of a broadcast result: trailing dims are aligned, singleton dims repeat.
  static double broadcast_at(const Node& type, const Array& x, const Shape& i) {
    Shape own;
    for (std::size_t d = 0; d < x.shape.size(); ++d)
      own.push_back(type.is_singleton(static_cast<int>(d)) ? 0 : i[d + i.size() - x.shape.size()]);
    return x.at(own);
  }

  static Array reduce(const Node& node, const Array& x) {
    const tessera::Reduced reduced = tessera::Reduced::of(node);
    auto kept = [&](const Shape& from, bool extents) {
      Shape to;
      for (std::size_t d = 0; d < from.size(); ++d)
        if (!reduced.has(static_cast<int>(d)))
          to.push_back(from[d]);
        else if (reduced.keep)
          to.push_back(extents ? 1 : 0);
      return to;
    };
    const bool multiplies = is(node, "prod");
    const double start = multiplies ? 1 : node.op == Op::sum ? 0 : node.op == Op::max ? -INFINITY : INFINITY;
    Array y(kept(x.shape, true), start);
    for_each_index(x.shape, [&](const Shape& i) {
      double& to = y.at(kept(i, false));
      const double from = x.at(i);
      if (multiplies)
        to *= from;
      else if (node.op == Op::sum)
        to += from;
      else if (std::isnan(from) || (node.op == Op::max ? from > to : from < to))
        to = from;
    });
    return y;
  }

  static Array cumulative(const Node& node, const Array& x) {
    const tessera::CumulativeOptions scan = tessera::CumulativeOptions::of(node);
    const auto d = at(tessera::dim_of(node));
    const bool multiplies = is(node, "cumprod");
    Array y(x.shape);
    for_each_index(y.shape, [&](const Shape& i) {
      const Shape to = with_extent(i, d, scan.reverse ? y.shape[d] - 1 - i[d] : i[d]);
      double value = scan.exclusive ? (multiplies ? 1 : 0) : x.at(to);
      if (i[d] > 0) {
        const Shape before = with_extent(to, d, to[d] + (scan.reverse ? 1 : -1));
        const double own = scan.exclusive ? x.at(before) : value;
        value = multiplies ? y.at(before) * own : y.at(before) + own;
      }
      y.at(to) = value;
    });
    return y;
  }

  static Array einsum(const Node& node, const Array& a, const Array& b) {
    const tessera::EinsumLabels labels = tessera::EinsumLabels::of(node);
    std::vector<std::int64_t> extent(32, 1);
    auto note = [&](const std::int8_t* own, const Array& x) {
      for (std::size_t d = 0; d < x.shape.size(); ++d) {
        std::int64_t& known = extent[at(own[d])];
        if (known != 1 && x.shape[d] != 1 && known != x.shape[d]) throw std::logic_error("oracle: einsum extents");
        if (x.shape[d] != 1) known = x.shape[d];
      }
    };
    note(labels.a, a);
    note(labels.b, b);
    Shape out;
    for (int d = 0; d < node.rank; ++d) out.push_back(extent[at(labels.out[d])]);
    // Loop over all index combinations; the summed labels are the innermost loops.
    std::vector<int> order;
    for (int d = 0; d < node.rank; ++d) order.push_back(labels.out[d]);
    const std::size_t free = order.size();
    for (int label = 0; label < 32; ++label) {
      bool used = false, known = false;
      for (std::size_t d = 0; d < a.shape.size(); ++d) used = used || labels.a[d] == label;
      for (std::size_t d = 0; d < b.shape.size(); ++d) used = used || labels.b[d] == label;
      for (std::size_t i = 0; i < free; ++i) known = known || order[i] == label;
      if (used && !known) order.push_back(label);
    }
    auto strides = [&](const std::int8_t* own, const Array& x) {
      std::vector<std::size_t> stride(32, 0);
      std::size_t step = 1;
      for (std::size_t d = x.shape.size(); d-- > 0;) {
        if (x.shape[d] != 1) stride[at(own[d])] += step;
        step *= static_cast<std::size_t>(x.shape[d]);
      }
      return stride;
    };
    const std::vector<std::size_t> step_a = strides(labels.a, a), step_b = strides(labels.b, b);
    Array y(out);
    std::size_t written = 0;
    std::function<double(std::size_t, std::size_t, std::size_t)> sum = [&](std::size_t k, std::size_t ia,
                                                                           std::size_t ib) {
      if (k == order.size()) return a.data[ia] * b.data[ib];
      const auto label = at(order[k]);
      double total = 0;
      for (std::int64_t v = 0; v < extent[label]; ++v, ia += step_a[label], ib += step_b[label])
        total += sum(k + 1, ia, ib);
      return total;
    };
    std::function<void(std::size_t, std::size_t, std::size_t)> write = [&](std::size_t k, std::size_t ia,
                                                                           std::size_t ib) {
      if (k == free) {
        y.data[written++] = sum(k, ia, ib);
        return;
      }
      const auto label = at(order[k]);
      for (std::int64_t v = 0; v < extent[label]; ++v, ia += step_a[label], ib += step_b[label]) write(k + 1, ia, ib);
    };
    if (!y.data.empty()) write(0, 0, 0);
    return y;
  }

  /// Computes all scores of one query row at a time; attention_form.hpp lists the operands.
  static Array attention(const Node& node, const std::vector<const Array*>& x) {
    const Array &q = *x[0], &k = *x[1];
    const bool causal = node.labels[0] != 0;
    const int of = node.op == Op::attention_grad ? node.labels[1] : -1;
    const std::int64_t batch = q.shape[0], queries = q.shape[1], heads = q.shape[2], keys = k.shape[1];
    const std::int64_t width = q.shape[3], values = node.op == Op::attention_lse ? 0 : x[2]->shape[3];
    Array y(node.op == Op::attention_lse ? Shape{batch, heads, queries}
            : of >= 0                    ? x[at(of)]->shape
                                         : Shape{batch, queries, heads, values});
    for_each_index({batch, heads, queries}, [&](const Shape& i) {
      const std::int64_t b = i[0], h = i[1], t = i[2], seen = causal ? std::min(keys, t + 1) : keys;
      const double scale = x.back()->data[0];
      std::vector<double> score(at(static_cast<int>(seen)), 0);
      for (std::int64_t s = 0; s < seen; ++s)
        for (std::int64_t d = 0; d < width; ++d)
          score[at(static_cast<int>(s))] += scale * q.at({b, t, h, d}) * k.at({b, s, h, d});
      double most = -INFINITY, total = 0;
      for (double value : score) most = std::max(most, value);
      for (double value : score) total += std::exp(value - most);
      const double lse = most + std::log(total);
      if (node.op == Op::attention_lse) {
        y.at(i) = lse;
        return;
      }
      // The logsumexp is an operand here, however it was computed.
      const double given = x[node.op == Op::attention ? 3 : 4]->at(i);
      double mean = 0;
      for (std::int64_t e = 0; of >= 0 && e < values; ++e) mean += x[5]->at({b, t, h, e}) * x[3]->at({b, t, h, e});
      for (std::int64_t s = 0; s < seen; ++s) {
        const double weight = std::exp(score[at(static_cast<int>(s))] - given);
        double each = 0;
        for (std::int64_t e = 0; e < values; ++e) {
          if (of < 0) y.at({b, t, h, e}) += weight * x[2]->at({b, s, h, e});
          if (of == 2) y.at({b, s, h, e}) += weight * x[5]->at({b, t, h, e});
          if (of == 0 || of == 1) each += x[5]->at({b, t, h, e}) * x[2]->at({b, s, h, e});
        }
        for (std::int64_t d = 0; d < width && (of == 0 || of == 1); ++d) {
          const double slope = weight * (each - mean) * scale;
          if (of == 0)
            y.at({b, t, h, d}) += slope * k.at({b, s, h, d});
          else
            y.at({b, s, h, d}) += slope * q.at({b, t, h, d});
        }
      }
    });
    return y;
  }

  static Array rearrange(const Node& node, const std::vector<const Array*>& x) {
    const tessera::Factors f = tessera::Factors::of(node);
    const Array& from = *x[0];
    Shape extent(at(f.count), -1);
    for (int i = 0; i < f.count; ++i)
      if (at(i) + 1 < x.size() && x[at(i) + 1] != nullptr)
        extent[at(i)] = static_cast<std::int64_t>(x[at(i) + 1]->data[0]);
    for (std::size_t d = 0; d < from.shape.size(); ++d) {
      std::int64_t product = 1;
      int open = -1;
      for (int i = 0; i < f.count; ++i) {
        if (f.in_dim[i] != static_cast<int>(d)) continue;
        if (extent[at(i)] >= 0)
          product *= extent[at(i)];
        else if (open < 0)
          open = i;
        else
          throw std::logic_error("oracle: two parts of a dim are open");
      }
      if (open >= 0) extent[at(open)] = from.shape[d] / product;
      if (open >= 0 ? product * extent[at(open)] != from.shape[d] : product != from.shape[d])
        throw std::logic_error("oracle: parts of a dim");
    }
    Shape shape(node.rank, 1), ordered;
    for (int p = 0; p < f.count; ++p) {
      ordered.push_back(extent[at(f.order[p])]);
      shape[at(f.out_dim[p])] *= extent[at(f.order[p])];
    }
    Array y(shape);
    for_each_index(ordered, [&](const Shape& index) {
      Shape in(from.shape.size(), 0), out(node.rank, 0), by_factor(at(f.count), 0);
      for (int p = 0; p < f.count; ++p) {
        by_factor[at(f.order[p])] = index[at(p)];
        out[at(f.out_dim[p])] = out[at(f.out_dim[p])] * ordered[at(p)] + index[at(p)];
      }
      for (int i = 0; i < f.count; ++i) in[at(f.in_dim[i])] = in[at(f.in_dim[i])] * extent[at(i)] + by_factor[at(i)];
      y.at(out) = from.at(in);
    });
    return y;
  }

  static Array elementwise(const GraphView& graph, int id, const std::vector<const Array*>& x) {
    const Node& node = graph[id];
    Shape shape(node.rank, 1);
    for (std::size_t k = 0; k < x.size(); ++k) {
      const Node& type = graph.operand_node(id, static_cast<int>(k));
      for (int d = 0; d < type.rank; ++d) {
        if (type.is_singleton(d)) continue;
        const auto out = at(d + node.rank - type.rank);
        if (shape[out] != 1 && shape[out] != x[k]->shape[at(d)]) throw std::logic_error("oracle: shapes that meet");
        shape[out] = x[k]->shape[at(d)];
      }
    }
    Array y(shape);
    for_each_index(shape, [&](const Shape& i) {
      double v[3]{};
      for (std::size_t k = 0; k < x.size(); ++k)
        v[k] = broadcast_at(graph.operand_node(id, static_cast<int>(k)), *x[k], i);
      y.at(i) = apply(node.op, node.dtype, graph.operand_node(id, 0).dtype, v[0], v[1], v[2]);
    });
    return y;
  }
};

}  // namespace

std::vector<Array> run(const ProgramView& program, const std::vector<Array>& arguments, Draw draw, Disturb disturb) {
  return Interpreter(program, arguments, std::move(draw), std::move(disturb)).run();
}

}  // namespace oracle
