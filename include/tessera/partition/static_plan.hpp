#ifndef TESSERA_PARTITION_STATIC_PLAN_HPP
#define TESSERA_PARTITION_STATIC_PLAN_HPP

#include <cstdint>
#include <initializer_list>
#include <vector>

#include <tessera/graph/traced_units.hpp>
#include <tessera/partition/make_plan.hpp>

namespace tessera {

/// A leaf of a program's arguments that is planned for without data: a tensor's shape and spec, the same in n layers of
/// a Stack, or a Dim's number.
struct Abstract {
  Shape shape;
  PartitionSpec spec;
  double number = 0;
  std::int64_t layers = 0;  ///< 0: not in a Stack

  constexpr Abstract(Shape extents, PartitionSpec layout = {}) : shape(extents), spec(layout) {}
  static constexpr Abstract dim(std::int64_t value) {
    Abstract leaf({});
    leaf.number = static_cast<double>(value);
    return leaf;
  }
};

/// A leaf of every layer of a Stack of n.
constexpr Abstract stacked(std::int64_t n, Abstract leaf) {
  leaf.layers = n;
  return leaf;
}

/// The plan of a function for arguments of these types, from the shapes and specs of their leaves in the order in which
/// they are declared. It needs no data, no threads, and nothing to link: it can stand in a static_assert.
///
///     static_assert(ts::plan_of<Step, Model, ts::ShardedTensor<float, 2>>(mesh, {...}).count(ts::all_reduce) == 1);
///
/// Errors: `spec_axis`, `spec_rank`, `shape_mismatch`; `structure` when the number of leaves differs. In a constant
/// expression each ends the compilation at the line that holds its message.
template <class F, class... Args>
constexpr Plan plan_of(const Mesh& mesh, std::initializer_list<Abstract> leaves, const PlanOptions& options = {}) {
  using Trace = Traced<F, Args...>;
  constexpr ProgramView program = Trace::program();
  if (static_cast<int>(leaves.size()) != program.argument_count)
    fail(errc::structure, "[plan] leaves: ", leaves.size(), " are described, the arguments have ",
         program.argument_count);
  std::vector<ArgumentInfo> arguments;
  arguments.reserve(leaves.size());
  for (const Abstract& leaf : leaves) {
    ArgumentInfo info;
    info.number = leaf.number;
    info.shape = leaf.shape;
    PartitionSpec spec = leaf.spec;
    if (leaf.layers > 0) {
      info.shape.insert(0, leaf.layers);
      spec.entries.insert(0, SpecEntry{});
    }
    info.sharding = resolve(spec, mesh, static_cast<int>(info.shape.size()));
    arguments.push_back(info);
  }
  return make_plan(program, TracedUnits<Trace>::views.data(), mesh, arguments.data(),
                   static_cast<int>(arguments.size()), options);
}

/// The same from a function object.
template <class... Args, class F>
constexpr Plan plan_of(F, const Mesh& mesh, std::initializer_list<Abstract> leaves, const PlanOptions& options = {}) {
  return plan_of<F, Args...>(mesh, leaves, options);
}

}  // namespace tessera

#endif
