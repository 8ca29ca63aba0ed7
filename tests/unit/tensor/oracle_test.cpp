#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "../base/expect_error.hpp"
#include <gtest/gtest.h>

#include <tessera/base/growable.hpp>
#include <tessera/graph/trace/stack.hpp>
#include <tessera/graph/transform/value_and_grad.hpp>
#include <tessera/ops/ops.hpp>
#include <tessera/parallel/local_map.hpp>
#include <tessera/runtime/oracle/oracle_run.hpp>
#include <tessera/tensor/compile.hpp>
#include <tessera/tensor/creation.hpp>
#include <tessera/tensor/host.hpp>
#include <tessera/tensor/oracle.hpp>
#include <tessera/tensor/reshard.hpp>

namespace ts = tessera;
namespace rt = tessera::runtime;

namespace {

// Every dim is uneven on it.
constexpr ts::Mesh mesh({{"data", 3}, {"model", 2}});

struct Block {
  ts::ShardedTensor<float, 2> w;
  constexpr auto operator()(const auto& x) const { return ts::tanh(ts::matmul(x, w)) + x; }
};
struct Net {
  ts::Stack<Block> blocks;
  ts::ShardedTensor<float, 2> out;
  constexpr auto operator()(const auto& x) const { return ts::softmax(ts::matmul(blocks(x), out)); }
};
constexpr auto step = [](const auto& net, const auto& x, const auto& target) {
  auto [loss, gradient] = ts::value_and_grad(
      [](const auto& n, const auto& in, const auto& t) { return ts::mse(n(in), t); })(net, x, target);
  return std::tuple(loss, gradient, net.out - gradient.out * 0.1);
};

ts::ShardedTensor<float, 2> tensor(std::int64_t rows, std::int64_t columns, const ts::PartitionSpec& spec, int seed) {
  std::vector<float> values;
  for (std::int64_t i = 0; i < rows * columns; ++i)
    values.push_back(std::sin(static_cast<float>(seed) + 1.7f * static_cast<float>(i)) / 2);
  return ts::shard(values, {rows, columns}, mesh, spec);
}
Net net() {
  Net made;
  for (int l = 0; l < 2; ++l) made.blocks.layers().push_back({tensor(7, 7, {ts::none, "model"}, l)});
  made.out = tensor(7, 5, {"model"}, 9);
  return made;
}
const auto input = [] { return tensor(8, 7, {"data"}, 3); };
const auto target = [] { return tensor(8, 5, {"data"}, 5); };

struct Program {
  ts::Growable<ts::Leaf> leaves;
  ts::detail::PlanLease executable;
  static Program make() {
    ts::detail::CollectLeaves collect;
    const Net n = net();
    ts::for_each_leaf(n, collect);
    for (const auto& x : {input(), target()}) {
      collect.cursor = collect.leaves.size();
      collect.leaf(x);
    }
    using Traced =
        ts::Traced<std::remove_cvref_t<decltype(step)>, Net, ts::ShardedTensor<float, 2>, ts::ShardedTensor<float, 2>>;
    ts::detail::PlanLease executable = ts::detail::executable_for<Traced>(collect.leaves);
    return {std::move(collect.leaves), std::move(executable)};
  }
  rt::OracleRun run(rt::StepObserver* fault = nullptr) {
    const ts::Growable<ts::Leaf> held = leaves;
    return rt::run_with_oracle(*executable, held, fault);
  }
};

/// Spoils one element of one shard of the n-th value that is made; n counts through all layers.
class Fault final : public rt::StepObserver {
 public:
  int left;
  float to;  ///< NaN, or what is added in units of the largest element
  ts::Shape index;
  ts::DType dtype = ts::DType::f32;
  int device = -2, layer = -1;
  bool hit = false, partial = false;

  Fault(int n, float value) : left(n), to(value) {}
  void ran(const rt::FrameLayout& layout, rt::Frame& frame, const rt::RanSteps& steps) override {
    for (int s = steps.first; s < steps.first + steps.count; ++s)
      for (const std::int32_t v : layout.plan().steps[static_cast<std::size_t>(s)].outputs)
        if (v >= 0 && layout.value(v).role != ts::ValueRole::fused && left-- == 0) spoil(layout, frame, v);
  }

