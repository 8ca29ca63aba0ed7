// Compiled once: the planner and the executor are most of the code of a test of one family of operations.
#include "reference.hpp"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "interpreted_kernel.hpp"
#include "stored.hpp"
#include <gtest/gtest.h>

#include <tessera/graph/fuse/lower_fused.hpp>
#include <tessera/graph/fuse/program_units.hpp>
#include <tessera/partition/plan/make_plan.hpp>
#include <tessera/partition/plan/verify_plan.hpp>
#include <tessera/runtime/executor/executable.hpp>
#include <tessera/runtime/steps/step_code.hpp>
#include <tessera/tensor/program/program.hpp>

namespace reference {

namespace {

Array read_array(std::istream& line) {
  std::string shape, word;
  line >> shape;
  Array read;
  std::istringstream extents(shape.substr(1, shape.size() - 2));
  for (std::string extent; std::getline(extents, extent, ',');) read.shape.push_back(std::stoll(extent));
  while (line >> word) read.data.push_back(std::strtod(word.c_str(), nullptr));  // strtod reads "nan" and "inf"
  if (read.data.size() != static_cast<std::size_t>(tessera::volume(read.shape)))
    throw std::runtime_error("reference: data does not fit its shape");
  return read;
}

using tessera::Value;
namespace build = tessera::build;

/// sum(r * c) with the weights of generate.py; 0 for integers.
Value weighted_sum(const Value& r, tessera::DType dtype) {
  const unsigned all = (1u << r.rank()) - 1;
  if (!tessera::is_floating(r.dtype())) return build::reduce(tessera::Op::sum, build::cast(r, dtype), all, false) * 0.0;
  if (r.rank() == 0) return build::cast(r, dtype) * -0.625;
  constexpr double factors[] = {7, 5, 3, 2, 1};
  Value of_dims = build::iota(r, 0, r.dtype()) * factors[0];
  for (int d = 1; d < r.rank(); ++d) of_dims = of_dims + build::iota(r, d, r.dtype()) * factors[d];
  const Value whole = build::cast(build::cast(of_dims / of_dims.number(11), tessera::DType::i64), r.dtype());
  const Value wrapped = of_dims - whole * 11.0;
  const Value weights = (wrapped - 5.0) / wrapped.number(8);
  return build::cast(build::reduce(tessera::Op::sum, r * weights, all, false), dtype);
}

std::string differing_values(const Array& got, const Array& want) {
  std::ostringstream text;
  for (std::size_t i = 0; i < want.data.size(); ++i)
    if (got.data[i] != want.data[i] && !(std::isnan(got.data[i]) && std::isnan(want.data[i])))
      text << "\n  element " << i << ": " << got.data[i] << ", of PyTorch " << want.data[i];
  return text.str();
}

void add_numbers(const Numbers& numbers, std::vector<Array>& arguments, std::vector<bool>& differentiated) {
  for (auto n = numbers.find(arguments.size()); n != numbers.end(); n = numbers.find(arguments.size())) {
    arguments.push_back(Array::number(n->second));
    differentiated.push_back(false);
  }
}

/// The program of a recorded function; with `gradient`, its outputs are the weighted sum of the results, the results,
/// and for each argument the gradient of the sum, or an argument without one as it is.
oracle::Program finished(tessera::Module recorded, int arguments, bool gradient) {
  if (gradient) {
    const auto value = [&](int id) { return Value{&recorded, 0, id, {}}; };
    const tessera::Growable<std::int32_t> results = recorded.main().outputs;
    tessera::Growable<std::int32_t> sources;
    for (int k = 0; k < arguments; ++k)  // the nodes of arguments come first, in their order
      if (value(k).node().is_argument() && tessera::is_floating(value(k).dtype())) sources.push_back(k);
    const tessera::DType dtype = value(sources[0]).dtype();
    Value sum = weighted_sum(value(results[0]), dtype);
    for (std::size_t r = 1; r < results.size(); ++r) sum = sum + weighted_sum(value(results[r]), dtype);
    const tessera::Growable<std::int32_t> gradients = tessera::differentiate(sum, sources);
    tessera::Growable<std::int32_t> outputs;
    outputs.push_back(sum.id);
    for (const std::int32_t id : results) outputs.push_back(id);
    std::size_t next = 0;
    for (int k = 0; k < arguments; ++k)
      outputs.push_back(next < sources.size() && sources[next] == k ? gradients[next++] : k);
    recorded.main().outputs = outputs;
  }
  return oracle::simplified(std::move(recorded), arguments);
}

/// Plans and runs a program on a mesh, with tensors split along their first dim; its fused kernels are interpreted.
std::vector<Array> run_on(const oracle::Program& program, const tessera::Mesh& mesh,
                          const std::vector<Array>& arguments) {
  tessera::ProgramUnits owned(program.graphs.data(), static_cast<int>(program.graphs.size()));
  const tessera::Growable<tessera::UnitsView>& units = owned.views;
  const std::vector<tessera::FusedKernel> kernels =
      oracle::interpreted_kernels(owned.kernels.data(), static_cast<int>(owned.kernels.size()));
  const tessera::runtime::StepCode& code = tessera::runtime::step_code<tessera::runtime::StepNeeds::everything()>();
  const tessera::ProgramView view = program.view();
  const tessera::CompiledProgram compiled{view, units.data(), owned.kernels.data(), kernels.data(), &code};
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

}  // namespace

std::map<std::string, Case> read_cases(const std::string& family) {
  const auto path = std::filesystem::path(__FILE__).parent_path() / "../reference/data" / (family + ".txt");
  std::ifstream file(path);
  std::map<std::string, Case> cases;
  Case* last = nullptr;
  for (std::string text; std::getline(file, text);) {
    std::istringstream line(text);
    std::string kind, what;
    line >> kind >> what;
    if (kind == "case") {
      last = &cases[what];
      continue;
    }
    (kind == "in" ? last->in : kind == "out" ? last->out : last->grad).push_back(read_array(line));
    if (kind == "in") last->is_floating.push_back(what == "f64");
  }
  if (cases.empty()) throw std::runtime_error("reference: cannot read " + path.string());
  return cases;
}

namespace detail {

double ulps(const Array& got, const Array& want, double unit, double least) {
  double most = 0;
  for (std::size_t i = 0; i < want.data.size(); ++i) {
    const double a = got.data[i], b = want.data[i];
    if (a == b || (std::isnan(a) && std::isnan(b))) continue;
    const double difference = std::fabs(a - b) / (unit * std::fmax(std::fabs(b), least));
    most = std::isfinite(difference) ? std::fmax(most, difference) : INFINITY;
  }
  return most;
}

AnyCases::AnyCases(const std::string& family, Bound bound, bool single)
    : cases_(read_cases(family)), bound_(bound), single_(single) {}

AnyCases::~AnyCases() {
  for (const auto& [name, c] : cases_) EXPECT_TRUE(used_[name]) << "no test of the case " << name;
}

void AnyCases::check(const std::string& name, const tessera::Module& recorded, const Numbers& numbers) {
  SCOPED_TRACE(name + (single_ ? " f32" : " f64"));
  ASSERT_TRUE(cases_.contains(name));
  const Case& c = (*this)[name];
  std::vector<Array> arguments;
  std::vector<bool> differentiated;
  for (std::size_t i = 0; i < c.in.size(); ++i) {
    add_numbers(numbers, arguments, differentiated);
    arguments.push_back(c.in[i]);
    differentiated.push_back(c.is_floating[i]);
  }
  add_numbers(numbers, arguments, differentiated);
  std::vector<Array> want = c.out;
  want.insert(want.end(), c.grad.begin(), c.grad.end());
  const auto expect = [&](const std::vector<Array>& all, const std::string& where) {
    std::vector<Array> got = all;
    if (!c.grad.empty()) {
      const auto first = all.begin() + 1, last = first + static_cast<std::ptrdiff_t>(c.out.size());
      got.assign(first, last);
      for (std::size_t k = 0; k < differentiated.size(); ++k)
        if (differentiated[k]) got.push_back(*(last + static_cast<std::ptrdiff_t>(k)));
    }
    ASSERT_EQ(got.size(), want.size());
    for (std::size_t k = 0; k < want.size(); ++k) {
      ASSERT_EQ(got[k].shape, want[k].shape) << where << ", result " << k;
      const double least = bound_.least < 0 ? oracle::largest(want[k], 0.1) : bound_.least;
      EXPECT_LE(ulps(got[k], want[k], single_ ? 0x1p-23 : 0x1p-52, least), (single_ ? bound_.f32 : bound_.f64))
          << where << (k < c.out.size() ? ", result " : ", gradient ") << (k < c.out.size() ? k : k - c.out.size())
          << differing_values(got[k], want[k]);
    }
  };
  const oracle::Program program = finished(recorded, static_cast<int>(arguments.size()), !c.grad.empty());
  for (const int devices : {1, 2, 3})
    expect(run_on(program, tessera::Mesh({{"data", devices}}), arguments), std::to_string(devices) + " devices");
}

}  // namespace detail

}  // namespace reference
