#include "check.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <iomanip>
#include <limits>
#include <map>
#include <optional>
#include <random>
#include <sstream>

#include "../../support/stored.hpp"

#include <tessera/base/growable.hpp>
#include <tessera/partition/plan/explain.hpp>
#include <tessera/partition/plan/make_plan.hpp>
#include <tessera/partition/plan/verify_plan.hpp>
#include <tessera/runtime/executor/verify_moves.hpp>
#include <tessera/runtime/oracle/oracle_run.hpp>
#include <tessera/tensor/creation.hpp>

namespace programs {
namespace {

namespace ts = tessera;
using oracle::Array;
using oracle::difference;
using oracle::draw_philox;
using oracle::largest;
using oracle::load;
using oracle::Rounding;
using oracle::store;
using oracle::with_type;
using Random = std::mt19937;
using Extents = std::map<char, std::int64_t>;

std::int64_t below(Random& random, std::int64_t n) {
  return static_cast<std::int64_t>(random() % static_cast<std::uint32_t>(n));
}

/// A mesh of 1 to 16 devices on up to three axes; sometimes of 64 devices, or without axes.
ts::Mesh random_mesh(Random& random, int least_axes) {
  const char* names[] = {"x", "y", "z"};
  ts::AxisTable axes;
  const auto shape = below(random, 24);
  if (shape == 0) {
    for (int axis = 0; axis < 3; ++axis) axes.push_back({names[axis], 4});
  } else if (shape == 1) {
    for (int axis = 0; axis < 2; ++axis) axes.push_back({names[axis], 8});
  } else {
    const int rank = std::max<int>(least_axes, static_cast<int>(below(random, 4)));
    std::int64_t devices = 1;
    for (int axis = 0; axis < rank; ++axis) {
      const auto size = 1 + below(random, std::min<std::int64_t>(16 / devices, axis == 0 && rank == 1 ? 16 : 4));
      axes.push_back({names[axis], static_cast<int>(size)});
      devices *= size;
    }
  }
  std::vector<std::int32_t> order;
  if (below(random, 4) == 0) {
    for (int device = 0; device < static_cast<int>(ts::Mesh(axes).size()); ++device) order.push_back(device);
    std::shuffle(order.begin(), order.end(), random);
  }
  return ts::Mesh(axes, ts::DeviceOrder(order.data(), order.size()));
}

/// Gives each axis to a random dim or to none; in one of five specs dims are only stored split (gathered_on_use).
ts::PartitionSpec random_spec(Random& random, const ts::Mesh& mesh, int rank) {
  ts::Sharding sharding = ts::replicated(rank);
  std::vector<std::uint8_t> axes;
  for (int axis = 0; axis < mesh.rank(); ++axis) axes.push_back(static_cast<std::uint8_t>(axis));
  std::shuffle(axes.begin(), axes.end(), random);
  for (std::uint8_t axis : axes)
    if (const auto dim = below(random, rank + 1); dim < rank) sharding.dims[dim].push_back(axis);
  const ts::PartitionSpec spec = ts::spec_of(sharding, mesh);
  return below(random, 5) == 0 ? spec.gathered_on_use() : spec;
}

/// The most elements of an argument: the oracle takes a microsecond for an element of each operation.
constexpr std::int64_t most_elements = 1 << 18;

Extents random_extents(Random& random, const Check& check) {
  static constexpr std::int64_t usual[] = {1, 2, 3, 4, 5, 7, 8, 9, 12, 16, 19};
  Extents extents{{'L', 1 + below(random, 5)}};
  const bool empty = check.may_be_empty && below(random, 6) == 0;
  const bool long_row = below(random, 12) == 0;
  for (const Argument& argument : check.arguments)
    for (const char letter : argument.dims) {
      if (extents.contains(letter)) continue;
      std::int64_t extent = usual[below(random, 11)];
      if (empty && below(random, 3) == 0)
        extent = 0;
      else if (long_row && below(random, 4) == 0)
        extent = 16 + below(random, 60);
      extents[letter] = extent;
    }
  for (const Argument& argument : check.arguments) {
    const auto elements = [&] {
      std::int64_t product = 1;
      for (const char letter : argument.dims) product *= extents[letter];
      return product;
    };
    const auto shorter = [&](char a, char b) { return extents[a] < extents[b]; };
    while (elements() > most_elements)
      extents[*std::max_element(argument.dims.begin(), argument.dims.end(), shorter)] /= 2;
  }
  for (const auto& [letter, choices] : check.extents)
    extents[letter] = choices[static_cast<std::size_t>(below(random, static_cast<std::int64_t>(choices.size())))];
  for (const auto& [letter, factors] : check.products) {
    extents[letter] = 1;
    for (const char factor : factors) extents[letter] *= extents.at(factor);
  }
  return extents;
}

/// The maximum or minimum of no elements is the limit of the type, which is finite for integers.
void represent_extremes(ts::DType dtype, Array& value) {
  if (ts::is_floating(dtype)) return;
  with_type(dtype, [&]<class T>() {
    for (double& v : value.data)
      if (std::isinf(v))
        v = static_cast<double>(v > 0 ? std::numeric_limits<T>::max() : std::numeric_limits<T>::lowest());
  });
}

double rounded(ts::DType dtype, double value) {
  if (ts::is_floating(dtype)) return ts::rounded_to(dtype, value);
  if (dtype == ts::DType::bool_) return value > 0;
  return std::floor(value) + 0.0;  // whole numbers have no -0
}

/// Half of the cases have few distinct values, for ties, zeros, and sums without rounding.
Array random_argument(Random& random, const Argument& argument, const Extents& extents, bool coarse) {
  if (argument.is_dim) return Array::number(static_cast<double>(extents.at(argument.dims[0])));
  std::uniform_real_distribution<double> draw(argument.low, argument.high);
  if (argument.is_scalar) return Array::number(draw(random));
  ts::Shape shape;
  if (argument.stacked) shape.push_back(extents.at('L'));
  for (const char letter : argument.dims) shape.push_back(extents.at(letter));
  Array made(shape);
  for (double& value : made.data) {
    if (argument.below != 0) {
      value = static_cast<double>(below(random, extents.at(argument.below)));
      continue;
    }
    value = draw(random);
    if (coarse) value = std::clamp(std::round(value * 4) / 4, argument.low, argument.high);
    value = rounded(argument.dtype, value);
  }
  return made;
}

ts::Leaf store(const ts::Mesh& mesh, const Argument& argument, const ts::PartitionSpec& spec, const Array& value) {
  ts::Leaf leaf;
  leaf.is_number = argument.is_dim || argument.is_scalar;
  if (leaf.is_number) {
    leaf.number = value.data[0];
    return leaf;
  }
  leaf.stacked = argument.stacked;
  ts::Shape shape = value.shape;
  if (argument.stacked) shape.erase(0);
  const std::int64_t layers = argument.stacked ? value.shape[0] : 1;
  for (std::int64_t l = 0; l < layers; ++l)
    leaf.layers.push_back(store(mesh, argument.dtype, spec, shape, value.data.data() + l * ts::volume(shape)));
  return leaf;
}

/// The oracle's results of a program, and earlier results of the program.
class Wanted {
 public:
  Wanted(const ts::CompiledProgram& program, std::vector<Array> operands, const Check& check, std::uint32_t seed)
      : program_(program), operands_(std::move(operands)), check_(check), seed_(seed),
        values_(oracle::run(program.program, operands_, draw_philox)) {
    for (std::size_t k = 0; k < values_.size(); ++k) {
      represent_extremes(output(k).dtype, values_[k]);
      allowed_.push_back(tolerance(k));
    }
  }

