#ifndef TESSERA_GRAPH_TRANSFORM_REPEAT_GRADIENT_HPP
#define TESSERA_GRAPH_TRANSFORM_REPEAT_GRADIENT_HPP
#include <tessera/base/push_macros.hpp>

#include <cstdint>

#include <tessera/base/growable.hpp>
#include <tessera/base/planning.hpp>
#include <tessera/base/shape.hpp>
#include <tessera/graph/ir/attributes/repeat.hpp>
#include <tessera/graph/transform/gradient.hpp>

TESSERA_PLANNING_BEGIN

namespace tessera {

namespace build {

/// The type of a stacked value, from the type of its value in one layer.
constexpr Node stacked_type(Node inner) {
  if (inner.rank == max_rank)
    fail(errc::capacity, "[stack] rank: a tensor inside a block has at most ", max_rank - 1,
         " dims, since the values of all layers are stored with a leading dim of layers");
  inner.rank = static_cast<std::uint8_t>(inner.rank + 1);
  inner.singletons = static_cast<std::uint8_t>(inner.singletons << 1);
  return inner;
}
constexpr Node argument_node(const Node& type, int index) {
  Node made = tessera::argument_node(index, type.dtype, type.rank, type.singletons);
  made.source = type.source;
  return made;
}

}  // namespace build

namespace detail {

/// Whether the backward body recomputes a node instead of storing its value for every layer. A product rounded to bf16
/// or f16 is stored, in that type.
constexpr bool recomputed(const Graph& graph, int id) {
  const Node& node = graph[id];
  if (row_of(node).converts && is_half(node.dtype)) {
    const auto is_product = [&](int other) { return row_of(graph[other]).unit == UnitKind::contraction; };
    const int sum = graph.operand(id, 0);
    if (is_product(sum)) return false;
    for (int i = 0; row_of(graph[sum]).adds && i < 2; ++i)
      if (is_product(graph.operand(sum, i))) return false;
  }
  return row_of(node).recomputed;
}

/// The gradient of a repeat is a repeat that runs the layers in the opposite order. Its body is the gradient of the
/// body. Values of the forward pass that it needs are recomputed where that is cheap; otherwise they become stacked
/// results of the forward repeat.
class RepeatGradient {
 public:
  constexpr explicit RepeatGradient(Gradient& r)
      : r_(r), module_(r.module()), body_(r.y().node().index()), shape_(Repeat::of(r.node())),
        forward_size_(module_.graph(body_).size()) {}

  constexpr void run() {
    find_arguments();
    differentiate_copy();
    mark_needed();
    build_body();
    connect();
  }

 private:
  Gradient& r_;
  Module& module_;
  int body_;
  Repeat shape_;
  int forward_size_;
  int copy_ = 0, backward_ = 0;
  Growable<std::int32_t> arguments_;       // by argument of the body: its node, -1 when it is not used
  Growable<int> cotangent_output_;         // the outputs of the body that have a cotangent
  Growable<std::int32_t> cotangent_node_;  // by these: the argument of the copy that is the cotangent
  Growable<std::int32_t> argument_grad_;   // by argument: its gradient in the copy, -1: none
  Growable<int> summed_;                   // invariants that need a gradient
  Growable<int> stacked_grad_;             // stacked arguments that need a gradient
  Growable<std::uint8_t> needed_;
  Growable<int> used_stacked_, used_invariant_;
  Growable<std::int32_t> residual_;  // forward nodes of the copy, stored for every layer

  constexpr int carried() const { return shape_.carried; }
  constexpr int stacked_end() const { return shape_.carried + shape_.stacked; }
  constexpr int argument_count() const { return r_.arity(); }
  constexpr Value in(int graph, int id) const { return {&module_, graph, id, r_.node().source}; }
  constexpr bool flows(int argument) const { return argument < carried() || r_.needs(argument); }
  /// Whether a node of the copy is one of the forward pass. The gradient of a repeat inside the body makes it store
  /// more results, whose projections come after the other nodes.
  constexpr bool is_forward(int id) const {
    const Graph& copy = module_.graph(copy_);
    return id < forward_size_ || (copy[id].is_projection() && copy.operand(id, 0) < forward_size_);
  }
  constexpr Storage storage(int argument) const {
    const std::int32_t id = arguments_[static_cast<std::size_t>(argument)];
    return id >= 0 ? storage_of(module_.graph(body_)[id]) : Storage::block;
  }
  /// How the operand of the repeat is stored that is this argument of the body.
  constexpr Storage storage_outside(int argument) const {
    return storage(argument) == Storage::block ? Storage::block : Storage::layers;
  }

