#ifndef TESSERA_PARTITION_PLAN_STATIC_PLAN_HPP
#define TESSERA_PARTITION_PLAN_STATIC_PLAN_HPP
#include <tessera/base/push_macros.hpp>

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include <tessera/base/growable.hpp>
#include <tessera/base/planning.hpp>
#include <tessera/base/shape.hpp>
#include <tessera/graph/fuse/traced_units.hpp>
#include <tessera/graph/ir/attributes/constraint.hpp>
#include <tessera/partition/plan/abstract.hpp>
#include <tessera/partition/plan/make_plan.hpp>

TESSERA_PLANNING_BEGIN

namespace tessera {

namespace detail {

/// The function to plan: F itself; a compiled function specialises this for the function that it compiles.
template <class F> struct PlannedFunction {
  using type = F;
};

/// An axis that constraints of a program name, and the line of the first of these.
struct NamedAxis {
  Name axis;
  std::uint32_t line = 0;
  bool shard_map = false;
};
struct NamedAxes {
  NamedAxis list[32];
  std::size_t count = 0;

  constexpr void add(const NamedAxis& made) {
    for (std::size_t i = 0; i < count; ++i)
      if (list[i].axis == made.axis && list[i].shard_map == made.shard_map) return;
    if (count < 32) list[count++] = made;
  }
  constexpr void add(const PartitionSpec& spec, std::uint32_t line, bool shard_map) {
    for (const SpecEntry& entry : spec.entries)
      for (const Name& axis : entry.axes) add({axis, line, shard_map});
  }
  constexpr explicit NamedAxes(const ProgramView& program) {
    for (int g = 0; g < program.graph_count; ++g)
      for (int id = 0; id < program.graphs[g].size; ++id) {
        const Node& node = program.graphs[g][id];
        if (!row_of(node).constrains) continue;
        const Constraint own = Constraint::of(node);
        const bool shard_map = own.about >= 0;
        add(program.specs[own.spec], node.source.line, shard_map);
        if (own.cotangent == CotangentSharding::own_spec)
          add(program.specs[own.cotangent_spec], node.source.line, shard_map);
      }
  }
};

// When the evaluation of a constant fails, compilers show the function where it ended, with its template arguments, so
// the name of the axis is one. clang also shows arguments of the function around it; arrays of printable characters as
// text.
template <std::size_t N> struct SpelledAxis {
  char name[N]{};
};
template <std::size_t N> constexpr SpelledAxis<N> spelled(const Name& axis) {
  SpelledAxis<N> made;
  for (std::size_t i = 0; i + 1 < N; ++i) made.name[i] = axis.text[i];
  return made;
}
struct AxesOfTheMesh {
  char names[33] = "                                ";
  constexpr explicit AxesOfTheMesh(const Mesh& mesh) {
    std::size_t at = 0;
    for (const Axis& axis : mesh.axes())
      for (std::size_t i = 0; i <= axis.name.view().size() && at < 32; ++i)
        names[at++] = i < axis.name.view().size() ? axis.name.text[i] : ' ';
  }
};
template <auto Axis, std::uint32_t Line> [[noreturn]] void with_sharding_names_an_axis_that_the_mesh_lacks() {
  fail(errc::spec_axis, "[with_sharding] unknown axis: the mesh has no axis '", Axis.name, "', at line ", Line);
}
template <auto Axis, std::uint32_t Line> [[noreturn]] void shard_map_names_an_axis_that_the_mesh_lacks() {
  fail(errc::spec_axis, "[shard_map] unknown axis: the mesh has no axis '", Axis.name, "', at line ", Line);
}

template <class Trace> struct ConstraintAxes {
  static constexpr NamedAxes named{Trace::program()};
  /// In a constant expression, compilation ends here for a mesh that lacks an axis: the message has the axis and its
  /// line.
  template <std::size_t... I> static constexpr void check(const Mesh& mesh, std::index_sequence<I...>) {
    (void)((is_known(mesh, named.list[I].axis.view()) || unknown<I>(AxesOfTheMesh(mesh))) && ...);
  }
  /// Whether the name is an axis of the mesh, or a sub-axis.
  static constexpr bool is_known(const Mesh& mesh, std::string_view name) {
    return mesh.has_axis(name) || !axes_named(mesh, name).empty() || sub_axis_named(mesh, name).size > 0;
  }
  template <std::size_t I> static constexpr bool unknown(AxesOfTheMesh known) {
    constexpr NamedAxis made = named.list[I];
    constexpr auto axis = spelled<made.axis.view().size() + 1>(made.axis);
    if (known.names[0] == '\0') return true;
    if constexpr (made.shard_map)
      shard_map_names_an_axis_that_the_mesh_lacks<axis, made.line>();
    else
      with_sharding_names_an_axis_that_the_mesh_lacks<axis, made.line>();
  }
};

}  // namespace detail

namespace detail {
template <class T> inline constexpr bool plans_without_data_v = std::is_convertible_v<T, PlanOptions>;
template <class A, std::size_t N> inline constexpr bool plans_without_data_v<AbstractArgument<A, N>> = true;
}  // namespace detail

/// The plan of a function for arguments without data. Planning needs no threads and nothing to link, and can be done in
/// a static_assert; at run time the plan is the same. `options` may come before the arguments.
///
///     static_assert(ts::plan(Step{}, mesh, ts::abstract<Mlp>({...}), ts::abstract<float>({32, 64}, {"data"}))
///                       .count(ts::all_reduce) == 1);
///
/// Errors: `spec_axis`, `spec_rank`, `shape_mismatch`; `policy` for what the options forbid. In a constant expression
/// an error ends the compilation at the line that holds its message.
template <class F, class... Args, std::size_t... Leaves>
constexpr Plan plan(const F&, const Mesh& mesh, const PlanOptions& options,
                    const AbstractArgument<Args, Leaves>&... arguments) {
  using Trace = Traced<typename detail::PlannedFunction<F>::type, Args...>;
  if constexpr (Trace::frozen.used.specs > 0)
    if (__builtin_is_constant_evaluated()) {
      using Axes = detail::ConstraintAxes<Trace>;
      Axes::check(mesh, std::make_index_sequence<Axes::named.count>{});
    }
  Growable<ArgumentInfo> infos;
  infos.reserve((0 + ... + Leaves));
  const auto add = [&](const Abstract* leaves, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) infos.push_back(detail::describe_leaf(leaves[i], mesh));
  };
  (add(arguments.leaves, Leaves), ...);
  return make_plan(Trace::program(), TracedUnits<Trace>::views.data(), mesh, infos.data(),
                   static_cast<int>(infos.size()), options);
}
template <class F, class... Args, std::size_t... Leaves>
constexpr Plan plan(const F& f, const Mesh& mesh, const AbstractArgument<Args, Leaves>&... arguments) {
  return plan(f, mesh, PlanOptions{}, arguments...);
}
/// With an argument that has data, or without a mesh, it does not compile.
template <class F, class First, class... Args>
  requires(!(std::is_convertible_v<First, Mesh> && ... && detail::plans_without_data_v<Args>))
constexpr void plan(const F&, const First&, const Args&...) {
  static_assert(std::is_void_v<First>,
                "tessera: the plan of a function takes a mesh and arguments without data, ts::plan(f, mesh, "
                "ts::abstract<float>({8, 16})); for arguments with data, f = ts::compile(...) and f.plan(x)");
}

}  // namespace tessera

TESSERA_PLANNING_END

#include <tessera/base/pop_macros.hpp>

#endif
