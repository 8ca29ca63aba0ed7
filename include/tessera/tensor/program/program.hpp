#ifndef TESSERA_TENSOR_PROGRAM_PROGRAM_HPP
#define TESSERA_TENSOR_PROGRAM_PROGRAM_HPP
#include <tessera/base/push_macros.hpp>

#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include <tessera/base/compiled.hpp>
#include <tessera/base/growable.hpp>
#include <tessera/graph/trace/named_leaves.hpp>
#include <tessera/kernels/made_once.hpp>
#include <tessera/runtime/executor/compiled_program.hpp>
#include <tessera/runtime/steps/step_code.hpp>
#include <tessera/tensor/program/plan_cache.hpp>
#if !TESSERA_LIBRARY_MAKES_KERNELS
#include <tessera/graph/fuse/traced_units.hpp>
#include <tessera/kernels/fused/fused_kernel.hpp>
#else
#include <tessera/runtime/executor/made_program.hpp>
#endif
#if TESSERA_HAS_DEFINITIONS
#include <tessera/runtime/executor/executable.hpp>
#include <tessera/runtime/executor/profile_hook.hpp>
#include <tessera/runtime/oracle/oracle.hpp>
#endif

namespace tessera {

namespace detail {

#if TESSERA_LIBRARY_MAKES_KERNELS
/// A traced program, whose kernels and steps the library has. `compiled` returns a copy, as below: optimised units of
/// the same project may have the other definition, and a linker takes that of either.
template <class Traced> struct ProgramCode {
  static CompiledProgram compiled() {
    static const CompiledProgram& made = make_program(Traced::program());
    return made;
  }
};
#else
/// A traced program with the compiled code of its fused kernels and of the steps that it needs.
template <class Traced> struct ProgramCode : TracedUnits<Traced> {
  using TracedUnits<Traced>::kernels;
  using TracedUnits<Traced>::kernel_count;
  using TracedUnits<Traced>::views;

  static constexpr runtime::StepNeeds needs = [] {
    runtime::StepNeeds own;
    for (std::size_t g = 0; g < views.size(); ++g) {
      const GraphView& graph = Traced::graphs[g];
      const UnitsView& view = views[g];
      for (int u = 0; u < view.count; ++u)
        if (view[u].kind != UnitKind::fused) own.add(view[u].kind, graph.operand_node(view[u].rule_node(), 0).dtype);
      for (int id = 0; id < graph.size; ++id) {
        const DTypeSet type = set_of(graph[id].dtype);
        if (row_of(graph[id]).unit == UnitKind::cumulative) own.cumulative.add(row_of(graph[id]).reduction, type);
        if (row_of(graph[id]).unit == UnitKind::along && row_of(graph[id]).scatters)
          if (const ScatterRule rule = ScatterRule::of(graph[id]); !rule.replaces)
            own.scattered.add(rule.reduction, type);
        // A linear operation on partial values gives partial values of the same element type.
        if (can_be_partial(graph, id)) own.partial.add(combined_by(graph[id]), type);
      }
    }
    return own;
  }();

  static CompiledProgram compiled() {
    static constexpr auto code = []<std::size_t... K>(std::index_sequence<K...>) {
      return std::array<FusedKernel, sizeof...(K) + 1>{tessera::kernels::fused_kernel<kernels, static_cast<int>(K)>...};
    }(std::make_index_sequence<kernel_count>{});
    return {Traced::program(), views.data(), kernels.data(), code.data(), &runtime::step_code<needs>()};
  }
};
#endif

/// `source`: the line that a profiler shows for the program, and for its steps without a line.
TESSERA_ONCE Growable<Leaf> run_executable(runtime::Executable& executable, std::span<const Leaf> arguments,
                                           const Source& source);
TESSERA_ONCE StoragePtr run_plain(runtime::Executable& executable, TensorStorage* const* tensors,
                                  const HostNumber* numbers, const Source& source);
TESSERA_ONCE bool overwrote(const runtime::Executable& executable);
TESSERA_ONCE std::size_t result_layers(const runtime::Executable& executable, std::size_t result);
TESSERA_ONCE HostNumber result_number(const runtime::Executable& executable, std::size_t result);

#if TESSERA_HAS_DEFINITIONS
TESSERA_ONCE bool overwrote(const runtime::Executable& executable) { return executable.overwrote(); }
TESSERA_ONCE std::size_t result_layers(const runtime::Executable& executable, std::size_t result) {
  return executable.result_layers(result);
}
TESSERA_ONCE HostNumber result_number(const runtime::Executable& executable, std::size_t result) {
  return executable.result_number(result);
}
TESSERA_ONCE Growable<Leaf> run_executable(runtime::Executable& executable, std::span<const Leaf> arguments,
                                           const Source& source) {
  executable.begin_call();
  if (const OracleSink::Run oracle = OracleSink::running()) return oracle(executable, arguments);
  if (const runtime::ProfileHook* const hook = runtime::ProfileHook::own()) [[unlikely]]
    return hook->run(executable, arguments, source);
  return executable.run(arguments);
}
TESSERA_ONCE StoragePtr run_plain(runtime::Executable& executable, TensorStorage* const* tensors,
                                  const HostNumber* numbers, const Source& source) {
  if (!oracle_is_on()) {
    if (const runtime::ProfileHook* const hook = runtime::ProfileHook::own()) [[unlikely]]
      return hook->run_plain(executable, tensors, numbers, source);
    return executable.run_plain(tensors, numbers);
  }
  Growable<Leaf> leaves(static_cast<std::size_t>(executable.compiled().program.argument_count));
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    leaves[i].is_number = tensors[i] == nullptr;
    leaves[i].number = numbers[i];
    if (tensors[i] != nullptr) leaves[i].layers.push_back(StoragePtr(tensors[i]));
  }
  return run_executable(executable, leaves, source)[0].layers[0];
}
#endif

template <class Traced> ProgramCache& cache_of() {
  static constinit MadeOnce<ProgramCache> cache;
  return cache.get([] { return new ProgramCache(ProgramCode<Traced>::compiled()); });
}

/// Finds the name of the leaf at an address.
struct FindName {
  const void* leaf;
  std::string found{};
  void operator()(std::string_view name, const auto& own, int) {
    if (static_cast<const void*>(&own) == leaf) found = name;
  }
};
/// The name of a leaf of a model, such as "blocks.0.up.weight". Empty for a leaf on its own.
template <class Model> std::string name_of_leaf(const void* model, const void* leaf) {
  FindName find{leaf};
  for_each_named_leaf(*static_cast<const Model*>(model), VisitLayers::each, find);
  return find.found;
}
/// An argument of a call, as messages name it and the tensors in it.
struct NamedArgument {
  const void* object = nullptr;
  std::string (*name_of_leaf)(const void* model, const void* leaf) = nullptr;
  int position = 0;
};
[[noreturn]] TESSERA_ONCE void fail_empty_argument(const NamedArgument& argument, const void* leaf);
#if TESSERA_HAS_DEFINITIONS
[[noreturn]] TESSERA_ONCE void fail_empty_argument(const NamedArgument& argument, const void* leaf) {
  const std::string name =
      argument.name_of_leaf != nullptr ? argument.name_of_leaf(argument.object, leaf) : std::string();
  const bool is_number = !name.empty() && name[0] >= '0' && name[0] <= '9';  // a struct without names of its fields
  fail(errc::empty_tensor, "[compile] argument ", argument.position,
       name.empty() ? ""
       : is_number  ? ", field "
                    : ", ",
       name, ": an empty tensor, which was never assigned or was moved from");
}
#endif

/// Collects the leaves of run-time arguments in the order of the trace. A leaf of a Stack has one tensor per layer.
struct CollectLeaves {
  Growable<Leaf> leaves;
  std::size_t cursor = 0, base = 0;
  int layer = -1;
  NamedArgument argument{};  ///< that whose leaves are collected