 private:
  void spoil(const rt::FrameLayout& layout, rt::Frame& frame, int v) {
    const rt::ValueLayout& own = layout[v];
    dtype = layout.value(v).dtype;
    if (dtype != ts::DType::f32) return;
    float largest = 0;
    for (int s = 0; s < own.shards(); ++s) {
      const ts::Box& box = own.boxes[static_cast<std::size_t>(s)];
      if (box.empty() || !layout.holds(v, own.grid.coordinates(s % own.grid.count()))) continue;
      rt::walk(ts::extents(box), own.strides[static_cast<std::size_t>(s)], own.strides[static_cast<std::size_t>(s)],
               own.strides[static_cast<std::size_t>(s)], [&](std::int64_t i, std::int64_t, std::int64_t) {
                 largest = std::max(largest, std::fabs(*(frame.at<float>(own, s) + i)));
               });
    }
    for (int s = own.shards(); s-- > 0;) {  // the last element of the last shard that has any
      const ts::Box& box = own.boxes[static_cast<std::size_t>(s)];
      if (box.empty() || !layout.holds(v, own.grid.coordinates(s % own.grid.count()))) continue;
      index = box.end;
      std::int64_t at = 0;
      for (std::size_t d = 0; d < index.size(); ++d) {
        --index[d];
        at += (index[d] - box.begin[d]) * own.strides[static_cast<std::size_t>(s)][d];
      }
      float& value = *(frame.at<float>(own, s) + at);
      value = std::isnan(to) ? to : value + to * std::max(largest, 1e-3f);
      partial = layout.value(v).sharding.unreduced != 0;
      device = partial ? -1 : layout.mesh().device_at(own.grid.coordinates(s % own.grid.count()));
      layer = frame.layer;
      hit = true;
      return;
    }
  }
};

}  // namespace

TEST(oracle, nothing_differs_but_by_rounding) {
  const rt::OracleRun run = Program::make().run();
  EXPECT_GE(run.compared, 30);
  EXPECT_EQ(run.unknown, 0);
  for (const ts::OracleDifference& found : run.differences) ADD_FAILURE() << found.text();
}

// Whatever a step leaves wrong, in whichever layer, is the first thing reported, with its place.
TEST(oracle, every_fault_is_found_where_it_arises) {
  Program program = Program::make();
  int faults = 0;
  for (const float size : {1e-4f, std::numeric_limits<float>::quiet_NaN()})
    for (int n = 0;; ++n) {
      Fault fault(n, size);
      const rt::OracleRun run = program.run(&fault);
      if (fault.left >= 0) break;
      if (!fault.hit) continue;
      ++faults;
      ASSERT_FALSE(run.differences.empty()) << n;
      const ts::OracleDifference& found = run.differences[0];
      EXPECT_EQ(found.first.index, fault.index) << found.text();
      EXPECT_EQ(found.first.device, fault.device) << found.text();
      EXPECT_EQ(found.largest.index, fault.index) << found.text();
      EXPECT_EQ(found.what.find(ts::concat_text("layer ", fault.layer)) != std::string::npos, fault.layer >= 0)
          << found.text();
      EXPECT_GT(found.source.line, 0u) << found.text();
      // What follows starts from the right value; a partial value stays as it is.
      if (!fault.partial) {
        EXPECT_EQ(run.differences.size(), 1u) << found.text() << run.differences.back().text();
      }
    }
  EXPECT_GT(faults, 40);
}

TEST(oracle, what_no_sum_enters_is_compared_to_the_bit) {
  constexpr auto f = [](const auto& x) { return ts::gelu(x) * 3.0; };
  ts::detail::CollectLeaves collect;
  const auto x = input();
  collect.leaf(x);
  const auto executable =
      ts::detail::executable_for<ts::Traced<std::remove_cvref_t<decltype(f)>, ts::ShardedTensor<float, 2>>>(
          collect.leaves);
  Fault fault(0, 1e-7f);
  EXPECT_EQ(rt::run_with_oracle(*executable, collect.leaves, &fault).differences.size(), 1u);
  EXPECT_TRUE(rt::run_with_oracle(*executable, collect.leaves).differences.empty());
}