  void expect(const std::vector<Array>& got, const std::string& text) {
    ASSERT_EQ(got.size(), values_.size()) << text;
    for (std::size_t k = 0; k < values_.size(); ++k) {
      double& bound = allowed_[k];
      if (!difference(got[k], values_[k], bound).empty()) bound = conditioned(k);
      EXPECT_EQ(difference(got[k], values_[k], bound), "") << "result " << k << "\n" << text;
      if (!before_.empty()) {
        EXPECT_EQ(difference(got[k], before_[k], 2 * bound), "") << "result " << k << " on two meshes\n" << text;
      }
    }
    before_ = got;
  }

 private:
  const ts::CompiledProgram& program_;
  const std::vector<Array> operands_;
  const Check& check_;
  std::uint32_t seed_;
  std::vector<Array> values_, before_;
  std::vector<double> allowed_;
  std::vector<std::vector<Array>> rounded_;

  const ts::Node& output(std::size_t k) const {
    const ts::GraphView& graph = program_.program.main();
    return graph[graph.outputs[k]];
  }
  double tolerance(std::size_t k) const {
    const ts::Node& node = output(k);
    if (node.op == ts::Op::random || !ts::is_floating(node.dtype)) return 0;
    return node.dtype == ts::DType::f64 ? check_.tolerance * 1e-7 : check_.tolerance;
  }

