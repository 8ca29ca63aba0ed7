#ifndef TESSERA_TESTS_SUPPORT_DENSE_OPERATIONS_HPP
#define TESSERA_TESTS_SUPPORT_DENSE_OPERATIONS_HPP

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <stdexcept>
#include <string_view>
#include <vector>

#include "oracle.hpp"

#include <tessera/ops/rows.hpp>

/// Operations on whole arrays in double, each written from its definition without the code of the library.
namespace oracle::dense {

inline std::size_t at(int i) { return static_cast<std::size_t>(i); }
/// By name, since an operation that no pass refers to has no enumerator.
inline bool is(const Node& node, std::string_view name) {
  return node.op == static_cast<Op>(tessera::operation_id(name));
}

inline Shape with_extent(Shape shape, std::size_t dim, std::int64_t extent) {
  shape[dim] = extent;
  return shape;
}
/// For element i of a gather or scatter along a dim: its index. Singleton dims of the indices repeat.
inline std::int64_t index_of(const Array& indices, Shape i) {
  for (std::size_t d = 0; d < i.size(); ++d)
    if (indices.shape[d] == 1) i[d] = 0;
  return static_cast<std::int64_t>(indices.at(i));
}
/// The index into a table for index i of the result of a lookup: the looked-up row, then the rest of i.
inline Shape table_index(const Array& indices, const Shape& i) {
  Shape lookup;
  for (std::size_t d = 0; d < indices.shape.size(); ++d) lookup.push_back(i[d]);
  Shape index{static_cast<std::int64_t>(indices.at(lookup))};
  for (std::size_t d = indices.shape.size(); d < i.size(); ++d) index.push_back(i[d]);
  return index;
}
/// The element of x at index i of a broadcast result: trailing dims are aligned, singleton dims repeat.
inline double broadcast_at(const Node& type, const Array& x, const Shape& i) {
  Shape own;
  for (std::size_t d = 0; d < x.shape.size(); ++d)
    own.push_back(type.is_singleton(static_cast<int>(d)) ? 0 : i[d + i.size() - x.shape.size()]);
  return x.at(own);
}

inline Array reduce(const Node& node, const Array& x) {
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

inline Array cumulative(const Node& node, const Array& x) {
  const tessera::CumulativeOptions scan = tessera::CumulativeOptions::of(node);
  const auto d = at(tessera::dim_of(node));
  const bool multiplies = is(node, "cumprod"), largest = is(node, "cummax"), extreme = largest || is(node, "cummin");
  Array y(x.shape);
  for_each_index(y.shape, [&](const Shape& i) {
    const Shape to = with_extent(i, d, scan.reverse ? y.shape[d] - 1 - i[d] : i[d]);
    double value = scan.exclusive ? (multiplies ? 1 : 0) : x.at(to);
    if (i[d] > 0) {
      const Shape before = with_extent(to, d, to[d] + (scan.reverse ? 1 : -1));
      const double own = scan.exclusive ? x.at(before) : value;
      const double so_far = y.at(before);
      if (extreme)
        value = std::isnan(so_far) || (largest ? so_far > own : so_far < own) ? so_far : own;
      else
        value = multiplies ? so_far * own : so_far + own;
    }
    y.at(to) = value;
  });
  return y;
}

/// ragged_dot and its gradient ragged_outer. A dim of extent 1 is repeated along those that others have.
inline Array ragged(const Node& node, const Array& a, const Array& b, const Array& sizes) {
  const bool sums = is(node, "ragged_outer"), transposed = !sums && node.labels[0] != 0;
  const std::size_t lead = a.shape.size() - 2;
  const std::int64_t m = a.shape[lead], k = a.shape[lead + 1], groups = sizes.shape[lead],
                     n = b.shape[lead + (sums || transposed ? 1 : 2)];
  Shape leads, out;
  for (std::size_t d = 0; d < lead; ++d) {
    leads.push_back(1);
    for (const Array* x : {&a, &b, &sizes})
      if (x->shape[d] != 1) leads[d] = x->shape[d];
    out.push_back(node.is_singleton(static_cast<int>(d)) ? 1 : leads[d]);
  }
  for (const std::int64_t extent : {sums ? groups : m, sums ? k : n}) out.push_back(extent);
  if (sums) out.push_back(n);
  Array y(out);
  for_each_index(leads, [&](const Shape& l) {
    const auto in = [&](const Shape& shape, std::initializer_list<std::int64_t> rest) {
      Shape index;
      for (std::size_t d = 0; d < lead; ++d) index.push_back(shape[d] == 1 ? 0 : l[d]);
      for (const std::int64_t i : rest) index.push_back(i);
      return index;
    };
    double row = 0;
    for (std::int64_t g = 0; g < groups; ++g)
      for (double left = sizes.at(in(sizes.shape, {g})); left > 0 && row < static_cast<double>(m); --left, ++row) {
        const auto r = static_cast<std::int64_t>(row);
        for (std::int64_t i = 0; i < k; ++i)
          for (std::int64_t j = 0; j < n; ++j)
            if (sums)
              y.at(in(y.shape, {g, i, j})) += a.at(in(a.shape, {r, i})) * b.at(in(b.shape, {r, j}));
            else
              y.at(in(y.shape, {r, j})) +=
                  a.at(in(a.shape, {r, i})) * b.at(transposed ? in(b.shape, {g, j, i}) : in(b.shape, {g, i, j}));
      }
  });
  return y;
}

inline Array einsum(const Node& node, const Array& a, const Array& b) {
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

inline constexpr std::int64_t no_bound = std::int64_t{1} << 40;

/// The elements along the last of four dims.
template <class Of> auto row_of(Of& array, std::int64_t b, std::int64_t t, std::int64_t h) {
  const Shape& shape = array.shape;
  if (b < 0 || t < 0 || h < 0 || b >= shape[0] || t >= shape[1] || h >= shape[2])
    throw std::logic_error("oracle: row outside of its array");
  return array.data.data() + ((b * shape[1] + t) * shape[2] + h) * shape[3];
}

/// Computes all scores of one query row at a time; attention_form.hpp lists the operands.
inline Array attention(const Node& node, const std::vector<const Array*>& x, bool is_mask) {
  const Array &q = *x[0], &k = *x[1];
  const tessera::AttentionForm form = tessera::AttentionForm::of_node(node);
  const auto bound = [&](int operand) { return static_cast<std::int64_t>(x[at(operand)]->data[0]); };
  const std::int64_t lower = form.banded ? bound(form.lower()) : -no_bound, upper = form.banded
                                                                                        ? bound(form.lower() + 1)
                                                                                    : form.causal ? 0
                                                                                                  : no_bound;
  const auto bias_at = [&](Shape i) {
    const Array& bias = *x[at(form.bias())];
    for (std::size_t d = 0; d < 4; ++d) i[d] = std::min(i[d], bias.shape[d] - 1);
    return is_mask ? (bias.at(i) != 0 ? 0 : -INFINITY) : bias.at(i);
  };
  const int of = node.op == Op::attention_grad ? node.labels[1] : -1;
  const std::int64_t batch = q.shape[0], queries = q.shape[1], heads = q.shape[2], keys = k.shape[1];
  const std::int64_t width = q.shape[3], values = node.op == Op::attention_lse ? 0 : x[2]->shape[3];
  Array y(node.op == Op::attention_lse ? Shape{batch, heads, queries}
          : of >= 0                    ? x[at(of)]->shape
                                       : Shape{batch, queries, heads, values});
  for_each_index({batch, heads, queries}, [&](const Shape& i) {
    const std::int64_t b = i[0], h = i[1], t = i[2];
    const double scale = x.back()->data[0];
    std::vector<double> score(at(static_cast<int>(keys)), -INFINITY);
    const double* const own_q = row_of(q, b, t, h);
    for (std::int64_t s = std::max<std::int64_t>(0, t + lower); s < std::min(keys, t + upper + 1); ++s) {
      const double* const own_k = row_of(k, b, s, h);
      double sum = 0;
      for (std::int64_t d = 0; d < width; ++d) sum += scale * own_q[d] * own_k[d];
      if (form.biased) sum += bias_at({b, h, t, s});
      // Masked by a finite number, as in the kernels.
      score[at(static_cast<int>(s))] = sum < -1e29 ? -INFINITY : sum;
    }
    double most = -INFINITY, total = 0;
    for (double value : score) most = std::max(most, value);
    for (double value : score)
      if (value != -INFINITY) total += std::exp(value - most);
    const double lse = most + std::log(total);
    if (node.op == Op::attention_lse) {
      y.at(i) = lse;
      return;
    }
    // The logsumexp is an operand, which an earlier node has computed.
    const double given = x[node.op == Op::attention ? 3 : 4]->at(i);
    const double* const slope_of_y = of < 0 ? nullptr : row_of(*x[5], b, t, h);
    double mean = 0;
    if (of >= 0) {
      const double* const own_y = row_of(*x[3], b, t, h);
      for (std::int64_t e = 0; e < values; ++e) mean += slope_of_y[e] * own_y[e];
    }
    for (std::int64_t s = 0; s < keys; ++s) {
      if (score[at(static_cast<int>(s))] == -INFINITY) continue;
      const double weight = std::exp(score[at(static_cast<int>(s))] - given);
      const double *const own_k = row_of(k, b, s, h), *const own_v = row_of(*x[2], b, s, h);
      double* const result = of == 1 || of == 2 ? row_of(y, b, s, h) : row_of(y, b, t, h);
      double each = 0;
      for (std::int64_t e = 0; e < values; ++e) {
        if (of < 0) result[e] += weight * own_v[e];
        if (of == 2) result[e] += weight * slope_of_y[e];
        if (of == 0 || of == 1) each += slope_of_y[e] * own_v[e];
      }
      const double slope = weight * (each - mean) * scale;
      for (std::int64_t d = 0; d < width && (of == 0 || of == 1); ++d)
        result[d] += slope * (of == 0 ? own_k : own_q)[d];
    }
  });
  return y;
}

inline Array rearrange(const Node& node, const std::vector<const Array*>& x) {
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

inline Array elementwise(const GraphView& graph, int id, const std::vector<const Array*>& x) {
  const Node& node = graph[id];
  Shape shape(node.rank, 1);
  for (std::size_t k = 0; k < x.size(); ++k) {
    const Node& type = graph.operand_node(id, static_cast<int>(k));
    for (int d = 0; d < type.rank; ++d) {
      if (type.is_singleton(d)) continue;
      const auto out = at(d + node.rank - type.rank);
      if (shape[out] != 1 && shape[out] != x[k]->shape[at(d)])
        throw std::logic_error("oracle: extents of corresponding dims");
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

/// Calls the function of a custom call for each batch entry, in the element types of the node and its operands.
inline Array custom_call(const GraphView& graph, int id, const std::vector<const Array*>& x) {
  const Node& node = graph[id];
  const tessera::CustomFunction& function = *tessera::row_of(node).custom;
  const tessera::CallSignature& signature = function.signature;
  const auto wanted = at(tessera::CustomCall::of(node).result);
  const std::size_t batch = at(node.rank - signature.results[wanted].rank);
  tessera::CallExtents extents;
  for (std::size_t i = 0; i < x.size(); ++i)
    for (int d = 0; d < signature.operands[i].rank; ++d)
      if (!extents.bind(signature.operands[i].labels[d], x[i]->shape[batch + at(d)]))
        throw std::logic_error("oracle: core dims of a custom call");
  for (int k = 0; k < signature.result_count; ++k)
    for (int d = 0; d < signature.results[k].rank; ++d)
      if (const char label = signature.results[k].labels[d]; extents[label] < 0)
        extents.bind(label, function.extent(label, extents));
  Shape shape;
  for (std::size_t d = 0; d < batch; ++d) shape.push_back(x[0]->shape[d]);
  const std::int64_t entries = tessera::volume(shape);
  for (const std::int64_t extent : extents.shape(signature.results[wanted])) shape.push_back(extent);
  Array y(shape);
  const auto elements = [&](const tessera::CallSignature::Core& core) {
    return static_cast<std::size_t>(tessera::volume(extents.shape(core)));
  };
  for (std::int64_t entry = 0; entry < entries; ++entry) {
    // No element has more than 8 bytes.
    std::vector<std::vector<double>> memory;
    const void* operands[tessera::CallSignature::max_values]{};
    void* results[tessera::CallSignature::max_values]{};
    for (std::size_t i = 0; i < x.size(); ++i) {
      const std::size_t count = elements(signature.operands[i]);
      void* const own = memory.emplace_back(count + 1).data();
      operands[i] = own;
      tessera::dispatch(
          graph.operand_node(id, static_cast<int>(i)).dtype,
          [&]<class T>() {
            for (std::size_t e = 0; e < count; ++e)
              static_cast<T*>(own)[e] = static_cast<T>(x[i]->data[at(static_cast<int>(entry)) * count + e]);
          },
          [] { throw std::logic_error("oracle: a dtype without arithmetic"); });
    }
    for (int k = 0; k < signature.result_count; ++k)
      results[k] = memory.emplace_back(elements(signature.results[k]) + 1).data();
    function.run(operands, results, extents);
    const std::size_t count = elements(signature.results[wanted]);
    tessera::dispatch(
        node.dtype,
        [&]<class T>() {
          for (std::size_t e = 0; e < count; ++e)
            y.data[at(static_cast<int>(entry)) * count + e] =
                static_cast<double>(static_cast<const T*>(results[wanted])[e]);
        },
        [] { throw std::logic_error("oracle: a dtype without arithmetic"); });
  }
  return y;
}

}  // namespace oracle::dense

#endif
