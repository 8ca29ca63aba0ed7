#ifndef TESSERA_TESTS_SUPPORT_RANDOM_MOVEMENT_HPP
#define TESSERA_TESTS_SUPPORT_RANDOM_MOVEMENT_HPP

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "random_elementwise.hpp"

#include <tessera/ops/custom/custom_call.hpp>

namespace oracle {

/// The rows of a value in reverse order. It is named as the operation, whose uses the tests count by name.
struct Reversed {
  static constexpr std::string_view name = "custom_call";
  static constexpr std::string_view signature = "(n)->(n)";
  template <class T> static void run(tessera::CallArray<const T, 1> x, tessera::CallArray<T, 1> y) {
    for (std::int64_t i = 0; i < x.extent(0); ++i) y(i) = x(x.extent(0) - 1 - i);
  }
  template <class T> static constexpr void gradient(tessera::Gradient& r) {
    const tessera::Value g = tessera::build::cast(r.full_g(), tessera::dtype_v<T>);
    r.add(0, tessera::build::custom_call(tessera::detail::custom_row_v<Reversed, T>, &g, 0));
  }
};

/// Operations that move, select and accumulate elements of values of a random program, and annotations of shardings.
class RandomMovement : public RandomElementwise {
 protected:
  using RandomElementwise::RandomElementwise;