  template <class L> void leaf(const L& x) {
    const bool later = layer > 0;
    if (!later) leaves.emplace_back();
    Leaf& to = leaves[cursor++];
    to.stacked = layer >= 0;
    if constexpr (StoredOperand<L>) {
      if (!x.storage()) fail_empty_argument(argument, &x);
      to.layers.push_back(StoragePtr(static_cast<TensorStorage*>(x.storage().get())));
    } else {
      to.is_number = true;
      to.stacked = false;
      const HostNumber number = x.number();
      if (later && !(to.number == number))
        fail(errc::structure, "[stack] Dims and Scalars: a Dim or Scalar is equal in all layers of a Stack; layer ",
             layer, " has ", number.real(), ", layer 0 has ", to.number.real());
      to.number = number;
    }
  }
  template <class S> void enter_stack(const S& stack) {
    if (stack.size() == 0)
      fail(errc::structure, "[stack] number of layers: the Stack is empty; a Stack in a call has at least 1 layer");
    base = leaves.size();
  }
  void enter_layer(int i) {
    layer = i;
    cursor = base;
  }
  void leave_stack() { layer = -1; }
};

/// Resizes each Stack of a result to the plan's number of layers, and sets Dims, before the program runs.
struct SizeStacks {
  const runtime::Executable& executable;
  std::size_t leaves;
  std::size_t cursor = 0, base = 0;

