#ifndef TESSERA_NN_SUMMARY_HPP
#define TESSERA_NN_SUMMARY_HPP
#include <tessera/base/push_macros.hpp>

#include <cstdint>
#include <string>
#include <vector>

#include <tessera/base/compiled.hpp>
#include <tessera/nn/parameters.hpp>
#include <tessera/partition/plan/plan.hpp>
#if TESSERA_HAS_DEFINITIONS
#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>

#include <tessera/partition/plan/explain.hpp>
#endif

namespace tessera {

namespace detail {

/// The table of a summary. `plan`: of a call with the model, whose flops are a column; null: none.
TESSERA_ONCE std::string summary_text(const std::vector<nn::NamedParameter>& leaves, const Plan* plan);

#if TESSERA_HAS_DEFINITIONS
/// Which flops of a plan belong to which argument, of the `count` arguments from `first` on. A step belongs to the
/// argument that it reads: itself, resharded, cast, or in the body of a loop; of several, to the largest. A step that
/// reads none belongs to an argument if it makes its gradient: a value of its shape, from a value that a step of the
/// argument reads too, as x of y = x w and of the gradient of w. Other steps belong to none.
class ArgumentFlops {
 public:
  ArgumentFlops(const Plan& plan, std::size_t first, std::size_t count) : plan_(plan), of_(count) {
    std::vector<int> origins(plan.main().arguments.size(), -1);
    for (std::size_t k = 0; k < count; ++k) origins[first + k] = static_cast<int>(k);
    add(0, origins, 1);
  }
  const std::vector<std::int64_t>& list() const { return of_; }

 private:
  struct Own {
    const PlanStep* step;
    int argument;
    const Shape* shape;
  };
  const Plan& plan_;
  std::vector<std::int64_t> of_;

