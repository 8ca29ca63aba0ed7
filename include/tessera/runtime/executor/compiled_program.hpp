#ifndef TESSERA_RUNTIME_EXECUTOR_COMPILED_PROGRAM_HPP
#define TESSERA_RUNTIME_EXECUTOR_COMPILED_PROGRAM_HPP
#include <tessera/base/push_macros.hpp>

#include <array>
#include <memory>
#include <vector>

#include <tessera/graph/fuse/fused.hpp>
#include <tessera/graph/fuse/units.hpp>
#include <tessera/graph/ir/program.hpp>
#include <tessera/kernels/strides.hpp>
#include <tessera/runtime/memory/storage.hpp>

namespace tessera {

namespace runtime {
class PreparedGraph;
class PreparedStep;
struct StepContext;

/// Makes the step of a unit; graphs are those of the program.
using StepFactory = std::unique_ptr<PreparedStep> (*)(const StepContext&,
                                                      const std::vector<std::unique_ptr<PreparedGraph>>& graphs);

/// Steps as code: how to make the step of each UnitKind, and the reduction of partial values.
struct StepCode {
  std::array<StepFactory, unit_kinds> factories{};
  kernels::ReduceFunction reduce = nullptr;
};
}  // namespace runtime

/// What is known of a program at compile time: its graphs, its units, its compiled kernels, and factories for the kinds
/// of step that it uses. No code is generated for other kinds of step.
struct CompiledProgram {
  ProgramView program;
  const UnitsView* units = nullptr;  ///< one for each graph
  const Fused* kernels = nullptr;
  const FusedKernel* code = nullptr;
  const runtime::StepCode* steps = nullptr;  ///< for the element types of the program
};

/// One leaf of a program's arguments or results at run time: a tensor, the tensors of all layers, or a number.
struct Leaf {
  std::vector<StoragePtr> layers;  ///< one of a plain tensor
  HostNumber number{};
  bool is_number = false;
  bool stacked = false;
};

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
