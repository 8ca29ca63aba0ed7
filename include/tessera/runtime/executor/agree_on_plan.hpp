#ifndef TESSERA_RUNTIME_EXECUTOR_AGREE_ON_PLAN_HPP
#define TESSERA_RUNTIME_EXECUTOR_AGREE_ON_PLAN_HPP
#include <tessera/base/push_macros.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>

#include <tessera/base/compiled.hpp>
#include <tessera/base/error.hpp>
#include <tessera/base/growable.hpp>
#include <tessera/base/integers/hash.hpp>
#include <tessera/base/planning.hpp>
#include <tessera/mesh/processes.hpp>
#include <tessera/partition/plan/plan.hpp>
#include <tessera/runtime/executor/compiled_program.hpp>
#include <tessera/runtime/transport/communicator.hpp>

TESSERA_PLANNING_BEGIN

namespace tessera::runtime {

/// Compares the plan of a program that is about to run for the first time with that of each other process, so that
/// processes that run different programs, or one program on tensors of different shapes, get an error instead of each
/// other's bytes. A plan that all processes had before is not compared again: plan caches may differ between processes,
/// so that only one of them makes a plan anew. Errors: `processes`, with the first step that differs from the plan of
/// process 0. Returns a hash of the plan, equal in all processes. Communication: 16 bytes between each two processes
/// for a plan that they have not had before.
TESSERA_ONCE std::uint64_t agree_on_plan(const Plan& plan, const CompiledProgram& compiled);

#if TESSERA_HAS_DEFINITIONS
namespace detail {

/// A hash of a node, and of the host scalars that it reads and that are known when planning, such as where a slice
/// begins.
inline std::uint64_t node_hash(const GraphView& graph, const GraphPlan& plan, int id) {
  const Node& node = graph[id];
  std::uint64_t hash = hash_mix(hash_mix(node.hash, static_cast<std::uint64_t>(node.op)), node.value);
  for (int i = 0; i < node.arity; ++i)
    if (const int operand = graph.operand(id, i); operand >= 0)
      hash = hash_mix(hash, plan.numbers[static_cast<std::size_t>(operand)]);
  return hash;
}

/// A hash of what each step computes and sends. Where values are in memory may differ between processes.
inline Growable<std::uint64_t> step_hashes(const Plan& plan, const CompiledProgram& compiled) {
  Growable<std::uint64_t> hashes{plan.mesh.hash()};
  for (std::size_t g = 0; g < plan.graphs.size(); ++g) {
    const GraphPlan& graph = plan.graphs[g];
    const GraphView& nodes = compiled.program.graphs[g];
    const UnitsView& units = compiled.units[g];
    for (const PlanStep& step : graph.steps) {
      std::uint64_t hash = hash_mix(static_cast<std::uint64_t>(step.kind), static_cast<std::uint64_t>(step.unit));
      hash = hash_mix(hash, static_cast<std::uint64_t>(step.layers));
      if (step.unit >= 0) {
        const Unit& unit = units[step.unit];
        for (int m = 0; m < unit.member_count; ++m)
          hash = hash_mix(hash, node_hash(nodes, graph, units.members[unit.first_member + m]));
        if (unit.kind != UnitKind::fused) hash = hash_mix(hash, node_hash(nodes, graph, unit.rule_node()));
      }
      for (const Growable<std::int32_t>* list : {&step.inputs, &step.outputs})
        for (const std::int32_t v : *list) {
          if (v < 0) continue;
          const PlanValue& value = graph.values[static_cast<std::size_t>(v)];
          hash = hash_mix(hash_mix(hash, static_cast<std::uint64_t>(value.dtype)), value.sharding.hash());
          for (const std::int64_t extent : value.shape) hash = hash_mix(hash, static_cast<std::uint64_t>(extent));
          for (int f = 0; f < value.fragment_count; ++f) {
            const Fragment& own = graph.fragments[static_cast<std::size_t>(value.first_fragment + f)];
            hash = hash_mix(hash, static_cast<std::uint64_t>(
                                      own.value < 0 ? -1 : graph.values[static_cast<std::size_t>(own.value)].node));
            for (const Shape* place : {&own.box.begin, &own.box.end, &own.from})
              for (const std::int64_t index : *place) hash = hash_mix(hash, static_cast<std::uint64_t>(index));
          }
        }
      for (const CollectiveInfo& sent : step.collectives)
        hash = hash_mix(hash_mix(hash_mix(hash, static_cast<std::uint64_t>(sent.kind)), std::uint64_t{sent.axes}),
                        static_cast<std::uint64_t>(sent.wire_bytes));
      hashes.push_back(hash);
    }
  }
  return hashes;
}

/// Step k of all graphs, as a message names it.
inline std::string step_text(const Plan& plan, std::size_t k) {
  std::size_t first = 0;
  for (const GraphPlan& graph : plan.graphs) {
    if (k < first + graph.steps.size()) {
      const PlanStep& step = graph.steps[k - first];
      std::string text = step.kind == StepKind::reshard  ? "reshard"
                         : step.kind == StepKind::repeat ? "loop"
                                                         : "compute";
      for (const std::int32_t v : step.outputs) {
        if (v < 0) continue;
        const PlanValue& value = graph.values[static_cast<std::size_t>(v)];
        text += " " + shape_text(value.dtype, value.shape) + tessera::text(value.sharding, plan.mesh);
      }
      return step.source.line == 0 ? text : text + " at " + step.source.text();
    }
    first += graph.steps.size();
  }
  return "the end of the program";
}

}  // namespace detail

TESSERA_ONCE std::uint64_t agree_on_plan(const Plan& plan, const CompiledProgram& compiled) {
  Communicator* const communicator = detail::own_communicator;
  if (communicator == nullptr || !spans_processes(plan.mesh)) return 0;
  const int own = communicator->index(), count = communicator->count();
  const Growable<std::uint64_t> hashes = detail::step_hashes(plan, compiled);
  std::uint64_t head[2] = {hashes.size(), hash_mix(0, hashes.size())};
  for (const std::uint64_t hash : hashes) head[1] = hash_mix(head[1], hash);
  Growable<std::uint64_t>& agreed = communicator->agreed_plans;
  const auto place = std::lower_bound(agreed.begin(), agreed.end(), head[1]) - agreed.begin();
  if (place < static_cast<std::ptrdiff_t>(agreed.size()) && agreed[static_cast<std::size_t>(place)] == head[1])
    return head[1];
  Growable<std::uint64_t> heads(2 * static_cast<std::size_t>(count));
  Growable<Message> sent, received;
  for (int process = 0; process < count; ++process) {
    std::uint64_t* const to = &heads[2 * static_cast<std::size_t>(process)];
    to[0] = head[0], to[1] = head[1];
    if (process == own) continue;
    sent.push_back({process, head, sizeof head});
    received.push_back({process, to, sizeof head});
  }
  communicator->exchange(sent, received);
  int differs = -1;
  for (int process = 1; process < count && differs < 0; ++process)
    if (heads[2 * static_cast<std::size_t>(process)] != heads[0] ||
        heads[2 * static_cast<std::size_t>(process) + 1] != heads[1])
      differs = process;
  if (differs < 0) {
    agreed.push_back(head[1]);
    std::rotate(agreed.begin() + place, agreed.end() - 1, agreed.end());
    return head[1];
  }

  // All processes know that their plans differ, and continue together: process 0 sends its hashes, and the first
  // process whose hashes differ answers.
  Growable<std::uint64_t> first(static_cast<std::size_t>(heads[0]));
  sent.clear(), received.clear();
  for (int process = 1; process < count && own == 0; ++process)
    sent.push_back({process, const_cast<std::uint64_t*>(hashes.data()), static_cast<std::int64_t>(hashes.size() * 8)});
  if (own != 0) received.push_back({0, first.data(), static_cast<std::int64_t>(first.size() * 8)});
  communicator->exchange(sent, received);
  std::uint64_t at = 0;
  if (own != 0) {
    while (at < first.size() && at < hashes.size() && first[at] == hashes[at]) ++at;
  }
  sent.clear(), received.clear();
  for (int process = 0; process < count && own == differs; ++process)
    if (process != own) sent.push_back({process, &at, 8});
  if (own != differs) received.push_back({differs, &at, 8});
  communicator->exchange(sent, received);
  const std::string here =
      at == 0 ? "mesh " + plan.mesh.text() : detail::step_text(plan, static_cast<std::size_t>(at) - 1);
  fail(errc::processes, "[run] one program in all processes: process ", differs,
       " runs another program than process 0, ", at == 0 ? "on another mesh" : concat_text("from step ", at - 1, " on"),
       "; in this process, ", own, ", that is ", here);
}
#endif

}  // namespace tessera::runtime

TESSERA_PLANNING_END

#include <tessera/base/pop_macros.hpp>

#endif