  /// The argument from which alone a value is made; -1: none.
  static int origin(const GraphPlan& graph, const std::vector<int>& origins, std::int32_t v) {
    if (v < 0) return -1;
    int found = origins[static_cast<std::size_t>(v)];
    if (found < 0) graph.each_source(v, [&](int source) { found = origin(graph, origins, source); });
    return found;
  }
  void add(int argument, const PlanStep& step, std::int64_t times) {
    std::int64_t& own = of_[static_cast<std::size_t>(argument)];
    own = saturating_sum(own, saturating_product(step.flops, times));
  }
  /// The flops of a graph that runs `times` times; `arguments` are the origins of its arguments. Returns those of its
  /// outputs.
  std::vector<int> add(int g, const std::vector<int>& arguments, std::int64_t times) {
    const GraphPlan& graph = plan_.graphs[static_cast<std::size_t>(g)];
    std::vector<int> origins(graph.values.size(), -1);
    for (std::size_t a = 0; a < graph.arguments.size() && a < arguments.size(); ++a)
      if (const std::int32_t v = graph.arguments[a]; v >= 0) origins[static_cast<std::size_t>(v)] = arguments[a];
    std::vector<Own> owned;
    std::vector<const PlanStep*> others;
    for (const PlanStep& step : graph.steps) {
      std::vector<int> made(step.outputs.size(), -1);
      if (step.kind == StepKind::repeat) {
        std::vector<int> inside;
        for (const std::int32_t v : step.inputs) inside.push_back(origin(graph, origins, v));
        made = add(step.body, inside, saturating_product(times, step.layers));
      } else {
        const Own own = owner(graph, origins, step);
        if (own.argument < 0) {
          others.push_back(&step);
        } else {
          owned.push_back(own);
          add(own.argument, step, times);
          if (reads_only(graph, origins, step, own.argument)) made.assign(made.size(), own.argument);
        }
      }
      for (std::size_t k = 0; k < step.outputs.size(); ++k)
        if (const std::int32_t v = step.outputs[k]; v >= 0) origins[static_cast<std::size_t>(v)] = made[k];
    }
    std::vector<int> gradients(of_.size());
    for (const PlanStep* step : others)
      if (const int argument = made_gradient(graph, owned, *step, gradients); argument >= 0) {
        ++gradients[static_cast<std::size_t>(argument)];
        add(argument, *step, times);
      }
    std::vector<int> results;
    for (const std::int32_t v : graph.outputs) results.push_back(origin(graph, origins, v));
    return results;
  }
  static Own owner(const GraphPlan& graph, const std::vector<int>& origins, const PlanStep& step) {
    Own found{&step, -1, nullptr};
    for (const std::int32_t v : step.inputs)
      if (const int from = origin(graph, origins, v); from >= 0) {
        const Shape& shape = graph.values[static_cast<std::size_t>(v)].shape;
        if (found.shape == nullptr || elements_of(shape) > elements_of(*found.shape)) found = {&step, from, &shape};
      }
    return found;
  }
  static bool reads_only(const GraphPlan& graph, const std::vector<int>& origins, const PlanStep& step, int argument) {
    for (const std::int32_t v : step.inputs)
      if (origin(graph, origins, v) != argument) return false;
    return true;
  }
  /// The argument whose gradient a step makes: of several of equal shape, the one with whose steps it shares most
  /// inputs, or that has the fewest gradients so far.
  static int made_gradient(const GraphPlan& graph, const std::vector<Own>& owned, const PlanStep& step,
                           const std::vector<int>& gradients) {
    int best = -1, most = 0;
    for (const Own& own : owned) {
      bool fits = false;
      for (const std::int32_t v : step.outputs)
        fits = fits || (v >= 0 && graph.values[static_cast<std::size_t>(v)].shape == *own.shape);
      int shared = 0;
      for (const std::int32_t v : step.inputs)
        for (const std::int32_t other : own.step->inputs)
          shared +=
              v >= 0 && other >= 0 &&
              graph.values[static_cast<std::size_t>(v)].node == graph.values[static_cast<std::size_t>(other)].node;
      if (!fits || shared < most || shared == 0) continue;
      if (shared == most &&
          gradients[static_cast<std::size_t>(own.argument)] >= gradients[static_cast<std::size_t>(best)])
        continue;
      best = own.argument, most = shared;
    }
    return best;
  }
};
/// The first argument of a plan from which on the arguments have the types of a model; -1: none.
TESSERA_ONCE int model_in_plan(const std::vector<nn::NamedParameter>& leaves, const GraphPlan& graph);
TESSERA_ONCE int model_in_plan(const std::vector<nn::NamedParameter>& leaves, const GraphPlan& graph) {
  for (std::size_t first = 0; first + leaves.size() <= graph.arguments.size(); ++first) {
    bool fits = true, reads = false;
    for (std::size_t i = 0; i < leaves.size() && fits; ++i) {
      const std::int32_t v = graph.arguments[first + i];
      if (v < 0 || !leaves[i].is_tensor) continue;
      const PlanValue& value = graph.values[static_cast<std::size_t>(v)];
      reads = true;
      fits = value.dtype == leaves[i].dtype && elements_of(value.shape) == leaves[i].elements * leaves[i].layers;
    }
    if (fits && reads) return static_cast<int>(first);
  }
  return -1;
}

TESSERA_ONCE std::string summary_text(const std::vector<nn::NamedParameter>& leaves, const Plan* plan) {
  using Row = std::array<std::string, 7>;
  const std::size_t columns = plan == nullptr ? 6 : 7;
  std::vector<Row> rows{{"name", "type", "sharding", "elements", "bytes", "bytes a device", "flops"}};
  std::int64_t elements = 0, bytes = 0, on_device = 0, flops = 0;
  const int first = plan == nullptr ? -1 : model_in_plan(leaves, plan->main());
  std::vector<std::int64_t> of_leaves(leaves.size());
  if (first >= 0) of_leaves = ArgumentFlops(*plan, static_cast<std::size_t>(first), leaves.size()).list();
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    const nn::NamedParameter& leaf = leaves[i];
    if (!leaf.is_tensor) {
      char value[32];
      char* const end = std::to_chars(value, value + sizeof value, leaf.value).ptr;
      rows.push_back({leaf.name, leaf.dtype == DType::i64 ? "Dim" : "Scalar", std::string(value, end), "", "", "", ""});
      continue;
    }
    const std::string times = leaf.layers > 1 ? std::to_string(leaf.layers) + " x " : "";
    const std::int64_t own[] = {leaf.elements * leaf.layers, leaf.bytes * leaf.layers, leaf.device_bytes * leaf.layers};
    rows.push_back({leaf.name, times + shape_text(leaf.dtype, leaf.shape), leaf.sharding, grouped(own[0]),
                    grouped(own[1]), grouped(own[2]), grouped(of_leaves[i])});
    elements += own[0], bytes += own[1], on_device += own[2];
    flops = saturating_sum(flops, of_leaves[i]);
  }
  if (plan != nullptr) rows.push_back({"other operations", "", "", "", "", "", grouped(plan->flops() - flops)});
  rows.push_back({"total", "", "", grouped(elements), grouped(bytes), grouped(on_device),
                  plan == nullptr ? "" : grouped(plan->flops())});
  std::array<std::size_t, 7> widths{};
  for (const Row& row : rows)
    for (std::size_t c = 0; c < columns; ++c) widths[c] = std::max(widths[c], row[c].size());
  std::string text;
  for (const Row& row : rows) {
    std::string line;
    for (std::size_t c = 0; c < columns; ++c) {
      const std::string space(widths[c] - row[c].size(), ' ');
      if (c > 0) line += "  ";
      line += c < 3 ? row[c] + space : space + row[c];
    }
    text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  return text;
}
#endif

}  // namespace detail

/// A table of a model or an optimizer state. Each tensor has a row with its name, element type and shape, sharding,
/// number of elements, bytes of all elements, and bytes on the device with the largest shard; each Dim and Scalar has a
/// row with its value; the last row has totals. The layers of a Stack share a row, "blocks.*.mlp.up.weight", with the
/// sums over all layers. With the plan of a call that has the model as an argument, a column has the flops of this
/// call, of all devices together: those of a tensor are of the operations that read it, in the forward and the backward
/// pass, or compute its gradient; a kernel of several tensors counts for the largest. The row "other operations" has
/// all others. Errors: empty_tensor for a tensor without data.
///
///     std::cout << ts::summary(model);
///     std::cout << ts::summary(model, step.plan(model, x));
template <class Model> std::string summary(const Model& model, Here at = Here::current()) {
  detail::require_data("summary", model, at);
  return detail::summary_text(nn::detail::described(model, detail::VisitLayers::together), nullptr);
}
template <class Model> std::string summary(const Model& model, const Plan& plan, Here at = Here::current()) {
  detail::require_data("summary", model, at);
  return detail::summary_text(nn::detail::described(model, detail::VisitLayers::together), &plan);
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