  template <class L> void leaf(L& x) {
    if constexpr (std::is_same_v<L, Dim>) x = Dim(result_number(executable, cursor).integer());
    ++cursor;
  }
  template <class S> void enter_stack(S& stack) {
    base = cursor;
    std::size_t layers = 0;
    for (std::size_t k = cursor; layers == 0 && k < leaves; ++k) layers = result_layers(executable, k);
    stack.layers().resize(layers);
  }
  void enter_layer(int) { cursor = base; }
  void leave_stack() {}
};

/// Moves results into the leaves of a structure whose Stacks SizeStacks has resized. Does not throw.
struct FillLeaves {
  Growable<Leaf>& leaves;
  std::size_t cursor = 0, base = 0;
  int layer = 0;

  template <class L> void leaf(L& x) noexcept {
    Leaf& from = leaves[cursor++];
    if constexpr (std::is_same_v<L, Dim>)
      x = Dim(from.number.integer());
    else if constexpr (std::is_same_v<L, Scalar>)
      x = Scalar(from.layers.empty() || from.number.real() != 0 ? from.number : computed(*from.layers[0]));
    else
      x = L(IntrusivePtr<RefCounted>(from.layers[from.stacked ? static_cast<std::size_t>(layer) : 0].get()));
  }
  void enter_stack(auto&) { base = cursor; }
  void enter_layer(int i) {
    layer = i;
    cursor = base;
  }
  void leave_stack() { layer = 0; }

 private:
  /// A Scalar that the program computes in a loop, such as the number of steps of an optimizer, is a tensor there.
  static HostNumber computed(TensorStorage& tensor) noexcept {
    double value = 0;
    if (tensor.dtype() == DType::f64 && tensor.holds(0)) std::memcpy(&value, tensor.data(0), sizeof value);
    return value;
  }
};

/// Takes the tensors out of arguments that were moved in, so that the program holds the only references.
struct ReleaseLeaves {
  template <class L> void leaf(L& x) {
    if constexpr (StoredOperand<L>) x = L();
  }
  void enter_stack(auto&) {}
  void enter_layer(int) {}
  void leave_stack() {}
};

/// Returns donated tensors to their arguments after an error; skips arguments that were not donated.
struct RestoreLeaves {
  Growable<Leaf>& leaves;
  std::size_t cursor = 0, base = 0;
  int layer = 0;
  bool writes = true;

