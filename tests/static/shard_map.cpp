#include <tuple>

#include <tessera/graph/transform/value_and_grad.hpp>
#include <tessera/ops/shard_map/shard_map.hpp>
#include <tessera/ops/vmap/vmap.hpp>
#include <tessera/partition/plan/static_plan.hpp>
#include <tessera/partition/plan/verify_plan.hpp>

// What a function of local shards communicates is what it says, forward and backward, and nothing else.

namespace ts = tessera;
namespace tc = ts::collective;

namespace {

constexpr ts::Mesh mesh({{"data", 2}, {"model", 4}});
constexpr std::int64_t bytes = 8 * 8 * 4;  // of a local [8, 8]

/// The loss of F on x [32, 8], split by "model", and w [8, 8], which every device has; with its gradient.
template <class F> struct Step {
  constexpr auto operator()(auto x, auto w) const {
    return ts::value_and_grad(
        [](const auto& inputs) { return ts::sum(F{}(std::get<0>(inputs), std::get<1>(inputs))); })(std::tuple(x, w));
  }
};
struct Counts {
  int reduces, scatters, gathers, exchanges, permutes;
  std::int64_t wire = -1;  // over "model"
};
template <class F> constexpr bool communicates(F, const Counts& counts) {
  const auto x = ts::abstract<float>({32, 8}, {"model"}), w = ts::abstract<float>({8, 8});
  const ts::Plan plan = [&] {
    if constexpr (requires { typename F::with_gradient; })
      return ts::plan(Step<typename F::with_gradient>{}, mesh, x, w);
    else
      return ts::plan(F{}, mesh, x, w);
  }();
  return plan.count(ts::all_reduce) == counts.reduces && plan.count(ts::reduce_scatter) == counts.scatters &&
         plan.count(ts::all_gather) == counts.gathers && plan.count(ts::all_to_all) == counts.exchanges &&
         plan.count(ts::Collective::permute) == counts.permutes && plan.implicit_count() == 0 &&
         plan.wire_bytes("data") == 0 && (counts.wire < 0 || plan.wire_bytes("model") == counts.wire);
}
template <class F> struct Differentiated {
  using with_gradient = F;
};
template <class F> constexpr Differentiated<F> gradient(F) { return {}; }

// psum, and pvary as its transpose: w is taken as varying, so its gradient is summed.
constexpr auto summed = [](auto x, auto w) {
  return ts::shard_map<"{model}, {} -> {}">([](auto a, auto b) { return ts::psum<"model">(a * b); })(x, w);
};
static_assert(communicates(summed, {1, 0, 0, 0, 0, 2 * bytes * 3 / 4}));
static_assert(communicates(gradient(summed), {2, 0, 0, 0, 0, 2 * 2 * bytes * 3 / 4}));

// all_gather and psum_scatter are each other's transpose.
constexpr auto gathered = [](auto x, auto w) {
  return ts::shard_map<"{model}, {} -> {model}">(
      [](auto a, auto b) { return ts::matmul(a, ts::matmul(b, tc::all_gather<"model", 1>(a * a))); })(x, w);
};
static_assert(communicates(gathered, {0, 0, 1, 0, 0, 4 * bytes * 3 / 4}));
static_assert(communicates(gradient(gathered), {2, 1, 1, 0, 0}));

constexpr auto scattered = [](auto x, auto w) {
  return ts::shard_map<"{model}, {} -> {model}">(
      [](auto a, auto b) { return ts::psum_scatter<"model", 0>(ts::matmul(a, b)); })(x, w);
};
static_assert(communicates(scattered, {0, 1, 0, 0, 0, bytes * 3 / 4}));

// all_to_all and ppermute go back the way they came.
constexpr auto exchanged = [](auto x, auto) {
  return ts::shard_map<"{model} -> {-,model}">([](auto a) { return tc::all_to_all<"model", 1, 0>(a * a); })(x);
};
static_assert(communicates(exchanged, {0, 0, 0, 1, 0, bytes * 3 / 4}));

constexpr auto permuted = [](auto x, auto) {
  return ts::shard_map<"{model} -> {model}">([](auto a) {
    return ts::ppermute<"model">(a, ts::Shift(1)) * ts::ppermute<"model">(a, {{0, 1}, {1, 0}});
  })(x);
};
static_assert(communicates(permuted, {0, 0, 0, 0, 2, 2 * bytes}));
static_assert(communicates(gradient(permuted), {1, 0, 0, 0, 4}));

// A loss that comes out of it: its cotangent is a number, which lies nowhere.
constexpr auto loss = [](auto x, auto) {
  return ts::shard_map<"{model} -> {}">([](auto a) { return ts::pmean<"model">(ts::mean(a * a)); })(x);
};
static_assert(communicates(gradient(loss), {1, 0, 0, 0, 0, 2 * 4 * 3 / 4}));

// Of several axes at once, one collective; values that nobody reduced are not sent.
constexpr auto both = [](auto x, auto) {
  return ts::shard_map<"{(model,data)} -> {}">([](auto a) { return ts::pmean<"data", "model">(ts::exp(a)); })(x);
};
static_assert([] {
  const ts::Plan plan =
      ts::plan(both, mesh, ts::abstract<float>({32, 8}, {{"model", "data"}}), ts::abstract<float>({8}));
  std::int64_t collectives = 0;
  plan.for_each_collective([&](const ts::CollectiveInfo& c, std::int64_t n) { collectives += c.axes == 3 ? n : 100; });
  return collectives == 1 && plan.payload_bytes(ts::all_reduce) == 4 * 8 * 4;
}());

// Structs come in and go out with a spec for each tensor, or one for all; the trace finds what varies.
struct Layer {
  ts::ShardedTensor<float, 2> up, down;
  ts::ShardedTensor<float, 1> bias;
  constexpr auto operator()(const auto& x) const { return ts::matmul(ts::matmul(x, up), down * 0.5); }
};
constexpr auto tensor_parallel = [](auto layer, auto x) {
  return ts::shard_map<"[{-,model}, {model}, {}], {} -> {}">(
      [](auto own, auto in) { return ts::psum<"model">(own(in)) + own.bias; })(layer, x);
};
constexpr auto gathered_weights = [](auto layer, auto x) {
  return ts::shard_map<"{model}, {data} -> {data}, [{-,model}, {model}, {model}]">([](auto own, auto in) {
    Layer whole = own;
    whole.up = tc::all_gather<"model", 0>(ts::local_of(own.up, in));
    whole.down = tc::all_gather<"model", 0>(ts::local_of(own.down, in));
    Layer updated = own;
    updated.up = tc::all_to_all<"model", 1, 0>(ts::local_of(own.up - own.up * 2.0, in));
    return std::tuple(whole(in), updated);
  })(layer, x);
};
template <class F> constexpr ts::Plan plan_of_layer() {
  const auto layer = ts::abstract<Layer>({{{8, 16}, {ts::none, "model"}}, {{16, 8}, {"model"}}, {{8}, {"model"}}});
  return ts::plan(F{}, mesh, layer, ts::abstract<float>({32, 8}, {"data"}));
}
static_assert(plan_of_layer<decltype(tensor_parallel)>().count(ts::all_reduce, "model") == 1);
static_assert(plan_of_layer<decltype(tensor_parallel)>().payload_bytes(ts::all_reduce) == 16 * 8 * 4);
static_assert(plan_of_layer<decltype(tensor_parallel)>().count(ts::all_gather) == 1);  // of the bias, to its spec
static_assert(plan_of_layer<decltype(gathered_weights)>().count(ts::all_gather, "model") == 2);
static_assert(plan_of_layer<decltype(gathered_weights)>().count(ts::all_reduce) == 0);

// A shard_map inside another: over other axes, with the collectives of both.
constexpr auto nested = [](auto x, auto w) {
  return ts::shard_map<"{model}, {} -> {model}">([](auto a, auto b) {
    const auto inner = ts::shard_map<"{-,data}, {data} -> {}">([](auto u, auto v) {
      return ts::psum<"data">(ts::matmul(u, v)) * ts::psum<"model", "data">(ts::sum(u));
    })(a, b);
    return inner + a;
  })(x, w);
};
static_assert([] {
  const ts::Plan plan =
      ts::plan(nested, mesh, ts::abstract<float>({32, 8}, {"model", "data"}), ts::abstract<float>({8, 8}, {"data"}));
  return plan.count(ts::all_reduce) == 2 && plan.payload_bytes(ts::all_reduce) == 8 * 8 * 4 + 4;
}());

// The line of a collective is the line that called it.
constexpr std::uint32_t line = __LINE__ + 4;
constexpr auto with_line = [](auto x, auto w) {
  return ts::shard_map<"{model}, {} -> {}">([](auto a, auto b) {
    const auto product = ts::matmul(a, b);
    return ts::psum<"model">(product);
  })(x, w);
};
static_assert([] {
  const ts::Plan plan = ts::plan(with_line, mesh, ts::abstract<float>({32, 8}, {"model"}), ts::abstract<float>({8, 8}));
  bool found = false;
  plan.for_each_collective([&](const ts::CollectiveInfo& c, std::int64_t) {
    found = c.kind == ts::all_reduce && c.source.line == line && c.why == "partial sum";
  });
  return found;
}());

// A collective of all examples of a vmap is one collective, of as many bytes as those of the examples together, whether
// the vmap is around the shard_map or inside. Examples may be split over another axis.
template <class F> struct Mapped {
  constexpr auto operator()(auto x, auto w) const { return ts::vmap(F{}, ts::in_axes<0, ts::not_mapped>)(x, w); }
};
template <class F> constexpr ts::Plan plan_of_examples(F, const ts::PartitionSpec& spec) {
  return ts::plan(F{}, mesh, ts::abstract<float>({6, 32, 8}, spec), ts::abstract<float>({8, 8}));
}
template <class F> constexpr bool communicates_once(F, const Counts& counts) {
  for (const bool split : {false, true}) {
    const ts::Plan plan = plan_of_examples(
        F{}, split ? ts::PartitionSpec{"data", "model"} : ts::PartitionSpec{ts::none, "model", ts::none});
    const bool same = plan.count(ts::all_reduce) == counts.reduces &&
                      plan.count(ts::reduce_scatter) == counts.scatters &&
                      plan.count(ts::all_gather) == counts.gathers && plan.count(ts::all_to_all) == counts.exchanges &&
                      plan.count(ts::Collective::permute) == counts.permutes && plan.implicit_count() == 0 &&
                      plan.wire_bytes("data") == 0 && plan.wire_bytes("model") * (split ? 2 : 1) == 6 * counts.wire;
    if (!same) return false;
  }
  return true;
}
template <class F> constexpr Mapped<F> each(F) { return {}; }
static_assert(communicates_once(each(summed), {1, 0, 0, 0, 0, 2 * bytes * 3 / 4}));
static_assert(communicates_once(each(gathered), {0, 0, 1, 0, 0, 4 * bytes * 3 / 4}));
static_assert(communicates_once(each(scattered), {0, 1, 0, 0, 0, bytes * 3 / 4}));
static_assert(communicates_once(each(exchanged), {0, 0, 0, 1, 0, bytes * 3 / 4}));
static_assert(communicates_once(each(permuted), {0, 0, 0, 0, 2, 2 * bytes}));

constexpr auto examples_inside = [](auto x, auto w) {
  return ts::shard_map<"{-,model}, {} -> {}">([](auto xs, auto own) {
    return ts::vmap([&](const auto& a) { return ts::psum<"model">(ts::matmul(a, own)); })(xs);
  })(x, w);
};
static_assert(communicates_once(examples_inside, {1, 0, 0, 0, 0, 2 * bytes * 3 / 4}));

}  // namespace