  /// The tolerance for a result in which large values cancel: the effect of rounding in the dense program. It is
  /// bounded, so that a comparison with the opposite outcome excuses nothing.
  double conditioned(std::size_t k) {
    if (tolerance(k) == 0) return 0;
    if (rounded_.empty())
      for (std::uint32_t n = 0; n < 4; ++n)
        rounded_.push_back(oracle::run(program_.program, operands_, draw_philox, Rounding(seed_ + n)));
    double moved = 0;
    for (const std::vector<Array>& rounded : rounded_)
      for (std::size_t i = 0; i < values_[k].data.size(); ++i)
        moved = std::max(moved, std::fabs(rounded[k].data[i] - values_[k].data[i]));
    return std::clamp(8 * moved / largest(values_[k], 0.1), tolerance(k), std::min(1000 * tolerance(k), 0.25));
  }
};

std::vector<Array> random_arguments(Random& random, const Check& check) {
  const Extents extents = random_extents(random, check);
  const bool coarse = below(random, 2) == 0;
  std::vector<Array> made;
  for (const Argument& argument : check.arguments) made.push_back(random_argument(random, argument, extents, coarse));
  return made;
}

/// Arguments on a mesh, and their text. Without specs the shardings are random.
ts::Growable<ts::Leaf> store_all(Random& random, const ts::Mesh& mesh, const Check& check,
                                 const std::vector<Array>& values, const std::vector<ts::PartitionSpec>* specs,
                                 std::string& text) {
  ts::Growable<ts::Leaf> leaves;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const Argument& argument = check.arguments[i];
    const ts::PartitionSpec spec =
        specs != nullptr ? specs->at(i) : random_spec(random, mesh, static_cast<int>(argument.dims.size()));
    leaves.push_back(store(mesh, argument, spec, values[i]));
    text += leaves.back().is_number
                ? ts::concat_text("  ", leaves.back().number.real(), "\n")
                : ts::concat_text("  ", argument.stacked ? "stacked " : "",
                                  ts::shape_text(argument.dtype, values[i].shape), spec.text(), "\n");
  }
  return leaves;
}

/// An expression: first on one device, then on two meshes.
void run_expression(const std::function<Evaluated(const ts::Growable<ts::Leaf>&)>& evaluate, const Check& check,
                    std::uint32_t seed) {
  Random random(seed);
  const std::vector<Array> arguments = random_arguments(random, check);
  std::optional<Wanted> wanted;
  for (int round = 0; round < 3 && !testing::Test::HasFailure(); ++round) {
    const ts::Mesh mesh = round == 0 ? ts::Mesh() : random_mesh(random, check.least_axes);
    std::string text = ts::concat_text("expression, case ", seed, " on ", mesh.text(), "\n");
    try {
      const Evaluated made = evaluate(store_all(random, mesh, check, arguments, nullptr, text));
      if (!wanted) {
        std::vector<Array> operands;
        for (const ts::Leaf& leaf : made.leaves) operands.push_back(load(leaf));
        wanted.emplace(*made.program, std::move(operands), check, seed);
      }
      wanted->expect({load(made.result)}, text);
    } catch (const std::exception& e) {
      ADD_FAILURE() << e.what() << "\n" << text;
    }
  }
}

class Case {
 public:
  Case(const ts::CompiledProgram& program, const Check& check, std::uint32_t seed, const Placed* placed = nullptr)
      : program_(program), check_(check), placed_(placed), seed_(seed), random_(seed) {}

  void run() {
    arguments_ = random_arguments(random_, check_);
    Wanted wanted(program_, arguments_, check_, seed_);
    for (int round = 0; round < 2 && !testing::Test::HasFailure(); ++round) {
      const std::vector<Array> got =
          run_on(placed_ != nullptr ? placed_->mesh : random_mesh(random_, check_.least_axes));
      if (!testing::Test::HasFailure()) wanted.expect(got, text_);
    }
  }

