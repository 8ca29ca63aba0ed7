#ifndef TESSERA_RUNTIME_ORACLE_ORACLE_TOLERANCE_HPP
#define TESSERA_RUNTIME_ORACLE_ORACLE_TOLERANCE_HPP
#include <tessera/base/push_macros.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>

#include <tessera/base/growable.hpp>
#include <tessera/base/shape.hpp>
#include <tessera/graph/ir/attributes.hpp>
#include <tessera/graph/ir/attributes/einsum_labels.hpp>
#include <tessera/graph/ir/row.hpp>
#include <tessera/ops/attention/attention_form.hpp>
#include <tessera/ops/cumulative/cumulative_options.hpp>
#include <tessera/ops/indexing/scatter_rule.hpp>
#include <tessera/runtime/oracle/oracle_fused.hpp>
#include <tessera/runtime/oracle/oracle_value.hpp>

namespace tessera::runtime {

/// An operand or result of a unit on one device, with bounds of the error of its elements on the mesh.
struct OracleOperand {
  const WholeValue* value = nullptr;  ///< null: a host scalar, or unknown
  double number = 0;                  ///< the value of a host scalar
  double slack = 0;
  const Growable<double>* allowed = nullptr;  ///< error bound by element, if a fused step computed it; else null
};

/// By element of a unit's result: bound of its difference from the result on one device, given operands that differ by
/// at most their slack. Empty: all 0.
using Allowed = Growable<double>;

namespace detail {

inline Growable<double> squares_over(const OracleOperand& operand, const std::int8_t* labels,
                                     const std::int64_t* extents, std::uint32_t kept, kernels::Strides& strides,
                                     int out_rank, const std::int8_t* out) {
  // Norms by the labels in `kept`, over all others; a broadcast element counts as often as it repeats.
  Shape own = operand.value == nullptr ? Shape{} : operand.value->shape;
  std::int64_t step[32]{};
  std::int64_t count = 1;
  double repeats = 1;
  bool seen[32]{};
  kernels::Strides to(own.size(), 0);
  for (std::size_t d = own.size(); d-- > 0;) {
    const int label = labels[d];
    seen[label] = true;
    if ((kept >> label & 1u) != 0) {
      if (own[d] > 1) to[d] = step[label] = count;
      count *= own[d];
    } else if (own[d] != 0) {
      repeats *= static_cast<double>(extents[label]) / static_cast<double>(own[d]);
    }
  }
  for (int label = 0; label < 32; ++label)
    if (!seen[label] && extents[label] > 1 && (kept >> label & 1u) == 0) repeats *= static_cast<double>(extents[label]);
  strides = kernels::Strides(static_cast<std::size_t>(out_rank), 0);
  for (int d = 0; d < out_rank; ++d) strides[static_cast<std::size_t>(d)] = step[static_cast<int>(out[d])];
  Growable<double> norms(static_cast<std::size_t>(std::max<std::int64_t>(count, 1)), 0);
  if (operand.value == nullptr) {
    norms[0] = operand.number * operand.number;
  } else {
    const kernels::Strides from = kernels::contiguous_strides(own);
    walk(own, from, to, to, [&](std::int64_t at, std::int64_t norm, std::int64_t) {
      const double x = (*operand.value)[at];
      norms[static_cast<std::size_t>(norm)] += x * x;
    });
  }
  for (double& norm : norms) norm = std::sqrt(norm * repeats);
  return norms;
}

}  // namespace detail

/// Tolerance of an einsum. By Cauchy-Schwarz, sum(|term|) of an element is at most |row of a| * |column of b|.
inline Allowed contraction_allowed(const Node& einsum, const OracleOperand& a, const OracleOperand& b,
                                   const OracleOperand* addend, const WholeValue& result) {
  const EinsumLabels labels = EinsumLabels::of(einsum);
  std::int64_t extents[32]{};
  std::uint32_t kept = 0;
  for (const auto& [operand, own] : {std::pair(&a, labels.a), std::pair(&b, labels.b)})
    for (std::size_t d = 0; operand->value != nullptr && d < operand->value->shape.size(); ++d)
      extents[own[d]] = std::max(extents[own[d]], operand->value->shape[d]);
  const int rank = static_cast<int>(result.shape.size());
  for (int d = 0; d < rank; ++d) kept |= 1u << labels.out[d];
  double terms = 1;
  for (int label = 0; label < 32; ++label)
    if (extents[label] > 0 && (kept >> label & 1u) == 0) terms *= static_cast<double>(extents[label]);
  const double eps = rounding_of(computed_as(result.dtype));
  if (eps == 0) return {};
  kernels::Strides at_a, at_b;
  const Growable<double> rows = detail::squares_over(a, labels.a, extents, kept, at_a, rank, labels.out);
  const Growable<double> columns = detail::squares_over(b, labels.b, extents, kept, at_b, rank, labels.out);
  Allowed allowed(static_cast<std::size_t>(result.size()), 0);
  std::size_t i = 0;
  const double root = std::sqrt(terms);
  walk(result.shape, at_a, at_b, at_b, [&](std::int64_t r, std::int64_t c, std::int64_t) {
    const double x = rows[static_cast<std::size_t>(r)], y = columns[static_cast<std::size_t>(c)];
    double size = x * y, off = a.slack * root * y + b.slack * root * x;
    if (addend != nullptr) {
      size += addend->value != nullptr ? std::fabs((*addend->value)[static_cast<std::int64_t>(i)])
                                       : std::fabs(addend->number);
      off += addend->slack;
    }
    allowed[i] = order_factor(terms) * eps * size + off +
                 rounding_of(result.dtype) * std::fabs(result[static_cast<std::int64_t>(i)]);
    ++i;
  });
  return allowed;
}

/// Tolerance of ragged_dot and ragged_outer: that of an einsum with the largest rows and columns.
inline Allowed ragged_allowed(const Node& node, const OracleOperand& a, const OracleOperand& b,
                              const WholeValue& result) {
  const double eps = rounding_of(computed_as(result.dtype));
  if (eps == 0 || a.value == nullptr || b.value == nullptr) return {};
  const std::size_t last = a.value->shape.size() - 1;
  const bool sums_rows = result.shape.size() > a.value->shape.size(), transposed = !sums_rows && node.labels[0] != 0;
  // The largest norm along the dim that a product contracts, or of a column over all rows.
  const auto norm = [&](const WholeValue& x, std::size_t dim) {
    const std::int64_t n = x.size();
    const kernels::Strides strides = kernels::contiguous_strides(x.shape);
    Growable<double> squares(static_cast<std::size_t>(std::max<std::int64_t>(n, 1)), 0);
    for (std::int64_t i = 0; i < n; ++i) {
      const std::int64_t line = sums_rows ? i % x.shape[last] : i - i / strides[dim] % x.shape[dim] * strides[dim];
      squares[static_cast<std::size_t>(line)] += x[i] * x[i];
    }
    return std::sqrt(*std::max_element(squares.begin(), squares.end()));
  };
  const double of_a = norm(*a.value, last), of_b = norm(*b.value, transposed ? last + 1 : last);
  const auto terms = static_cast<double>(sums_rows ? std::max(a.value->size(), b.value->size()) : a.value->shape[last]);
  const double most = order_factor(terms) * eps * of_a * of_b + std::sqrt(terms) * (a.slack * of_b + b.slack * of_a);
  Allowed allowed(static_cast<std::size_t>(result.size()), most);
  for (std::int64_t i = 0; i < result.size(); ++i)
    allowed[static_cast<std::size_t>(i)] += rounding_of(result.dtype) * std::fabs(result[i]);
  return allowed;
}

/// Tolerance of index_add.
inline Allowed scatter_allowed(const OracleOperand& rows, const OracleOperand& index, const WholeValue& result) {
  Allowed allowed(static_cast<std::size_t>(result.size()), 0);
  if (rows.value == nullptr || index.value == nullptr || result.shape.empty() || result.size() == 0) return allowed;
  Growable<double> count(static_cast<std::size_t>(result.shape[0]), 0);
  const std::int64_t n = index.value->size(), inner = result.size() / result.shape[0];
  const double eps = rounding_of(computed_as(result.dtype));
  for (std::int64_t i = 0; i < n; ++i) {
    const auto row = static_cast<std::int64_t>((*index.value)[i]);
    if (row < 0 || row >= result.shape[0]) continue;
    ++count[static_cast<std::size_t>(row)];
    for (std::int64_t k = 0; k < inner; ++k)
      allowed[static_cast<std::size_t>(row * inner + k)] += std::fabs((*rows.value)[i * inner + k]);
  }
  for (std::int64_t row = 0; row < result.shape[0]; ++row)
    for (std::int64_t k = 0; k < inner; ++k) {
      double& own = allowed[static_cast<std::size_t>(row * inner + k)];
      const double terms = count[static_cast<std::size_t>(row)];
      own = terms == 0 ? 0
                       : order_factor(terms) * eps * own + terms * rows.slack +
                             rounding_of(result.dtype) * std::fabs(result[row * inner + k]);
    }
  return allowed;
}

/// Tolerance of a fold of windows.
inline Allowed fold_allowed(const WindowedDims& dims, DType type, const OracleOperand& operand,
                            const WholeValue& result) {
  Allowed allowed(static_cast<std::size_t>(result.size()), 0);
  if (operand.value == nullptr) return allowed;
  const Shape& runs = operand.value->shape;
  const kernels::Strides to = kernels::contiguous_strides(result.shape);
  double terms = 1;
  for (const WindowedDim& dim : dims) terms *= static_cast<double>(dim.size);
  Shape at(runs.size(), 0);
  for (std::int64_t i = 0; i < volume(runs); ++i) {
    std::int64_t sum = 0, rest = i;
    for (std::size_t d = runs.size(); d-- > 0; rest /= runs[d]) at[d] = rest % runs[d];
    Shape row = at;
    bool inside = true;
    for (std::size_t k = dims.size(); k-- > 0;) {
      const auto r = static_cast<std::size_t>(dims[k].runs);
      row[r] = row[r] * dims[k].stride + row[r + 1] * dims[k].dilation - dims[k].before;
      inside = inside && row[r] >= 0 && row[r] < dims[k].extent;
      row.erase(r + 1);
    }
    for (std::size_t d = 0; d < row.size(); ++d) sum += row[d] * to[d];
    if (inside) allowed[static_cast<std::size_t>(sum)] += std::fabs((*operand.value)[i]);
  }
  for (double& own : allowed) own = order_factor(terms) * rounding_of(type) * own + terms * operand.slack;
  return allowed;
}

/// Tolerance of scatter and scatter_add. `start`: the tensor into which elements go; null: zeros.
inline Allowed along_allowed(const Node& node, const OracleOperand& operand, const OracleOperand& index,
                             const OracleOperand* start, const WholeValue& result) {
  Allowed allowed(static_cast<std::size_t>(result.size()), 0);
  if (operand.value == nullptr || index.value == nullptr || (start != nullptr && start->value == nullptr))
    return allowed;
  const ScatterRule rule = ScatterRule::of(node);
  const ReductionFacts& monoid = facts_of(rule.reduction);
  const auto dim = static_cast<std::size_t>(dim_of(node));
  Growable<double> count(allowed.size(), 0), sizes(allowed.size(), 0);
  if (start != nullptr)
    for (std::size_t at = 0; at < sizes.size(); ++at) {
      sizes[at] = std::fabs((*start->value)[static_cast<std::int64_t>(at)]);
      allowed[at] = start->slack;
    }
  kernels::Strides to = kernels::contiguous_strides(result.shape);
  const std::int64_t step = to[dim];
  to[dim] = 0;
  kernels::Strides of_index = kernels::contiguous_strides(index.value->shape);
  for (std::size_t d = 0; d < of_index.size(); ++d)
    if (index.value->shape[d] == 1) of_index[d] = 0;
  std::int64_t i = 0;
  walk(operand.value->shape, to, of_index, to, [&](std::int64_t line, std::int64_t shared, std::int64_t) {
    const auto at = static_cast<std::size_t>(line + static_cast<std::int64_t>((*index.value)[shared]) * step);
    const double size = std::fabs((*operand.value)[i++]);
    if (at >= allowed.size()) return;
    if (rule.replaces) {
      sizes[at] = size;
      allowed[at] = operand.slack;
      return;
    }
    allowed[at] = monoid.moved(sizes[at], allowed[at], size, operand.slack);
    sizes[at] = monoid.combined(sizes[at], size);
    ++count[at];
  });
  const double eps = monoid.rounds ? rounding_of(result.dtype) : 0;
  for (std::size_t at = 0; at < allowed.size(); ++at)
    if (count[at] > 0) allowed[at] += order_factor(count[at]) * eps * sizes[at];
  return allowed;
}

/// Tolerance of a cumulative operation: that of a reduction of the elements up to each.
inline Allowed cumulative_allowed(const Node& node, const OracleOperand& operand, const WholeValue& result) {
  Allowed allowed(static_cast<std::size_t>(result.size()), 0);
  const double eps = rounding_of(result.dtype);
  if (operand.value == nullptr || (eps == 0 && operand.slack == 0)) return allowed;
  const auto dim = static_cast<std::size_t>(dim_of(node));
  const std::int64_t n = result.shape[dim], step = kernels::contiguous_strides(result.shape)[dim];
  const CumulativeOptions options = CumulativeOptions::of(node);
  const ReductionFacts& monoid = facts_of(row_of(node).reduction);
  for (std::int64_t line = 0; line < (n == 0 ? 0 : result.size() / n); ++line) {
    const std::int64_t first = line / step * step * n + line % step;
    double sizes = monoid.identity, off = 0;
    for (std::int64_t i = 0; i < n; ++i) {
      const std::int64_t at = first + (options.reverse ? n - 1 - i : i) * step;
      const auto allow = [&] {
        allowed[static_cast<std::size_t>(at)] = order_factor(static_cast<double>(i + 1)) * eps * sizes + off;
      };
      if (options.exclusive) allow();
      const double term = (*operand.value)[at];
      off = monoid.moved(sizes, off, term, operand.slack);
      sizes = monoid.combined(sizes, std::fabs(term));
      if (!options.exclusive) allow();
    }
  }
  return allowed;
}

/// Tolerance of attention. `operands`: those of the node (q, k, v, ...); the last, the scale, is a host scalar.
inline Allowed attention_allowed(const Node& node, const Growable<OracleOperand>& operands, const WholeValue& result) {
  struct Size {
    double norm = 0, most = 0;  // the largest norm of a row along the last dim; the largest |element|
  };
  const auto size_of_rows = [](const OracleOperand& x) {
    Size size;
    if (x.value == nullptr || x.value->size() == 0) return size;
    const std::int64_t width = x.value->shape[x.value->shape.size() - 1];
    for (std::int64_t i = 0; i < x.value->size(); i += width) {
      double sum = 0;
      for (std::int64_t k = 0; k < width; ++k) {
        const double v = std::fabs((*x.value)[i + k]);
        sum += v * v;
        size.most = std::max(size.most, v);
      }
      size.norm = std::max(size.norm, std::sqrt(sum));
    }
    return size;
  };
  const Size q = size_of_rows(operands[0]), k = size_of_rows(operands[1]);
  const AttentionForm form = AttentionForm::of_node(node);
  const double scale = std::fabs(operands.back().number);
  double score = scale * q.norm * k.norm;
  if (form.biased)
    if (const WholeValue* const bias = operands[static_cast<std::size_t>(form.bias())].value; bias != nullptr) {
      double added = 0;  // numbers that mask are not rounded
      for (std::int64_t i = 0; i < bias->size(); ++i)
        if ((*bias)[i] >= -1e29) added = std::max(added, std::fabs((*bias)[i]));
      score += added;
    }
  const double width = static_cast<double>(operands[0].value->shape[3]),
               keys = static_cast<double>(operands[1].value->shape[1]),
               queries = static_cast<double>(operands[0].value->shape[1]);
  const double eps = rounding_of(operands[0].value->dtype), own = rounding_of(result.dtype);
  // Relative error of a softmax weight: that of its score, of the exponential, and of the sum it is divided by.
  const double weight = eps * (order_factor(width) * score + 2 * (1 + score) + order_factor(keys));
  double most = 0;
  if (form.result == AttentionResult::logarithms) {
    most = weight;
  } else {
    const Size v = size_of_rows(operands[2]);
    most = 2 * weight * v.most;
    if (form.is_gradient()) {
      const Size g = size_of_rows(operands[5]);
      const double slope = g.norm * v.norm * (4 * weight + 4 * eps * order_factor(std::max(width, keys)));
      const double sums = 2 * eps * order_factor(queries);
      most = form.of() == 0   ? scale * k.most * slope
             : form.of() == 1 ? queries * scale * q.most * (slope + sums * g.norm * v.norm)
                              : queries * g.most * (2 * weight + sums);
    }
  }
  Allowed allowed(static_cast<std::size_t>(result.size()), most);
  for (std::int64_t i = 0; i < result.size(); ++i) allowed[static_cast<std::size_t>(i)] += own * std::fabs(result[i]);
  return allowed;
}

}  // namespace tessera::runtime

#include <tessera/base/pop_macros.hpp>

#endif