namespace {

/// A product that is right where it runs alone, as on the one device, and wrong in one element where it is fused.
class WrongWhenFused final : public rt::PreparedStep {
 public:
  static inline const rt::StepFactory* right = nullptr;

  WrongWhenFused(const rt::StepContext& c, const ts::Growable<std::unique_ptr<rt::PreparedGraph>>& graphs)
      : layout_(c.layout), made_(c.next->outputs[0]),
        step_(right[static_cast<std::size_t>(c.units[c.step.unit].kind)](c, graphs)) {}
  std::int64_t scratch_bytes() const override { return step_->scratch_bytes(); }
  void run(rt::Frame& frame) const override {
    step_->run(frame);
    const ts::DType type = layout_.value(made_).dtype;
    if (type == ts::DType::bf16) *frame.at<ts::bf16>(layout_[made_], 0) = ts::bf16(100.0f);
    if (type == ts::DType::f32) *frame.at<float>(layout_[made_], 0) += 100.0f;
  }

 private:
  const rt::FrameLayout& layout_;
  int made_;
  std::unique_ptr<rt::PreparedStep> step_;
};
template <ts::UnitKind Kind>
std::unique_ptr<rt::PreparedStep> wrong_when_fused(const rt::StepContext& c,
                                                   const ts::Growable<std::unique_ptr<rt::PreparedGraph>>& graphs) {
  if (c.next != nullptr) return std::make_unique<WrongWhenFused>(c, graphs);
  return WrongWhenFused::right[static_cast<std::size_t>(Kind)](c, graphs);
}

/// Looks on.
class Onlooker final : public rt::StepObserver {
 public:
  void ran(const rt::FrameLayout&, rt::Frame&, const rt::RanSteps& steps) override { fused += steps.count - 1; }
  int fused = 0;
};

std::string bytes_of(const ts::Growable<ts::Leaf>& results) {
  std::string bytes;
  for (const ts::Leaf& leaf : results)
    for (const ts::StoragePtr& layer : leaf.layers)
      for (int s = 0; s < layer->shard_count(); ++s)
        bytes.append(static_cast<const char*>(layer->data(s)),
                     static_cast<std::size_t>(ts::volume(ts::extents(layer->box(s)))) * ts::size_of(layer->dtype()));
  return bytes;
}

/// What a program's plan fuses is what runs, observed or not; and what is wrong in it is found there.
template <class F, class... Args> void expect_observed(ts::Fusion fusion, F, const Args&... arguments) {
  SCOPED_TRACE(static_cast<int>(fusion));
  using Traced = ts::Traced<F, Args...>;
  ts::Growable<ts::Leaf> leaves;
  ts::detail::CollectLeaves collect;
  std::vector<ts::ArgumentInfo> infos;
  const auto add = [&](const auto& x) {
    collect.cursor = collect.leaves.size();
    collect.leaf(x);
    infos.push_back({ts::shape(x), ts::sharding(x), 0});
  };
  (add(arguments), ...);
  ts::CompiledProgram compiled = ts::detail::ProgramCode<Traced>::compiled();
  const auto plan = [&] {
    return ts::make_plan(compiled.program, compiled.units, mesh, infos.data(), static_cast<int>(infos.size()));
  };
  const ts::Plan made = plan();
  bool has = false;
  for (const ts::PlanStep& own : made.main().steps) has = has || own.fusion == fusion;
  ASSERT_TRUE(has) << "the plan fuses it so";

  rt::Executable right(compiled, plan());
  Onlooker onlooker;
  const std::string bytes = bytes_of(right.run(collect.leaves));
  EXPECT_EQ(bytes_of(right.run(collect.leaves, &onlooker)), bytes);
  EXPECT_GE(onlooker.fused, 1);
  const rt::OracleRun run = rt::run_with_oracle(right, collect.leaves);
  EXPECT_TRUE(run.differences.empty()) << run.differences[0].text();
  EXPECT_EQ(run.unknown, 0);

  WrongWhenFused::right = compiled.steps->factories.data();
  rt::StepCode steps = *compiled.steps;
  steps.factories[static_cast<std::size_t>(ts::UnitKind::contraction)] = &wrong_when_fused<ts::UnitKind::contraction>;
  steps.factories[static_cast<std::size_t>(ts::UnitKind::indexed)] = &wrong_when_fused<ts::UnitKind::indexed>;
  compiled.steps = &steps;
  rt::Executable wrong(compiled, plan());
  const rt::OracleRun found = rt::run_with_oracle(wrong, collect.leaves);
  ASSERT_FALSE(found.differences.empty());
  EXPECT_EQ(found.differences[0].first.index, ts::Shape(found.differences[0].first.index.size(), 0));
}

}  // namespace

