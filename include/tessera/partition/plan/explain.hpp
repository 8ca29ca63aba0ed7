#ifndef TESSERA_PARTITION_PLAN_EXPLAIN_HPP
#define TESSERA_PARTITION_PLAN_EXPLAIN_HPP
#include <tessera/base/push_macros.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <string>
#include <string_view>

#include <tessera/base/growable.hpp>
#include <tessera/base/planning.hpp>
#include <tessera/graph/fuse/units.hpp>
#include <tessera/graph/ir/program.hpp>
#include <tessera/ops/rows.hpp>
#include <tessera/partition/plan/frozen_plan.hpp>
#include <tessera/partition/plan/plan.hpp>
#include <tessera/partition/plan/plan_memory.hpp>

TESSERA_PLANNING_BEGIN

namespace tessera {

namespace detail {

/// "2,048".
inline std::string grouped(std::int64_t number) {
  const std::string digits = std::to_string(number);
  const std::size_t sign = number < 0 ? 1 : 0;
  std::string out;
  for (std::size_t i = 0; i < digits.size(); ++i) {
    if (i > sign && (digits.size() - i) % 3 == 0) out += ',';
    out += digits[i];
  }
  return out;
}
inline std::string bytes_text(std::int64_t bytes) { return grouped(bytes) + " B"; }
/// "data,model".
inline std::string axes_text(const Mesh& mesh, unsigned axes) {
  std::string text;
  for (const Name& axis : axis_names(mesh, axes)) text += concat_text(text.empty() ? "" : ",", axis.view());
  return text;
}

inline std::string line_text(const Source& source) {
  const std::string text = source.text();
  return text.empty() ? text : "  at " + text;
}
/// "all_reduce over model: 4,096 B, 6,144 B on the wire  at plan.cpp:4  (partial sum)".
inline std::string collective_text(const Mesh& mesh, const CollectiveInfo& c) {
  const std::string text =
      concat_text(name_of(c.kind), " over ", axes_text(mesh, c.axes), ": ", bytes_text(c.payload_bytes), ", ",
                  bytes_text(c.wire_bytes), " on the wire", line_text(c.source));
  return c.why.empty() ? text : concat_text(text, "  (", c.why, c.requested ? ")" : "; implicit)");
}

/// The total communication of a plan or a FrozenPlan, by kind of collective.
template <class P> std::string totals_text(const P& plan) {
  struct Total {
    Collective kind;
    std::uint16_t axes;
    std::int64_t count, payload, wire;
  };
  Growable<Total> totals;
  plan.for_each_collective([&](const CollectiveInfo& c, std::int64_t times) {
    if (c.kind == Collective::slice) return;
    std::size_t t = 0;
    while (t < totals.size() && (totals[t].kind != c.kind || totals[t].axes != c.axes)) ++t;
    if (t == totals.size()) totals.push_back({c.kind, c.axes, 0, 0, 0});
    totals[t].count += times;
    add_times(totals[t].payload, c.payload_bytes, times, "bytes", c.source);
    add_times(totals[t].wire, c.wire_bytes, times, "bytes", c.source);
  });
  std::string out = totals.empty() ? "no communication\n" : "communication of each device\n";
  for (const Total& t : totals)
    out += concat_text("  ", t.count, " ", name_of(t.kind), " over ", axes_text(plan.mesh, t.axes), ": ",
                       bytes_text(t.payload), ", ", bytes_text(t.wire), " on the wire\n");
  return out;
}
inline std::string memory_text(const PlanMemory& memory) {
  return concat_text("memory of a device: ", bytes_text(memory.arguments), " arguments, ", bytes_text(memory.results),
                     " results, ", bytes_text(memory.scratch), " scratch; ", bytes_text(memory.peak), " at most\n");
}

/// "fused add+relu", "matmul+add": the operations of a unit.
inline std::string unit_text(const GraphView& graph, const UnitsView& units, int u) {
  const Unit& unit = units[u];
  if (unit.kind == UnitKind::fused) {
    std::string ops;
    for (int m = 0; m < unit.member_count; ++m) {
      const std::string_view name = row_of(graph[units.members[unit.first_member + m]]).name;
      ops += concat_text(ops.empty() ? "" : "+", name);
    }
    return concat_text("fused ", ops);
  }
  const char* of = "";
  if (unit.kind == UnitKind::contraction) {
    const auto precision = static_cast<Precision>(graph[unit.space].index());
    of = precision == Precision::bf16_x6   ? " bf16_x6"
         : precision == Precision::bf16_x3 ? " bf16_x3"
         : precision == Precision::bf16    ? " bf16"
                                           : "";
  }
  return concat_text(row_of(graph[unit.rule_node()]).name, of, unit.addend >= 0 ? "+add" : "");
}

/// A plan as text: see explain().
class PlanText {
 public:
  PlanText(const Plan& plan, const ProgramView& program, const UnitsView* units)
      : plan_(plan), program_(program), units_(units) {}