  constexpr void find_arguments() {
    const Graph& body = module_.graph(body_);
    arguments_.assign(static_cast<std::size_t>(argument_count()), -1);
    for (int id = 0; id < body.size(); ++id)
      if (body[id].is_argument()) arguments_[static_cast<std::size_t>(body[id].index())] = id;
  }

  constexpr void differentiate_copy() {
    copy_ = module_.add_graph();
    module_.graph(copy_) = module_.graph(body_);
    const Growable<std::int32_t> outputs = module_.graph(body_).outputs;
    int next = argument_count();
    for (int k = 0; k < static_cast<int>(outputs.size()); ++k) {
      const Node type = module_.graph(body_)[outputs[static_cast<std::size_t>(k)]];
      const bool given = k < carried() ? is_floating(type.dtype) : r_.output_cotangent(k).module != nullptr;
      if (!given) continue;
      cotangent_output_.push_back(k);
      const Node cotangent = build::argument_node(type, next++);
      cotangent_node_.push_back(module_.graph(copy_).add(k < carried() ? stored_as(storage(k), cotangent) : cotangent));
    }
    Growable<std::int32_t> sources;
    for (int i = 0; i < argument_count(); ++i)
      if (const std::int32_t id = arguments_[static_cast<std::size_t>(i)];
          id >= 0 && flows(i) && is_floating(module_.graph(copy_)[id].dtype))
        sources.push_back(id);
    Gradient::Sweep sweep = make_sweep(module_, copy_, sources);
    for (std::size_t k = 0; k < cotangent_output_.size(); ++k) {
      const std::int32_t out = outputs[static_cast<std::size_t>(cotangent_output_[k])];
      std::int32_t& slot = sweep.cotangents[static_cast<std::size_t>(out)];
      slot = slot < 0 ? cotangent_node_[k] : (in(copy_, slot) + in(copy_, cotangent_node_[k])).id;
    }
    run_sweep(sweep);
    argument_grad_.assign(static_cast<std::size_t>(argument_count()), -1);
    for (int i = 0; i < argument_count(); ++i) {
      const std::int32_t id = arguments_[static_cast<std::size_t>(i)];
      if (id < 0 || !flows(i) || !is_floating(module_.graph(copy_)[id].dtype)) continue;
      const std::int32_t found = sweep.cotangents[static_cast<std::size_t>(id)];
      const Value target = in(copy_, id);
      const Value gradient = build::broadcast(found >= 0 ? in(copy_, found) : target.number(0), target);
      argument_grad_[static_cast<std::size_t>(i)] = gradient.id;
      if (i >= stacked_end())
        summed_.push_back(i);
      else if (i >= carried())
        stacked_grad_.push_back(i);
    }
  }

  constexpr void mark_needed() {
    const Graph& copy = module_.graph(copy_);
    needed_.assign(copy.nodes.size());
    for (std::int32_t id : argument_grad_)
      if (id >= 0) needed_[static_cast<std::size_t>(id)] = true;
    for (int id = copy.size() - 1; id >= 0; --id) {
      if (!needed_[static_cast<std::size_t>(id)]) continue;
      if (is_forward(id) && !recomputed(copy, id)) continue;
      for (int i = 0; i < copy[id].arity; ++i)
        if (const int operand = copy.operand(id, i); operand >= 0) needed_[static_cast<std::size_t>(operand)] = true;
    }
    for (int id = 0; id < copy.size(); ++id) {
      if (!needed_[static_cast<std::size_t>(id)] || !is_forward(id) || recomputed(copy, id)) continue;
      const int index = copy[id].is_argument() ? copy[id].index() : -1;
      if (index >= stacked_end())
        used_invariant_.push_back(index);
      else if (index >= carried())
        used_stacked_.push_back(index);
      else
        residual_.push_back(id);
    }
  }

  /// The number of layers, for a backward repeat without stacked operands.
  constexpr Value layer_count() const {
    return shape_.counted ? r_.x(r_.arity() - 1) : build::extent(r_.x(carried()), 0);
  }

