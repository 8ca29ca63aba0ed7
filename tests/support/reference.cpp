// Compiled once: the planner and the executor are most of the code of a test of one family of operations.
#include "reference.hpp"

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "interpreted_kernel.hpp"
#include "program_units.hpp"
#include "stored.hpp"

#include <tessera/graph/fuse/lower_fused.hpp>
#include <tessera/partition/plan/make_plan.hpp>
#include <tessera/partition/plan/verify_plan.hpp>
#include <tessera/runtime/executor/executable.hpp>
#include <tessera/runtime/steps/step_code.hpp>
#include <tessera/tensor/program/program.hpp>

namespace reference::detail {

std::vector<Array> run_on(const oracle::Program& program, const tessera::Mesh& mesh,
                          const std::vector<Array>& arguments) {
  tessera::tests::ProgramUnits owned(program.graphs.data(), static_cast<int>(program.graphs.size()));
  std::vector<tessera::UnitsView> units;
  for (const tessera::Units& graph : owned.graphs) units.push_back(graph.view());
  const oracle::InterpretedKernels kernels(owned.kernels.data(), static_cast<int>(owned.kernels.size()));
  const tessera::runtime::StepCode& code = tessera::runtime::step_code<tessera::runtime::StepNeeds::everything()>();
  const tessera::ProgramView view = program.view();
  const tessera::CompiledProgram compiled{view, units.data(), owned.kernels.data(), kernels.code(), &code};
  tessera::Growable<tessera::Leaf> leaves(arguments.size());
  // A number that the program does not use, such as the momentum of a layer in evaluation, has no node.
  for (std::size_t at = 0; at < arguments.size(); ++at)
    if (arguments[at].shape.empty()) leaves[at].is_number = true, leaves[at].number = arguments[at].data[0];
  for (int id = 0; id < program.main().size; ++id) {
    const tessera::Node& node = program.main()[id];
    if (!node.is_argument() && !node.is_dim() && !node.is_scalar()) continue;
    const auto at = static_cast<std::size_t>(node.value);
    tessera::Leaf& leaf = leaves[at];
    leaf.is_number = !node.is_argument();
    if (node.is_dim())
      leaf.number = static_cast<std::int64_t>(arguments[at].data[0]);
    else if (leaf.is_number)
      leaf.number = arguments[at].data[0];
    else
      leaf.layers = {oracle::store(mesh, node.dtype,
                                   node.rank == 0 ? tessera::PartitionSpec{} : tessera::PartitionSpec{"data"},
                                   arguments[at].shape, arguments[at].data.data())};
  }
  tessera::Mesh of_leaves = mesh;
  const tessera::Growable<tessera::ArgumentInfo> infos = tessera::detail::describe(compiled, leaves, of_leaves);
  tessera::Plan plan = tessera::make_plan(view, units.data(), of_leaves, infos.data(), static_cast<int>(infos.size()));
  tessera::verify_plan(plan, view, units.data());
  tessera::runtime::Executable executable(compiled, std::move(plan));
  std::vector<Array> results;
  for (const tessera::Leaf& leaf : executable.run(leaves)) results.push_back(oracle::load(leaf));
  return results;
}

}  // namespace reference::detail