TEST(oracle, fused_steps_are_observed_as_they_ship) {
  const auto x = input();  // [8/data, 7]
  const auto w = tensor(7, 5, {}, 2), v = tensor(5, 6, {}, 4);
  expect_observed(
      ts::Fusion::epilogue, [](auto a, auto b, auto c) { return ts::matmul(ts::gelu(ts::matmul(a, b)), c); }, x, w, v);
  expect_observed(
      ts::Fusion::into_result, [](auto a, auto b) { return ts::tanh(ts::matmul(a, b)); }, x, w);
  // Sums of uneven parts: the rows of x, 3, 3 and 2, are the terms.
  expect_observed(
      ts::Fusion::sum, [](auto a, auto b) { return ts::matmul(ts::transpose<1, 0>(a), b); }, x,
      tensor(8, 40, {"data"}, 6));
  const auto half = [](const auto& t) { return ts::eval(ts::cast<ts::bf16>(t)); };
  expect_observed(
      ts::Fusion::rounding, [](auto a, auto b) { return ts::matmul(a, b); }, half(tensor(40, 70, {"data"}, 1)),
      half(tensor(70, 50, {ts::none, "model"}, 2)));
  // One term an element: no kernel multiplies matrices for it, and it is rounded all the same.
  expect_observed(
      ts::Fusion::rounding, [](auto a, auto b) { return ts::matmul(a, b); }, half(tensor(9, 1, {"data"}, 1)),
      half(tensor(1, 5, {}, 2)));
}

// A product that is summed where a result goes, which may be over an argument.
TEST(oracle, fused_steps_run_whether_or_not_an_argument_is_given_up) {
  constexpr auto update = ts::compile([](auto w, auto x, auto g) { return w - ts::matmul(x, g); });
  const auto x = tensor(8, 7, {"data"}, 1), g = tensor(7, 5, {}, 2);
  const auto w = [] { return tensor(8, 5, {"data"}, 3); };
  const auto lent = w();
  const auto want = ts::to_host(update(lent, x, g));
  auto given = w();
  const void* const memory = ts::storage_of(given).data(0);
  const auto over = update(std::move(given), x, g);
  EXPECT_EQ(ts::storage_of(over).data(0), memory) << "in place";
  EXPECT_EQ(ts::to_host(over), want);
  EXPECT_EQ(ts::to_host(lent), ts::to_host(w()));
  ts::OracleScope oracle;
  EXPECT_EQ(ts::to_host(update(w(), x, g)), want);
}

// Row values between passes, partial values, and cumulative sums of split dims: products round by their size.
TEST(oracle, products_are_followed_as_sums_are) {
  constexpr auto program = ts::compile([](const auto& x) {
    const auto near = x * 0.5 + 1.0;
    return ts::value_and_grad([](const auto& v) {
      const auto shares = v / ts::prod<1>(v, ts::keepdims);
      return ts::prod(v) + ts::sum(ts::prod<0>(v)) + ts::mean(shares * ts::cumprod<1>(v));
    })(near);
  });
  for (const ts::PartitionSpec& spec : {ts::PartitionSpec({"data", "model"}), ts::PartitionSpec({"model", "data"})}) {
    ts::OracleScope oracle;  // what differs throws
    const auto [value, gradient] = program(tensor(8, 7, spec, 3));
    EXPECT_TRUE(std::isfinite(ts::to_host(value)[0]));
    EXPECT_GE(oracle.compared(), 5);
  }
}

