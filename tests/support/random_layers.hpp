#ifndef TESSERA_TESTS_SUPPORT_RANDOM_LAYERS_HPP
#define TESSERA_TESTS_SUPPORT_RANDOM_LAYERS_HPP

#include <cstddef>
#include <cstdint>

#include "random_movement.hpp"

namespace oracle {

/// Products of values of a random program, and what models build of them: dense layers, attention, a Stack, an update.
class RandomLayers : public RandomMovement {
 protected:
  using RandomMovement::RandomMovement;

  /// The product of the last dim of x with a matrix.
  static tessera::Value product(const ts_value& x, const ts_value& w, int rank) {
    tessera::EinsumLabels labels;
    for (int d = 0; d < tessera::max_rank; ++d) labels.a[d] = labels.b[d] = labels.out[d] = -1;
    for (int d = 0; d < rank; ++d) labels.a[d] = labels.out[d] = static_cast<std::int8_t>(d);
    labels.b[0] = static_cast<std::int8_t>(rank - 1);
    labels.b[1] = labels.out[rank - 1] = static_cast<std::int8_t>(rank);
    return tessera::build::einsum(x, w, labels);
  }
  /// Contracts a value with a new argument that shares some of its dims; shared dims are kept or summed.
  void contract() {
    const Item x = bounded(any());
    const int rank = static_cast<int>(x.shape.size());
    tessera::EinsumLabels labels;
    for (int d = 0; d < tessera::max_rank; ++d) labels.a[d] = labels.b[d] = labels.out[d] = -1;
    Shape weight, out;
    int rank_b = 0, rank_out = 0;
    for (int d = 0; d < rank; ++d) {
      labels.a[d] = static_cast<std::int8_t>(d);
      const bool shared = roll(2) == 0 && !x.value.is_singleton(d);
      if (shared) {
        labels.b[rank_b++] = static_cast<std::int8_t>(d);
        weight.push_back(x.shape[static_cast<std::size_t>(d)]);
      }
      if (roll(3) > 0) {
        labels.out[rank_out++] = static_cast<std::int8_t>(d);
        out.push_back(x.shape[static_cast<std::size_t>(d)]);
      }
    }
    if (rank_b < 3 && rank_out < 4) {
      labels.b[rank_b++] = labels.out[rank_out++] = static_cast<std::int8_t>(rank);
      weight.push_back(2 + roll(5));
      out.push_back(weight.back());
    }
    const Item w = new_argument(weight);
    values_.push_back({tessera::build::einsum(x.value, w.value, labels), out});
  }
  /// A product in which each group of rows has its own matrix, or the sum of outer products of each group.
  void ragged() {
    const Item x = bounded(any());
    if (x.shape.size() != 2 || x.value.is_singleton(0) || x.value.is_singleton(1)) return;
    const std::int64_t rows = x.shape[0], inner = x.shape[1], groups = 2 + roll(3), n = 2 + roll(4);
    const Item sizes = new_indices({groups}, 0, rows / 2 + 1);
    const int kind = roll(3);
    if (kind == 2) {
      const Item y = new_argument({rows, n});
      return push(tessera::build::ragged_outer(x.value, y.value, sizes.value, x.value.node()), {groups, inner, n});
    }
    const Item w = new_argument(kind == 0 ? Shape{groups, inner, n} : Shape{groups, n, inner});
    push(tessera::build::ragged_dot(x.value, w.value, sizes.value, kind == 1), {rows, n});
  }
  /// A dense layer: a product, a bias, an activation.
  void dense() {
    const Item x = bounded(any());
    const int rank = static_cast<int>(x.shape.size());
    if (rank == 0 || x.value.is_singleton(rank - 1)) return;
    const std::int64_t n = 2 + roll(6);
    Shape shape = x.shape;
    const Item w = new_argument({shape[at(rank - 1)], n}), b = new_argument({n});
    shape[at(rank - 1)] = n;
    auto made = product(x.value, w.value, rank);
    if (roll(3) > 0) made = made + b.value;
    if (roll(3) > 0) made = tessera::build::unary(roll(2) == 0 ? Op::tanh : Op::gelu, made);
    push(made, shape);
  }
  void sum_of_products() {
    const Item x = bounded(any());
    const int rank = static_cast<int>(x.shape.size());
    if (rank == 0 || x.value.is_singleton(rank - 1)) return;
    const std::int64_t n = x.shape[at(rank - 1)];
    const Item w = new_argument({n, n}), v = new_argument({n, n});
    const auto first = product(x.value, w.value, rank);
    push(first + (roll(2) == 0 ? x.value : product(x.value, v.value, rank)), x.shape);
  }
  /// A step of gradient descent: an argument minus the product of an activation and another argument.
  void update() {
    const Item x = bounded(any());
    if (x.shape.size() != 2 || x.value.is_singleton(0) || x.value.is_singleton(1)) return;
    const std::int64_t n = 2 + roll(5);
    const Item y = new_argument({x.shape[0], n}), w = new_argument({x.shape[1], n});
    tessera::EinsumLabels labels;
    for (int d = 0; d < tessera::max_rank; ++d) labels.a[d] = labels.b[d] = labels.out[d] = -1;
    labels.a[0] = labels.b[0] = 0;
    labels.a[1] = labels.out[0] = 1;
    labels.b[1] = labels.out[1] = 2;
    const auto made = w.value - tessera::build::einsum(x.value, y.value, labels) * 0.125;
    updates_.push_back(made);
    push(made, w.shape);
  }
  /// A product of bf16 operands, rounded to bf16.
  void rounded() {
    const Item x = bounded(any());
    const int rank = static_cast<int>(x.shape.size());
    if (rank == 0 || x.value.is_singleton(rank - 1) || options_.type != tessera::DType::f32 || options_.smooth) return;
    rounds = true;
    const std::int64_t n = 2 + roll(6);
    Shape shape = x.shape;
    const Item w = new_argument({shape[at(rank - 1)], n}), b = new_argument({n});
    shape[at(rank - 1)] = n;
    auto made = product(tessera::build::cast(x.value, tessera::DType::bf16),
                        tessera::build::cast(w.value, tessera::DType::bf16), rank);
    if (roll(2) == 0) made = made + b.value;
    push(tessera::build::cast(tessera::build::cast(made, tessera::DType::bf16), options_.type), shape);
  }
  void attention() {
    const int batch = 1 + roll(4), queries = 1 + roll(5), keys = queries + roll(3), heads = 1 + roll(4);
    const int width = 2 + roll(3), out = 2 + roll(3);
    const Item q = bounded(new_argument({batch, queries, heads, width}));
    const Item k = new_argument({batch, keys, heads, width}), v = new_argument({batch, keys, heads, out});
    const auto scale = program_.number(0.5, options_.type);
    // A band may leave queries without keys.
    const auto bound = [&](int least) {
      return program_.number(static_cast<double>(least + roll(6)), tessera::DType::i64);
    };
    const auto before = bound(-1);
    const auto after = bound(-1);
    const auto offset = bound(-3);
    const auto made =
        roll(3) == 0
            ? tessera::detail::BandAttentionTag::emit(q.value, q.value, k.value, v.value, before, after, offset, scale)
        : roll(2) == 0 ? tessera::detail::AttentionTag<true>::emit(q.value, q.value, k.value, v.value, scale)
                       : tessera::detail::AttentionTag<false>::emit(q.value, q.value, k.value, v.value, scale);
    push(made, {batch, queries, heads, out});
  }
  /// A repeat, as of a call of a Stack: its body runs once per layer.
  void layers() {
    const Item x = bounded(any());
    const int rank = static_cast<int>(x.shape.size());
    if (rank == 0 || x.value.is_singleton(rank - 1)) return;
    const std::int64_t n = x.shape[at(rank - 1)];
    const bool matrix = roll(2) == 0;
    const Shape stacked = matrix ? Shape{2 + roll(3), n, n} : Shape{2 + roll(3), n};
    arguments.push_back(random_array(stacked, static_cast<unsigned>(arguments.size())));
    stacked_arguments.push_back(arguments.size() - 1);
    const auto weights = program_.stacked_argument(static_cast<int>(stacked.size()), options_.type);
    const Item bias = new_argument({n});
    tessera::Module& module = *x.value.module;
    const int body = module.add_graph();
    const auto inner = [&](int index, int inner_rank, unsigned unit, tessera::Storage storage) {
      const Node node = tessera::argument_node(index, options_.type, inner_rank, unit);
      return tessera::Value{&module, body, module.graph(body).add(tessera::stored_as(storage, node)), {}};
    };
    const auto carried = inner(0, rank, x.value.node().singletons, tessera::Storage::block),
               w = inner(1, matrix ? 2 : 1, 0, tessera::Storage::layer), b = inner(2, 1, 0, tessera::Storage::block);
    const auto made = matrix ? product(carried, w, rank) + carried : carried * w + b;
    module.graph(body).outputs.push_back((tessera::build::unary(Op::tanh, made) + b).id);
    const tessera::Repeat repeat{1, 1, false, false};
    const std::int32_t operands[] = {x.value.id, weights.id, bias.value.id};
    const auto repeated = x.value.with(module.graph(0).add(repeat.node(body, {}), operands, 3));
    push(tessera::build::project(repeated, 0, x.value.node()), x.shape);
  }
  /// A scan over the leading dim of a value, with a carry and a result of each step.
  void steps() {
    const Item x = bounded(any()), xs = bounded(any());
    if (xs.shape.empty() || xs.value.is_singleton(0)) return;
    tessera::Module& module = *x.value.module;
    const int body = module.add_graph();
    const auto inner = [&](int index, std::size_t rank, unsigned unit) {
      const Node node = tessera::argument_node(index, options_.type, static_cast<int>(rank), unit);
      return tessera::Value{&module, body, module.graph(body).add(node), {}};
    };
    const auto total = [](const ts_value& v) {
      return v.rank() == 0 ? v : tessera::build::reduce(Op::sum, v, (1u << v.rank()) - 1, false);
    };
    const auto carried = inner(0, x.shape.size(), x.value.node().singletons),
               slice = inner(1, xs.shape.size() - 1, xs.value.node().singletons >> 1);
    const auto next = tessera::build::unary(Op::tanh, carried * 0.5 + total(slice) * 0.25);
    const auto made = slice + tessera::build::unary(Op::tanh, total(carried) * 0.125);
    for (const ts_value& v : {next, made}) module.graph(body).outputs.push_back(v.id);
    const tessera::Repeat repeat{1, 1, roll(2) == 0, false, true};
    const std::int32_t operands[] = {x.value.id, xs.value.id};
    const auto repeated = x.value.with(module.graph(0).add(repeat.node(body, {}), operands, 2));
    const Node type = tessera::build::stacked_type(made.node());
    push(tessera::build::project(repeated, 0, x.value.node()), x.shape);
    push(tessera::build::project(repeated, 1, type), xs.shape);
  }
};

}  // namespace oracle

#endif