  RestoreLeaves& passing(bool over) {
    writes = !over;
    return *this;
  }
  template <class L> void leaf(L& x) {
    Leaf& from = leaves[cursor++];
    if constexpr (StoredOperand<std::remove_const_t<L>> && !std::is_const_v<L>)
      if (writes)
        x = L(IntrusivePtr<RefCounted>(from.layers[from.stacked ? static_cast<std::size_t>(layer) : 0].get()));
  }
  void enter_stack(auto&) { base = cursor; }
  void enter_layer(int i) {
    layer = i;
    cursor = base;
  }
  void leave_stack() { layer = 0; }
};

/// Shape, sharding and Dim value of each leaf. Checks that all are on one mesh, and that the layers of a Stack agree.
TESSERA_ONCE Growable<ArgumentInfo> describe(const CompiledProgram& compiled, const Growable<Leaf>& leaves, Mesh& mesh);
#if TESSERA_HAS_DEFINITIONS
TESSERA_ONCE Growable<ArgumentInfo> describe(const CompiledProgram& compiled, const Growable<Leaf>& leaves,
                                             Mesh& mesh) {
  Growable<ArgumentInfo> infos;
  infos.reserve(leaves.size());
  bool first = true;
  Growable<std::uint8_t> is_size(leaves.size(), 0);
  const GraphView& graph = compiled.program.main();
  for (int id = 0; id < graph.size; ++id)
    if (graph[id].is_dim()) is_size[static_cast<std::size_t>(graph[id].index())] = 1;
  for (int g = 1; g < compiled.program.graph_count; ++g)
    for (int id = 0; id < compiled.program.graphs[g].size; ++id)
      if (const Node& node = compiled.program.graphs[g][id]; node.is_dim())
        is_size[static_cast<std::size_t>(node.index())] = 1;
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    const Leaf& leaf = leaves[i];
    ArgumentInfo info;
    if (leaf.is_number) {
      info.number = is_size[i] ? leaf.number : HostNumber();  // a Scalar may change from call to call
      infos.push_back(info);
      continue;
    }
    const TensorStorage& x = *leaf.layers.front();
    if (first) mesh = x.mesh();
    first = false;
    for (const StoragePtr& layer : leaf.layers) {
      if (!(layer->mesh() == mesh))
        fail(errc::mesh_mismatch, "[compile] different meshes: argument ", i, ", ",
             shape_text(layer->dtype(), layer->shape()), ", is on ", layer->mesh().text(),
             ", but earlier arguments are on ", mesh.text());
      if (!(layer->shape() == x.shape()) || !(layer->placement() == x.placement()))
        fail(errc::structure, "[stack] layers: all layers of a Stack must have equal shapes and shardings; argument ",
             i, " is ", shape_text(x.dtype(), x.shape()), text(x.sharding(), mesh), " in layer 0 and ",
             shape_text(x.dtype(), layer->shape()), text(layer->sharding(), mesh), " in a later layer");
    }
    info.shape = x.shape();
    info.sharding = x.placement();
    if (leaf.stacked) {
      info.shape.insert(0, static_cast<std::int64_t>(leaf.layers.size()));
      for (int d = info.sharding.rank; d > 0; --d) {
        info.sharding.dims[d] = info.sharding.dims[d - 1];
        info.sharding.priority[d] = info.sharding.priority[d - 1];
      }
      info.sharding.dims[0] = {};
      info.sharding.priority[0] = 0;
      ++info.sharding.rank;
    }
    infos.push_back(info);
  }
  return infos;
}
#endif

/// A lease of the plan for these leaves.
TESSERA_ONCE PlanLease executable_in(ProgramCache& cache, const Growable<Leaf>& leaves,
                                     const PlanOptions& options = {});
#if TESSERA_HAS_DEFINITIONS
TESSERA_ONCE PlanLease executable_in(ProgramCache& cache, const Growable<Leaf>& leaves, const PlanOptions& options) {
  Mesh mesh{};
  const Growable<ArgumentInfo> infos = describe(cache.compiled(), leaves, mesh);
  return cache.find({mesh, infos, options});
}
#endif
template <class Traced> PlanLease executable_for(const Growable<Leaf>& leaves, const PlanOptions& options = {}) {
  return executable_in(cache_of<Traced>(), leaves, options);
}

/// Runs a program. All that may throw besides the run itself comes first: `give_up()`, which releases donated
/// arguments, is called after the result was allocated, so an earlier error leaves the arguments unchanged.
template <class Result, class GiveUp>
Result run_into(runtime::Executable& executable, const Growable<Leaf>& leaves, GiveUp give_up, const Source& source) {
  Result result{};
  SizeStacks size{executable, plan_of(executable).main().outputs.size()};
  for_each_leaf(result, size);
  give_up();
  Growable<Leaf> results = run_executable(executable, leaves, source);
  FillLeaves fill{results};
  for_each_leaf(result, fill);
  return result;
}

}  // namespace detail
}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