  std::string text() {
    out_ = concat_text("plan on ", plan_.given_mesh.text(), "\n");
    add_graph(0, 1);
    out_ += totals_text(plan_) + memory_text(memory_of(plan_));
    return std::move(out_);
  }

 private:
  const Plan& plan_;
  ProgramView program_;
  const UnitsView* units_;
  std::string out_;

  std::string value_text(const GraphPlan& graph, int v) const {
    if (v < 0) return "-";
    const PlanValue& value = graph.values[static_cast<std::size_t>(v)];
    return concat_text("%", v, " ", shape_text(value.dtype, value.shape), tessera::text(value.sharding, plan_.mesh));
  }
  static std::string list_text(const Growable<std::int32_t>& values) {
    std::string text;
    for (std::int32_t v : values) text += concat_text(text.empty() ? "" : " ", v < 0 ? "-" : concat_text("%", v));
    return text;
  }

  /// The index of the first result of a graph that is this value, -1: none.
  static int result_of(const GraphPlan& graph, int v) {
    for (std::size_t k = 0; k < graph.outputs.size(); ++k)
      if (graph.outputs[k] == v) return static_cast<int>(k);
    return -1;
  }
  /// Adds the lines that say where a step writes its values, and how it is fused with the next step.
  void add_memory(const GraphPlan& graph, std::size_t s, const std::string& indent) {
    const PlanStep& step = graph.steps[s];
    std::string text;
    const auto add = [&](const std::string& value) { text += (text.empty() ? "writes " : "; ") + value; };
    for (const std::int32_t v : step.outputs) {
      if (v < 0) continue;
      const PlanValue& value = graph.values[static_cast<std::size_t>(v)];
      if (value.role == ValueRole::intermediate) add(concat_text("%", v, " to scratch at ", grouped(value.offset)));
      const int k = value.role == ValueRole::output ? result_of(graph, v) : -1;
      if (k < 0) continue;
      add(concat_text("%", v, " to result ", k));
      if (const int argument = graph.donated[static_cast<std::size_t>(k)]; argument >= 0)
        text += concat_text(", over argument ", argument, " where that is given up");
    }
    for (const LoopBuffer& buffer : step.buffers)
      text += concat_text(text.empty() ? "" : "; ", buffer.odd ? "carries result " : "leaves result ", buffer.result,
                          " in scratch at ", grouped(buffer.offset));
    if (step.fusion != Fusion::apart) {
      const int made = step.outputs[0], next = graph.steps[s + 1].outputs[0];
      text += concat_text(text.empty() ? "" : "; ", "fused with the next step: ");
      switch (step.fusion) {
        case Fusion::epilogue:
          text += concat_text("it works on each box of %", made);
          break;
        case Fusion::into_result:
          text += concat_text("%", made, " is summed box by box where %", next, " goes");
          if (const PlanValue& value = graph.values[static_cast<std::size_t>(made)]; value.spare)
            text += concat_text(", or in scratch at ", grouped(value.offset), " where that is over an argument");
          break;
        case Fusion::rounding:
          text += concat_text("%", made, " is not stored, it is rounded to ",
                              name_of(graph.values[static_cast<std::size_t>(next)].dtype), " as it is made");
          break;
        case Fusion::sum:
          text += concat_text("%", made, " is not stored, each part is added to %", next, " as it is made");
          break;
        case Fusion::apart:
          break;
      }
    }
    if (!text.empty()) out_ += concat_text(indent, "  ", text, "\n");
  }

  void add_collective(const CollectiveInfo& c, const std::string& indent) {
    out_ += concat_text(indent, collective_text(plan_.mesh, c), "\n");
  }

