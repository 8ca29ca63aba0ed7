#ifndef TESSERA_GRAPH_TRACE_CAPTURES_HPP
#define TESSERA_GRAPH_TRACE_CAPTURES_HPP
#include <tessera/base/push_macros.hpp>

#include <cstdint>

#include <tessera/base/growable.hpp>
#include <tessera/graph/ir/value.hpp>

namespace tessera {

namespace detail {

/// A host scalar, computed again in another graph from the operands that `bring` finds there.
template <class Bring> constexpr Value recomputed(const Value& number, int graph, Bring bring) {
  Module& module = *number.module;
  const Node node = number.node();
  Growable<std::int32_t> operands;
  for (int i = 0; i < node.arity; ++i)
    operands.push_back(bring(number.with(module.graph(number.graph).operand(number.id, i))).id);
  return {&module, graph, module.graph(graph).add(node, operands.data(), node.arity), number.source};
}

/// A value of the graph around a body, in the body: host scalars are computed there again, anything else becomes an
/// argument that is the same in every step.
constexpr Value captured(const Value& outer, OpenBody& body) {
  if (is_host_number(outer))
    return recomputed(outer, body.graph, [&](const Value& operand) { return captured(operand, body); });
  Module& module = *outer.module;
  const Node node = outer.node();
  const auto inside = [&](int id) { return Value{&module, body.graph, id, outer.source}; };
  for (std::size_t i = 0; i < body.captured.size(); ++i)
    if (body.captured[i] == outer.id) return inside(body.inside[i]);
  Node argument = argument_node(body.arguments++, node.dtype, node.rank, node.singletons);
  argument.source = node.source;
  if (is_in_layers(node)) argument = stored_as(Storage::layers, argument);
  const int id = module.graph(body.graph).add(argument);
  body.captured.push_back(outer.id);
  body.inside.push_back(id);
  return inside(id);
}

/// v as a value of the graph that is being traced at a depth: depth 0 is the program, 1 the outermost body.
constexpr Value brought_to(const Value& v, std::size_t depth) {
  Module& module = *v.module;
  if (v.graph == (depth == 0 ? 0 : module.open[depth - 1].graph)) return v;
  if (depth > 0) return captured(brought_to(v, depth - 1), module.open[depth - 1]);
  v.refuse(errc::structure,
           "[scan] result: a value that was computed in a body is used outside of the body; return the "
           "value from the body, as part of the carry or of y");
  const Node node = v.node();
  return {&module, 0, module.main().add(argument_node(-1, node.dtype, node.rank, node.singletons)), v.source};
}

}  // namespace detail

/// A value as an operand in the graph that is being traced: the body of a scan may use values from outside.
constexpr Value here(const Value& v) {
  if (v.module == nullptr || v.graph == v.module->current || v.graph < 0) return v;
  return detail::brought_to(v, v.module->open.size());
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