 private:
  const ts::CompiledProgram& program_;
  const Check& check_;
  const Placed* placed_;
  std::uint32_t seed_;
  Random random_;
  std::vector<Array> arguments_;
  std::vector<Array> deterministic_;  // results on the previous mesh
  std::string text_;

  /// Whether the program has branches: repeats of which the plan does not know how many layers run.
  bool branches() const {
    for (int g = 0; g < program_.program.graph_count; ++g)
      for (int id = 0; id < program_.program.graphs[g].size; ++id)
        if (const ts::Node& node = program_.program.graphs[g][id]; node.is_repeat() && ts::Repeat::of(node).limited)
          return true;
    return false;
  }
  /// The collectives that ran are those of the plan; of branches, some of them.
  void expect_ran_as_planned(const ts::CommunicationScope& ran, const ts::Plan& plan) const {
    if (branches()) {
      EXPECT_LE(ran.wire_bytes(), plan.wire_bytes()) << text_;
      return;
    }
    for (int k = 0; k <= static_cast<int>(ts::Collective::slice); ++k) {
      const auto kind = static_cast<ts::Collective>(k);
      EXPECT_EQ(ran.count(kind), plan.count(kind)) << ts::name_of(kind) << "\n" << text_;
      EXPECT_EQ(ran.payload_bytes(kind), plan.payload_bytes(kind)) << ts::name_of(kind) << "\n" << text_;
    }
    EXPECT_EQ(ran.wire_bytes(), plan.wire_bytes()) << text_;
    for (const ts::Axis& axis : plan.mesh.axes())
      EXPECT_EQ(ran.wire_bytes(axis.name.view()), plan.wire_bytes(axis.name.view())) << text_;
  }

  /// Each step moved what it said it would: what verify_moves holds to the plan.
  static std::int64_t moved_by(const ts::runtime::Executable& executable) {
    const ts::Plan& plan = executable.plan();
    std::vector<std::int64_t> times(plan.graphs.size(), 0);
    times[0] = 1;  // bodies stand behind what runs them
    for (std::size_t g = 0; g < plan.graphs.size(); ++g)
      for (const ts::PlanStep& step : plan.graphs[g].steps)
        if (step.kind == ts::StepKind::repeat) times[static_cast<std::size_t>(step.body)] += times[g] * step.layers;
    std::int64_t moved = 0;
    executable.for_each_step([&](const ts::runtime::FrameLayout& layout, const auto&, std::int64_t bytes) {
      for (std::size_t g = 0; g < plan.graphs.size(); ++g)
        if (&layout.plan() == &plan.graphs[g]) moved += times[g] * bytes;
    });
    return moved;
  }

  /// Every stored value equals that on one device, except for rounding.
  void expect_like_one_device(ts::runtime::Executable& executable, const ts::Growable<ts::Leaf>& leaves) const {
    if (ts::spans_processes(executable.plan().mesh)) return;  // oracle mode needs the values of all devices
    const ts::Growable<ts::Leaf> held = leaves;               // a second owner, so that no argument is donated
    const ts::runtime::OracleRun run = ts::runtime::run_with_oracle(executable, held);
    EXPECT_EQ(run.unknown, 0) << text_;
    for (const ts::OracleDifference& found : run.differences) ADD_FAILURE() << found.text() << "\n" << text_;
  }

  /// In deterministic mode results have the same bits on all meshes.
  void expect_same_bits(const ts::Mesh& mesh, const ts::Growable<ts::ArgumentInfo>& infos,
                        const ts::Growable<ts::Leaf>& leaves) {
    ts::PlanOptions options;
    options.deterministic = true;
    ts::Plan plan =
        ts::make_plan(program_.program, program_.units, mesh, infos.data(), static_cast<int>(infos.size()), options);
    ts::verify_plan(plan, program_.program, program_.units);
    EXPECT_EQ(plan.count(ts::all_reduce) + plan.count(ts::reduce_scatter), 0) << text_;
    ts::runtime::Executable executable(program_, std::move(plan));
    const ts::Growable<ts::Leaf> held = leaves;
    std::vector<Array> got;
    for (const ts::Leaf& leaf : executable.run(held)) got.push_back(load(leaf));
    for (std::size_t k = 0; k < got.size() && !deterministic_.empty(); ++k)
      for (std::size_t i = 0; i < got[k].data.size(); ++i)
        ASSERT_EQ(std::bit_cast<std::uint64_t>(got[k].data[i]), std::bit_cast<std::uint64_t>(deterministic_[k].data[i]))
            << "element " << i << " of result " << k << ": " << got[k].data[i] << ", not " << deterministic_[k].data[i]
            << "\n"
            << text_;
    deterministic_ = std::move(got);
  }

