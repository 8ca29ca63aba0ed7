#ifndef TESSERA_RUNTIME_EXECUTOR_MADE_PROGRAM_HPP
#define TESSERA_RUNTIME_EXECUTOR_MADE_PROGRAM_HPP
#include <tessera/base/push_macros.hpp>

#include <tessera/base/compiled.hpp>
#include <tessera/graph/ir/program.hpp>
#include <tessera/runtime/executor/compiled_program.hpp>
#if TESSERA_HAS_DEFINITIONS
#include <cstddef>
#include <memory>

#include <tessera/base/growable.hpp>
#include <tessera/graph/fuse/program_units.hpp>
#include <tessera/kernels/fused/made_kernel.hpp>
#include <tessera/runtime/steps/step_code.hpp>
#endif

namespace tessera {

/// The units and kernels of a program that is known only at run time, with walked kernels. The result is never freed,
/// and refers to the program.
TESSERA_ONCE const CompiledProgram& make_program(const ProgramView& program);

#if TESSERA_HAS_DEFINITIONS
namespace runtime {
struct MadeProgram : CompiledProgram {
  ProgramUnits own;
  Growable<std::unique_ptr<kernels::MadeKernel>> made;
  Growable<FusedKernel> code_of_kernels;

  explicit MadeProgram(const ProgramView& program_view)
      : CompiledProgram{program_view, nullptr, nullptr, nullptr, &step_code<StepNeeds::everything()>()},
        own(program_view.graphs, program_view.graph_count) {
    for (const Fused& kernel : own.kernels) {
      made.push_back(std::make_unique<kernels::MadeKernel>(kernel));
      code_of_kernels.push_back(made.back()->code());
    }
    units = own.views.data();
    kernels = own.kernels.data();
    code = code_of_kernels.data();
  }
};
}  // namespace runtime

TESSERA_ONCE const CompiledProgram& make_program(const ProgramView& program) {
  return *new runtime::MadeProgram(program);
}
#endif

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