TEST(oracle, calls_in_a_scope_are_compared_and_may_give_their_arguments_up) {
  constexpr auto program = ts::compile(step);
  auto [loss, gradient, out] = program(net(), input(), target());
  std::string sent;
  {
    ts::CommunicationScope apart;
    program(net(), input(), target());
    sent = apart.text();
  }
  ts::OracleScope oracle;
  ts::CommunicationScope counted;
  auto [loss_again, gradient_again, out_again] = program(net(), input(), target());
  EXPECT_GE(oracle.compared(), 30);
  EXPECT_TRUE(oracle.differences().empty());
  EXPECT_EQ(counted.text(), sent);  // what runs on one device is not counted
  EXPECT_NEAR(ts::to_host(loss)[0], ts::to_host(loss_again)[0], 1e-6);
  const auto a = ts::to_host(out), b = ts::to_host(out_again);
  for (std::size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 1e-6);
}

// A loss, gradients of stacked layers and an updated weight: data-parallel, fully sharded, tensor-parallel, and mixed.
TEST(deterministic, bits_are_those_of_one_device) {
  constexpr auto exact = ts::compile(step, {.deterministic = true});
  struct Layout {
    ts::Mesh mesh;
    ts::PartitionSpec block, out, batch;
  };
  const ts::PartitionSpec none{}, data{"data"};
  const Layout layouts[] = {
      {ts::Mesh({{"data", 1}, {"model", 1}}), none, none, none},
      {ts::Mesh({{"data", 2}, {"model", 1}}), none, none, data},
      {ts::Mesh({{"data", 3}, {"model", 1}}), none, none, data},
      {ts::Mesh({{"data", 8}, {"model", 1}}), data.gathered_on_use(), data.gathered_on_use(), data},
      {ts::Mesh({{"data", 1}, {"model", 3}}), {ts::none, "model"}, {"model"}, none},
      {ts::Mesh({{"data", 2}, {"model", 4}}), {"data", "model"}, {"model", "data"}, data},
  };
  std::vector<std::uint32_t> first;
  for (const Layout& layout : layouts) {
    const auto place = [&](const auto& x, const ts::PartitionSpec& spec) { return ts::reshard(x, layout.mesh, spec); };
    Net placed = net();
    for (Block& block : placed.blocks.layers()) block.w = place(block.w, layout.block);
    placed.out = place(placed.out, layout.out);
    const auto x = place(input(), layout.batch), t = place(target(), layout.batch);
    EXPECT_EQ(exact.plan(placed, x, t).count(ts::all_reduce), 0);
    auto [loss, gradient, out] = exact(placed, x, t);
    std::vector<std::uint32_t> bits;
    const auto add = [&](const auto& result) {
      for (const float value : ts::to_host(result)) bits.push_back(std::bit_cast<std::uint32_t>(value));
    };
    add(loss);
    for (const Block& block : gradient.blocks.layers()) add(block.w);
    add(gradient.out);
    add(out);
    if (first.empty()) first = bits;
    EXPECT_EQ(bits, first) << layout.mesh.text();
  }
}

TEST(oracle, expressions_and_calls_that_are_found_again_are_compared) {
  constexpr auto twice = ts::compile([](auto x, ts::Scalar by) { return x * by; });
  const auto x = input();
  for (std::int64_t round = 1; round <= 3; ++round) {
    ts::OracleScope oracle;
    ts::ShardedTensor<float, 2> y = x + x * 2.0;
    const auto z = twice(x, ts::Scalar(2.0));
    EXPECT_EQ(oracle.compared(), 2);
    EXPECT_EQ(ts::to_host(z)[1], 2 * ts::to_host(x)[1]);
  }
}