  void permute() {
    const Item x = any();
    tessera::Factors f{};
    std::vector<int> order;
    for (std::size_t d = 0; d < x.shape.size(); ++d) order.push_back(static_cast<int>(d));
    std::shuffle(order.begin(), order.end(), engine_);
    Shape shape;
    for (int d : order) shape.push_back(x.shape[static_cast<std::size_t>(d)]);
    std::vector<int> factor(x.shape.size(), -1);
    for (std::size_t d = 0; d < x.shape.size(); ++d)
      if (!x.value.is_singleton(static_cast<int>(d))) {
        factor[d] = f.count;
        f.in_dim[f.count++] = static_cast<std::int8_t>(d);
      }
    int p = 0;
    for (std::size_t d = 0; d < order.size(); ++d)
      if (const int at = factor[static_cast<std::size_t>(order[d])]; at >= 0) {
        f.order[p] = static_cast<std::int8_t>(at);
        f.out_dim[p++] = static_cast<std::int8_t>(d);
      }
    values_.push_back({tessera::build::rearrange(x.value, static_cast<int>(shape.size()), f, nullptr), shape});
  }
  void split_or_merge() {
    const Item x = any();
    const int rank = static_cast<int>(x.shape.size());
    for (int d = 0; d < rank; ++d)
      if (x.value.is_singleton(d)) return;
    tessera::Factors f{};
    std::int32_t sizes[tessera::max_rank];
    for (auto& s : sizes) s = -1;
    Shape shape;
    const int at = rank == 0 ? 0 : roll(rank);
    if (rank > 0 && rank < 4 && x.shape[static_cast<std::size_t>(at)] % 2 == 0) {  // split into [?, 2] or [2, ?]
      const bool outer = roll(2) == 0;
      for (int d = 0; d < rank; ++d)
        for (int part = 0; part < (d == at ? 2 : 1); ++part) {
          const std::int64_t n = x.shape[static_cast<std::size_t>(d)];
          const bool given = d == at && part == (outer ? 0 : 1);
          if (given) sizes[f.count] = size(2).id;
          shape.push_back(d != at ? n : given ? 2 : n / 2);
          f.in_dim[f.count] = static_cast<std::int8_t>(d);
          f.order[f.count] = f.out_dim[f.count] = f.count;
          ++f.count;
        }
    } else if (rank > 1) {  // merge dim `at` and the next one
      const int first = at == rank - 1 ? at - 1 : at;
      for (int d = 0; d < rank; ++d) {
        f.in_dim[d] = f.order[d] = static_cast<std::int8_t>(d);
        f.out_dim[d] = static_cast<std::int8_t>(d <= first ? d : d - 1);
        if (d == first + 1)
          shape.back() *= x.shape[static_cast<std::size_t>(d)];
        else
          shape.push_back(x.shape[static_cast<std::size_t>(d)]);
        ++f.count;
      }
    } else {
      return;
    }
    values_.push_back({tessera::build::rearrange(x.value, static_cast<int>(shape.size()), f, sizes), shape});
  }
  void slice_or_concat() {
    const Item x = any();
    if (x.shape.empty()) return;
    const int d = roll(static_cast<int>(x.shape.size()));
    const std::int64_t n = x.shape[static_cast<std::size_t>(d)];
    if (x.value.is_singleton(d)) return;
    Shape shape = x.shape;
    std::int64_t& extent = shape[static_cast<std::size_t>(d)];
    if (roll(2) == 0 && n > 2) {
      const int start = roll(static_cast<int>(n) - 1);
      extent = 2 + roll(static_cast<int>(n) - start - 1);
      values_.push_back({tessera::build::slice(x.value, d, size(start), size(extent)), shape});
    } else {
      const Item y = bounded(x);
      extent *= 2;
      Node node{.op = Op::concat,
                .dtype = options_.type,
                .rank = x.value.node().rank,
                .singletons = x.value.node().singletons,
                .labels = tessera::pack_dim(d)};
      values_.push_back({x.value.make(node, {x.value.id, y.value.id}), shape});
    }
  }
  void pad() {
    const Item x = any();
    const int d = extending_dim(x);
    if (d < 0) return;
    const int before = roll(4), after = roll(4);
    Shape shape = x.shape;
    shape[at(d)] += before + after;
    if (shape[at(d)] < 2) return;
    push(tessera::build::pad_to(x.value, d, size(before), size(shape[at(d)])), shape);
  }
  void sizes() {
    const Item x = bounded(any());
    const int d = extending_dim(x);
    if (d < 0) return;
    switch (roll(3)) {
      case 0:
        return push(x.value * tessera::build::cast(tessera::build::extent(x.value, d), options_.type), x.shape);
      case 1: {
        arguments.push_back(Array::number(roll(100) * 0.01));
        return push(x.value * tessera::build::cast(program_.scalar(), options_.type), x.shape);
      }
      default: {
        Shape shape = x.shape;
        shape[at(d)] = 1 + roll(static_cast<int>(x.shape[at(d)]));
        arguments.push_back(Array::number(static_cast<double>(shape[at(d)])));
        return push(tessera::build::slice(x.value, d, size(roll(static_cast<int>(x.shape[at(d)] - shape[at(d)]) + 1)),
                                          program_.dim()),
                    shape);
      }
    }
  }
  /// Windows of one dim or of two neighbours, with padding, of which there is no more behind a dim than in front;
  /// or slices with steps.
  void patch() {
    const Item x = any();
    const int d = extending_dim(x);
    if (d < 0 || x.shape.size() > 4) return;
    const bool two = d + 1 < static_cast<int>(x.shape.size()) && !x.value.is_singleton(d + 1) && roll(2) == 0;
    const int count = two ? 2 : 1;
    tessera::build::PatchDim dims[2];
    tessera::build::FoldDim folds[2];
    Shape shape = x.shape;
    bool folded = roll(2) == 0;
    const bool slices = roll(3) == 0;  // windows of single elements, with a first and a last one
    for (int k = 0; k < count; ++k) {
      const int n = static_cast<int>(x.shape[at(d + k)]);
      const int before = slices ? -roll(n) : roll(3), after = slices ? -roll(n + before) : roll(before + 1),
                padded = n + before + after;
      const int run = slices ? 1 : 1 + roll(padded < 4 ? padded : 4), stride = 1 + roll(3);
      const int dilation = run > 1 ? 1 + roll((padded - 1) / (run - 1)) : 1;
      dims[k] = {size(run), size(stride), size(dilation), size(before), size(after)};
      folds[k] = {size(stride), size(dilation), size(before), size(n)};
      shape[at(d + 2 * k)] = (padded - (run - 1) * dilation - 1) / stride + 1;
      shape.insert(at(d + 2 * k) + 1, run);
      folded = folded && (slices || run > 1);
    }
    push(tessera::build::patches(x.value, d, count, dims, false, slices), shape);
    if (!folded) return;
    push(tessera::build::fold_patches(bounded(values_.back()).value, d, count, folds, false, slices), x.shape);
  }
  void gather() {
    const std::int64_t rows = 3 + roll(4);
    const Item table = new_argument({rows, 2 + roll(4)});
    Array indices(random_shape(1 + roll(2)));
    for (double& i : indices.data) i = roll(static_cast<int>(rows));
    arguments.push_back(indices);
    const auto index = program_.argument(static_cast<int>(indices.shape.size()), 0, tessera::DType::i32);
    Shape shape = indices.shape;
    shape.push_back(table.shape[1]);
    const Node node{.op = Op::embedding, .dtype = options_.type, .rank = static_cast<std::uint8_t>(shape.size())};
    values_.push_back({table.value.make(node, {table.value.id, index.id}), shape});
  }
  void add_rows() {
    const Item table = bounded(any());
    if (table.shape.size() < 2 || table.value.is_singleton(0)) return;
    const Item indices = new_indices(random_shape(1 + roll(2)), 0, table.shape[0]);
    Shape shape = indices.shape;
    for (std::size_t d = 1; d < table.shape.size(); ++d) shape.push_back(table.shape[d]);
    if (shape.size() > 5) return;
    arguments.push_back(random_array(shape, static_cast<unsigned>(arguments.size())));
    const unsigned unit = static_cast<unsigned>(table.value.node().singletons >> 1) << indices.shape.size();
    const auto rows = program_.argument(static_cast<int>(shape.size()), unit, options_.type);
    const Node node{.op = Op::index_add,
                    .dtype = options_.type,
                    .rank = table.value.node().rank,
                    .singletons = table.value.node().singletons};
    push(table.value + rows.make(node, {rows.id, indices.value.id, table.value.id}), table.shape);
  }
  void take_along() {
    const Item x = any();
    const int d = extending_dim(x);
    if (d < 0) return;
    Shape shape = x.shape;
    shape[at(d)] = 1 + roll(5);
    const Item indices = new_indices(shape, x.value.node().singletons, x.shape[at(d)]);
    if (roll(2) == 0) return push(tessera::build::gather(x.value, d, indices.value), shape);
    arguments.push_back(random_array(shape, static_cast<unsigned>(arguments.size())));
    const auto rows = program_.argument(static_cast<int>(shape.size()), x.value.node().singletons, options_.type);
    using tessera::Reduction;
    const Reduction reductions[] = {Reduction::product, Reduction::max, Reduction::min};
    const int mode = roll(options_.smooth ? 3 : 5);  // the gradient of a maximum jumps where elements are close
    if (mode == 0) return push(tessera::build::scatter_add(rows, d, indices.value, x.value), x.shape);
    const tessera::ScatterRule rule{mode == 1, mode == 1 ? Reduction::sum : reductions[mode - 2]};
    push(tessera::build::scatter(bounded(x).value, d, indices.value, rows, rule), x.shape);
  }
  void sort() {
    const Item x = any();
    const int d = extending_dim(x);
    if (d < 0 || options_.smooth) return;
    const auto order = roll(2) == 0 ? tessera::Order::ascending : tessera::Order::descending;
    Shape shape = x.shape;
    tessera::Value count;
    if (roll(2) == 0) {
      shape[at(d)] = 1 + roll(static_cast<int>(x.shape[at(d)]));
      count = size(shape[at(d)]);
    }
    const auto indices = tessera::build::argsort(x.value, d, order, tessera::DType::i32, count);
    push(tessera::build::gather(x.value, d, indices), shape);
  }
  void scan() {
    const Item x = bounded(any());
    if (x.shape.empty()) return;
    const char* const names[] = {"cumsum", "cumprod", "cummax", "cummin"};
    const int name = roll(options_.smooth ? 2 : 4);  // the gradient of a maximum jumps where elements are close
    const tessera::CumulativeOptions how{roll(2) == 0, name < 2 && roll(2) == 0};  // an empty maximum is infinite
    const Op op = op_of(names[name]);
    push(tessera::build::cumulative(op, x.value, roll(static_cast<int>(x.shape.size())), how), x.shape);
  }
  void reverse() {
    const Item x = any();
    // The oracle calls the function in its element type, too inexact for differences.
    if (x.shape.empty() || options_.smooth) return;
    tessera::dispatch(
        x.value.dtype(),
        [&]<class T>() {
          push(tessera::build::custom_call(tessera::detail::custom_row_v<Reversed, T>, &x.value, 0), x.shape);
        },
        [] {});
  }
  void positions() {
    const Item x = bounded(any());
    if (x.shape.empty()) return;
    const int rank = static_cast<int>(x.shape.size());
    if (roll(2) == 0 || x.value.is_singleton(rank - 1)) {
      const auto index = tessera::build::iota(x.value, roll(rank), tessera::DType::i32);
      return push(x.value + tessera::build::cast(index, options_.type) * 0.25, x.shape);
    }
    const Node node{.op = Op::arange, .dtype = tessera::DType::i32, .rank = 1};
    const auto index = x.value.make(node, {size(x.shape[at(rank - 1)]).id});
    push(x.value + tessera::build::cast(index, options_.type) * 0.25, x.shape);
  }
  void flip() {
    const Item x = any();
    if (x.shape.empty()) return;
    const Node made{.op = op_of("flip"),
                    .dtype = x.value.dtype(),
                    .rank = x.value.node().rank,
                    .singletons = x.value.node().singletons,
                    .labels = tessera::pack_dim(roll(static_cast<int>(x.shape.size())))};
    push(x.value.make(made, {x.value.id}), x.shape);
  }
  void permute_places() {
    const Item x = any();
    const int d = extending_dim(x);
    if (d < 0) return;
    const int n = static_cast<int>(x.shape[at(d)]);
    const Node made{.op = Op::permute,
                    .dtype = x.value.dtype(),
                    .rank = x.value.node().rank,
                    .singletons = x.value.node().singletons,
                    .labels = tessera::pack_dim(d)};
    if (n < 2 || roll(2) == 0) return push(x.value.make(made, {x.value.id, size(roll(n)).id}), x.shape);
    const int from = roll(n), to = roll(n), other_to = (to + 1) % n, other = (from + 1) % n;
    push(x.value.make(made, {x.value.id, size(from).id, size(to).id, size(other).id, size(other_to).id}), x.shape);
  }
  void constrain() {
    const Item x = any();
    if (!options_.spec) return;
    Node made{.op = Op::constraint,
              .dtype = x.value.dtype(),
              .rank = x.value.node().rank,
              .singletons = x.value.node().singletons};
    tessera::Constraint{x.value.module->add_spec(options_.spec(x.value.rank()))}.write(made);
    push(x.value.make(made, {x.value.id}), x.shape);
  }
  /// A value sharded as another one; where none has its shape, a barrier that waits for another one.
  void alike() {
    const Item x = bounded(any());
    Node made{.dtype = x.value.dtype(), .rank = x.value.node().rank, .singletons = x.value.node().singletons};
    Item like = any();
    made.op = Op::barrier;
    for (int attempt = 0; attempt < 8 && made.op == Op::barrier; ++attempt, like = any())
      if (like.shape == x.shape && like.value.node().singletons == x.value.node().singletons) {
        made.op = Op::alike;
        break;
      }
    push(x.value.make(made, {x.value.id, like.value.id}), x.shape);
  }
};

}  // namespace oracle

#endif
