#ifndef TESSERA_RUNTIME_EXECUTOR_COMPILED_PROGRAM_HPP
#define TESSERA_RUNTIME_EXECUTOR_COMPILED_PROGRAM_HPP
#include <tessera/base/push_macros.hpp>

#include <array>
#include <memory>

#include <tessera/base/growable.hpp>
#include <tessera/graph/fuse/fused.hpp>
#include <tessera/graph/fuse/units.hpp>
#include <tessera/graph/ir/program.hpp>
#include <tessera/kernels/strides.hpp>
#include <tessera/ops/rows.hpp>
#include <tessera/runtime/memory/storage.hpp>

namespace tessera {

namespace runtime {
class PreparedGraph;
class PreparedStep;
struct StepContext;

/// Prepares the step of a unit. `graphs` are all graphs of the program: a repeat runs one as its body.
using StepFactory = std::unique_ptr<PreparedStep> (*)(const StepContext&,
                                                      const Growable<std::unique_ptr<PreparedGraph>>& graphs);

/// The code that a program needs to run: a factory for each UnitKind, and the reduction of partial values.
struct StepCode {
  std::array<StepFactory, unit_kinds> factories{};
  kernels::ReduceFunction reduce = nullptr;
};
}  // namespace runtime

/// The result of tracing a program at compile time. `steps` has factories only for the kinds of step that the program
/// uses, so that the code of no other kind is instantiated.
struct CompiledProgram {
  ProgramView program;
  const UnitsView* units = nullptr;  ///< by graph
  const Fused* kernels = nullptr;
  const FusedKernel* code = nullptr;
  const runtime::StepCode* steps = nullptr;  ///< instantiated for the program's element types
};

/// One leaf of a program's arguments or results: a tensor, the tensors of all layers of a Stack, or a host scalar.
struct Leaf {
  Growable<StoragePtr> layers;  ///< one per layer of a Stack; a single element for a plain tensor
  HostNumber number{};
  bool is_number = false;
  bool stacked = false;
};

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