namespace {

using Array = ts::LocalArray<float, 2>;
Array columns_summed(const Array& x) {
  auto [made, out] = ts::LocalTensor<float, 2>::allocate({1, x.shape[1]});
  for (std::int64_t j = 0; j < x.shape[1]; ++j) {
    out[j] = 0;
    for (std::int64_t i = 0; i < x.shape[0]; ++i) out[j] += x.data[i * x.shape[1] + j];
  }
  return made;
}
auto placed() { return ts::distribute_tensor(input(), {ts::Shard(0), ts::Shard(1)}); }
template <class F> auto map(F f, const ts::OutPlacements& out) {
  const auto x = placed();
  return ts::local_map(f, out, ts::LocalMapInputs<1>{{x.placements()}}, x);
}

}  // namespace

TEST(oracle, placements_of_local_map_are_not_believed) {
  ts::OracleScope oracle(ts::OracleScope::On::difference_is_kept);
  map(columns_summed, {ts::Partial(), ts::Shard(1)});
  EXPECT_EQ(oracle.compared(), 1);
  EXPECT_TRUE(oracle.differences().empty());
  map(columns_summed, {ts::Replicate(), ts::Shard(1)});  // a part of the sum, taken for all of it
  ASSERT_EQ(oracle.differences().size(), 1u);
  const ts::OracleDifference& found = oracle.differences()[0];
  EXPECT_EQ(found.what, "local_map f32[1,7] (R, S(1))");
  EXPECT_EQ(found.source.line, static_cast<unsigned>(__LINE__ - 4));
  EXPECT_EQ(found.elements, 21);  // three devices along data have a copy each
  EXPECT_EQ(found.first.index, (ts::Shape{0, 0}));
  EXPECT_EQ(found.first.device, 0);
  // Columns of what columns are: another shape than on one device.
  tessera_test::expect_error(
      ts::errc::oracle,
      [] {
        map(columns_summed, {ts::Shard(0), ts::Shard(1)});
      },
      "on a single device the result is f32[1,7]");
}

TEST(oracle, it_can_hold_for_all_threads) {
  const auto wrong = [] { map(columns_summed, {ts::Replicate(), ts::Shard(1)}); };
  wrong();
  ts::set_oracle_mode(true);
  std::thread([&] { tessera_test::expect_error(ts::errc::oracle, wrong, "1,7] (R, S(1))"); }).join();
  ts::set_oracle_mode(false);
  wrong();
}

TEST(oracle, functions_that_depend_on_the_device_differ) {
  int device = 0;
  const auto twice_on_one = [&](const Array& x) {
    auto [made, out] = ts::LocalTensor<float, 2>::allocate(x.shape);
    const float factor = device++ == 3 ? 2.0f : 1.0f;
    for (std::int64_t i = 0; i < ts::volume(x.shape); ++i) out[i] = factor * x.data[i];
    return made;
  };
  ts::OracleScope oracle(ts::OracleScope::On::difference_is_kept);
  map(twice_on_one, {ts::Shard(0), ts::Shard(1)});
  ASSERT_EQ(oracle.differences().size(), 1u);
  EXPECT_EQ(oracle.differences()[0].first.device, 3);
  EXPECT_EQ(oracle.differences()[0].first.index, (ts::Shape{3, 4}));
  EXPECT_EQ(oracle.differences()[0].count, 9);
  int calls = 0;
  map(
      [&](const Array& x) {
        auto [made, out] = ts::LocalTensor<float, 2>::allocate(x.shape);
        for (std::int64_t i = 0; i < ts::volume(x.shape); ++i) out[i] = calls == 5 && i == 1 ? NAN : x.data[i];
        ++calls;
        return made;
      },
      {ts::Shard(0), ts::Shard(1)});
  ASSERT_EQ(oracle.differences().size(), 2u);
  EXPECT_EQ(oracle.differences()[1].first.device, 5);
  EXPECT_TRUE(std::isnan(oracle.differences()[1].first.sharded));
  EXPECT_EQ(oracle.differences()[1].count, 1);
}
