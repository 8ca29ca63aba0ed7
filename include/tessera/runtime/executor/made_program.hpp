#ifndef TESSERA_RUNTIME_EXECUTOR_MADE_PROGRAM_HPP
#define TESSERA_RUNTIME_EXECUTOR_MADE_PROGRAM_HPP
#include <tessera/base/push_macros.hpp>

#include <tessera/base/compiled.hpp>
#include <tessera/graph/ir/program.hpp>
#include <tessera/runtime/executor/compiled_program.hpp>
#ifdef TESSERA_DEFINITIONS
#include <tessera/base/growable.hpp>
#include <tessera/graph/fuse/program_units.hpp>
#include <tessera/kernels/fused/made_kernel.hpp>
#include <tessera/runtime/steps/step_code.hpp>
#endif

namespace tessera {

/// The units of a program and their kernels, made when the program runs. The result is never freed, and refers to the
/// program. Only tessera::compiled has it: the code of all instructions would be in every header-only program.
const CompiledProgram& make_program(const ProgramView& program);

#ifdef TESSERA_DEFINITIONS
namespace runtime {
struct MadeProgram : CompiledProgram {
  ProgramUnits own;
  Growable<FusedKernel> made;

  explicit MadeProgram(const ProgramView& program_view)
      : CompiledProgram{program_view, nullptr, nullptr, nullptr, &step_code<StepNeeds::everything()>()},
        own(program_view.graphs, program_view.graph_count) {
    for (const Fused& kernel : own.kernels) made.push_back(kernels::make_kernel(kernel));
    units = own.views.data();
    kernels = own.kernels.data();
    code = made.data();
  }
};
}  // namespace runtime

const CompiledProgram& make_program(const ProgramView& program) { return *new runtime::MadeProgram(program); }
#endif

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