  /// Adds a line with the arguments of the program, or of a step of a loop. Of many only the numbers.
  void add_arguments(const GraphPlan& graph, const std::string& indent, int depth) {
    int first = -1, last = -1, count = 0;
    std::string text;
    for (std::size_t v = 0; v < graph.values.size(); ++v) {
      if (graph.values[v].role != ValueRole::argument) continue;
      last = static_cast<int>(v), first = first < 0 ? last : first;
      text += concat_text(count == 0 ? "" : ", ", value_text(graph, last));
      ++count;
    }
    if (count == 0) return;
    if (count > 6) text = concat_text("%", first, " to %", last);
    out_ += concat_text(indent, depth > 1 ? "of each step: " : "arguments: ", text, "\n");
  }
  /// Adds a line for a view or an assembled value that no step before has read, with the values in whose memory its
  /// elements are.
  void add_view(const GraphPlan& graph, int v, const std::string& indent, Growable<char>& viewed) {
    const auto value = [&](int of) -> const PlanValue& { return graph.values[static_cast<std::size_t>(of)]; };
    if (v < 0 || viewed[static_cast<std::size_t>(v)] != 0) return;
    const ValueRole role = value(v).role;
    if (role != ValueRole::view && role != ValueRole::assembled) return;
    viewed[static_cast<std::size_t>(v)] = 1;
    const auto stored = [&](int of) {
      while (value(of).role == ValueRole::view) of = value(of).view_of;
      return of;
    };
    std::string of;
    for (int i = 0; i < value(v).fragment_count; ++i) {
      const int source = graph.fragments[static_cast<std::size_t>(value(v).first_fragment + i)].value;
      const std::string text = source < 0 ? "zeros" : concat_text("%", stored(source));
      if (!of.ends_with(text)) of += concat_text(of.empty() ? "" : ", ", text);
    }
    out_ += role == ValueRole::view ? concat_text(indent, value_text(graph, v), " = view of %", stored(v), "\n")
                                    : concat_text(indent, value_text(graph, v), " = read in ", value(v).fragment_count,
                                                  value(v).fragment_count == 1 ? " part of " : " parts of ", of, "\n");
  }

  void add_graph(int g, int depth) {
    const GraphPlan& graph = plan_.graphs[static_cast<std::size_t>(g)];
    const std::string indent(static_cast<std::size_t>(2 * depth), ' ');
    add_arguments(graph, indent, depth);
    Growable<char> viewed(graph.values.size());
    for (std::size_t s = 0; s < graph.steps.size(); ++s) {
      const PlanStep& step = graph.steps[s];
      for (const std::int32_t v : step.inputs) add_view(graph, v, indent, viewed);
      if (step.kind == StepKind::reshard) {
        out_ += concat_text(indent, value_text(graph, step.outputs[0]), " = reshard ", list_text(step.inputs), "\n");
        add_memory(graph, s, indent);
        for (const CollectiveInfo& c : step.collectives) add_collective(c, indent + "  ");
        continue;
      }
      std::string results;
      for (std::int32_t v : step.outputs) results += concat_text(results.empty() ? "" : ", ", value_text(graph, v));
      if (step.kind == StepKind::repeat) {
        out_ += concat_text(indent, results, " = repeat ", step.layers, "x ", list_text(step.inputs),
                            line_text(step.source), "\n");
        add_memory(graph, s, indent);
        add_graph(step.body, depth + 1);
        continue;
      }
      out_ += concat_text(indent, results, " = ", unit_text(program_.graphs[g], units_[g], step.unit), " ",
                          list_text(step.inputs), "  ", grouped(step.flops), " flops, ", bytes_text(step.bytes),
                          line_text(step.source), "\n");
      add_memory(graph, s, indent);
      for (const CollectiveInfo& c : step.collectives) add_collective(c, indent + "  ");
    }
    for (std::size_t k = 0; k < graph.outputs.size() && depth == 1; ++k)
      if (const int v = graph.outputs[k]; v >= 0 &&
                                          graph.values[static_cast<std::size_t>(v)].role != ValueRole::argument &&
                                          (graph.values[static_cast<std::size_t>(v)].role == ValueRole::view ||
                                           result_of(graph, v) < static_cast<int>(k)))
        out_ += concat_text(indent, "copies %", v, " to result ", k, "\n");
    if (depth > 1) out_ += concat_text(indent, "yield ", list_text(graph.outputs), "\n");
  }
};

}  // namespace detail

/// A plan as text: each step with its operations, results and cost, where it writes and how it is fused with the next
/// step; each collective with its bytes and line; the total communication; the memory of a device. `to scratch at 64`
/// is an offset in the arena, which holds the distinct shards of all devices.
inline std::string explain(const Plan& plan, const ProgramView& program, const UnitsView* units) {
  return detail::PlanText(plan, program, units).text();
}

/// A Plan or a FrozenPlan as text: its collectives, total communication and memory. With their operations, the steps
/// are those of explain() of a compiled function.
template <class P>
  requires std::derived_from<P, Communication<P>>
std::string explain(const P& plan) {
  std::string out = concat_text("plan on ", plan.given_mesh.text(), "\n");
  plan.for_each_collective([&](const CollectiveInfo& c, std::int64_t times) {
    out +=
        concat_text("  ", times == 1 ? "" : concat_text(times, " times "), detail::collective_text(plan.mesh, c), "\n");
  });
  return out + detail::totals_text(plan) + detail::memory_text(memory_of(plan));
}
/// Prints explain(plan).
template <class P>
  requires std::derived_from<P, Communication<P>>
std::ostream& operator<<(std::ostream& out, const P& plan) {
  return out << explain(plan);
}

}  // namespace tessera

TESSERA_PLANNING_END

#include <tessera/base/pop_macros.hpp>

#endif