  // Arguments of the backward body. Carried: cotangents of carried values, running sums for invariants. Stacked: stored
  // values, stacked arguments, cotangents of stacked results. Then invariants.
  constexpr void build_body() {
    backward_ = module_.add_graph();
    const Graph& copy = module_.graph(copy_);
    Graph& made = module_.graph(backward_);
    Growable<std::int32_t> to(copy.nodes.size(), -1);
    int next = 0;
    auto argument = [&](std::int32_t id, Storage storage = Storage::block) {
      return made.add(stored_as(storage, build::argument_node(copy[id], next++)));
    };
    Growable<std::int32_t> sums;
    for (std::size_t k = 0; k < cotangent_output_.size(); ++k)
      if (cotangent_output_[k] < carried())
        to[static_cast<std::size_t>(cotangent_node_[k])] =
            argument(cotangent_node_[k], storage_of(copy[cotangent_node_[k]]));
    for (int i : summed_) sums.push_back(argument(arguments_[static_cast<std::size_t>(i)], storage(i)));
    for (std::int32_t id : residual_) to[static_cast<std::size_t>(id)] = argument(id);
    for (int i : used_stacked_) {
      const std::int32_t id = arguments_[static_cast<std::size_t>(i)];
      to[static_cast<std::size_t>(id)] = argument(id, storage(i));
    }
    for (std::size_t k = 0; k < cotangent_output_.size(); ++k)
      if (cotangent_output_[k] >= carried())
        to[static_cast<std::size_t>(cotangent_node_[k])] = argument(cotangent_node_[k]);
    for (int i : used_invariant_) {
      const std::int32_t id = arguments_[static_cast<std::size_t>(i)];
      to[static_cast<std::size_t>(id)] = argument(id, storage(i));
    }
    Growable<std::int32_t> operands;
    for (int id = 0; id < copy.size(); ++id) {
      if (!needed_[static_cast<std::size_t>(id)] || to[static_cast<std::size_t>(id)] >= 0) continue;
      operands.clear();
      for (int i = 0; i < copy[id].arity; ++i) {
        const int operand = copy.operand(id, i);
        operands.push_back(operand < 0 ? -1 : to[static_cast<std::size_t>(operand)]);
      }
      to[static_cast<std::size_t>(id)] = made.add(copy[id], operands.data(), copy[id].arity);
    }
    for (int i = 0; i < carried(); ++i) {
      const std::int32_t id = argument_grad_[static_cast<std::size_t>(i)];
      if (id >= 0) made.outputs.push_back(to[static_cast<std::size_t>(id)]);
    }
    for (std::size_t s = 0; s < summed_.size(); ++s) {
      const std::int32_t id = argument_grad_[static_cast<std::size_t>(summed_[s])];
      const Value sum = in(backward_, sums[s]) + in(backward_, to[static_cast<std::size_t>(id)]);
      module_.graph(backward_).outputs.push_back(sum.id);
    }
    for (int i : stacked_grad_)
      made.outputs.push_back(to[static_cast<std::size_t>(argument_grad_[static_cast<std::size_t>(i)])]);
  }

  constexpr void connect() {
    const int outer = r_.y().graph;
    const Value self = r_.y();
    Growable<std::int32_t> operands;
    Growable<int> carried_targets;
    for (int i = 0; i < carried(); ++i)
      if (argument_grad_[static_cast<std::size_t>(i)] >= 0) {
        const Value given = r_.output_cotangent(i);
        const Value like = r_.x(i);
        operands.push_back(given.module != nullptr ? given.id : build::broadcast(like.number(0), like).id);
        carried_targets.push_back(i);
      }
    for (int i : summed_) operands.push_back(build::broadcast(r_.x(i).number(0), r_.x(i)).id);
    const int carried_count = static_cast<int>(operands.size());
    const Storage stored = shape_.scan ? Storage::block : Storage::layers;
    for (std::int32_t id : residual_) {
      Graph& body = module_.graph(body_);
      if (id >= forward_size_) {
        const Graph& copy = module_.graph(copy_);
        const std::int32_t repeat = copy.operand(id, 0);
        id = body.add(copy[id], &repeat, 1);
      }
      body.outputs.push_back(id);
      const int output = static_cast<int>(body.outputs.size()) - 1;
      operands.push_back(build::project(self, output, build::stacked_type(body[id]), stored).id);
    }
    for (int i : used_stacked_) operands.push_back(r_.x(i).id);
    for (int k : cotangent_output_)
      if (k >= carried()) operands.push_back(r_.output_cotangent(k).id);
    const int stacked_count = static_cast<int>(operands.size()) - carried_count;
    for (int i : used_invariant_) operands.push_back(r_.x(i).id);
    const Repeat made{carried_count, stacked_count, !shape_.reverse, stacked_count == 0, shape_.scan, shape_.limited};
    if (made.limited) operands.push_back(r_.x(shape_.limit(r_.arity())).id);
    if (made.counted) operands.push_back(layer_count().id);
    const Node node = made.node(backward_, self.node().source);
    const Value back = in(outer, module_.graph(outer).add(node, operands.data(), static_cast<int>(operands.size())));
    int output = 0;
    for (const Growable<int>* list : {&carried_targets, &summed_, &stacked_grad_})
      for (int i : *list) r_.add(i, build::project(back, output++, r_.x(i).node(), storage_outside(i)));
  }
};

}  // namespace detail

constexpr void repeat_gradient(Gradient& r) { detail::RepeatGradient(r).run(); }

}  // namespace tessera

TESSERA_PLANNING_END

#include <tessera/base/pop_macros.hpp>

#endif