  std::vector<Array> run_on(const ts::Mesh& mesh) {
    text_ = ts::concat_text("case ", seed_, " on ", mesh.text(), "\n");
    const ts::Growable<ts::Leaf> leaves =
        store_all(random_, mesh, check_, arguments_, placed_ != nullptr ? &placed_->specs : nullptr, text_);
    // A program may overwrite arguments with one owner; arguments with another owner keep their values.
    const bool held = below(random_, 2) == 0;
    const ts::Growable<ts::Leaf> copies = held ? leaves : ts::Growable<ts::Leaf>{};
    std::vector<Array> got;
    try {
      ts::Mesh found{};
      const ts::Growable<ts::ArgumentInfo> infos = ts::detail::describe(program_, leaves, found);
      ts::Plan plan =
          ts::make_plan(program_.program, program_.units, found, infos.data(), static_cast<int>(infos.size()));
      if (std::getenv("TESSERA_CASE") != nullptr) text_ += ts::explain(plan, program_.program, program_.units);
      ts::verify_plan(plan, program_.program, program_.units);
      ts::runtime::Executable executable(program_, std::move(plan));
      ts::verify_moves(executable);
      if (seed_ % 4 == 0 || std::getenv("TESSERA_CASE") != nullptr) expect_like_one_device(executable, leaves);
      if (seed_ % 4 == 1 || std::getenv("TESSERA_CASE") != nullptr) expect_same_bits(found, infos, leaves);
      {
        ts::CommunicationScope scope;
        for (const ts::Leaf& leaf : executable.run(leaves)) got.push_back(load(leaf));
        expect_ran_as_planned(scope, executable.plan());
        if (branches())
          EXPECT_LE(scope.moved_bytes(), moved_by(executable)) << text_;
        else
          EXPECT_EQ(scope.moved_bytes(), moved_by(executable)) << text_;
      }
      if (held) {
        for (std::size_t i = 0; i < leaves.size(); ++i)
          EXPECT_EQ(difference(load(copies[i]), arguments_[i], 0), "") << "argument " << i << " was written to\n"
                                                                       << text_;
        std::size_t k = 0;
        for (const ts::Leaf& leaf : executable.run(leaves)) {
          EXPECT_EQ(difference(load(leaf), got[k], 0), "") << "result " << k << " of a second run\n" << text_;
          ++k;
        }
      }
    } catch (const std::exception& e) {
      ADD_FAILURE() << e.what() << "\n" << text_;
    }
    return got;
  }
};

}  // namespace

void for_each_case(const Check& check, std::uint32_t seed, const std::function<void(std::uint32_t)>& run) {
  if (const char* one = std::getenv("TESSERA_CASE"))
    return run(static_cast<std::uint32_t>(std::strtoul(one, nullptr, 10)));
  const char* more = std::getenv("TESSERA_CASES");
  const char* from = std::getenv("TESSERA_FIRST_CASE");
  const int cases = more == nullptr ? check.cases : std::atoi(more), first = from == nullptr ? 0 : std::atoi(from);
  for (int i = first; i < first + cases && !testing::Test::HasFailure(); ++i)
    run(seed * 100000 + static_cast<std::uint32_t>(i));
}

void check_program(const tessera::CompiledProgram& program, const Check& check, std::uint32_t seed) {
  for_each_case(check, seed, [&](std::uint32_t own) { Case(program, check, own).run(); });
}

void check_expression(const std::function<Evaluated(const tessera::Growable<tessera::Leaf>&)>& evaluate,
                      const Check& check, std::uint32_t seed) {
  for_each_case(check, seed, [&](std::uint32_t own) { run_expression(evaluate, check, own); });
}

void check_placed(const tessera::CompiledProgram& program, const Check& check, const Placed& placed) {
  Case(program, check, 1, &placed).run();
}

}  // namespace programs
