// The tables of docs/ops.md that are read from the library, and the columns of its other tables that must agree with
// it. tools/ops_page runs this test; with TESSERA_WRITE_PAGES=1 it writes the tables instead of comparing them.
#include <cstdlib>
#include <fstream>
#include <map>
#include <regex>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "../../support/page.hpp"
#include "ops_page.hpp"
#include <gtest/gtest.h>

namespace {

namespace ts = tessera;
using namespace tessera::tests;
using namespace tessera::tests::ops_page;

template <class T, int Rank> using Tensor = ts::ShardedTensor<T, Rank>;
using Vector = Tensor<float, 1>;
using Image = Tensor<float, 4>;
using Index = Tensor<std::int32_t, 1>;
using Indices = Tensor<std::int32_t, 2>;

// ---- Elementwise functions

enum class Takes { all, floats, integers };

/// What a function of the tables "Elementwise" and "Activations" gives.
struct Function {
  Takes takes = Takes::all;
  ts::DType of_i16{};     ///< the element type of its result for i16 operands
  bool gradient = false;  ///< whether f32 operands have one
};
using Functions = std::map<std::string, Function>;

/// Adds a function of one, two or three tensors of one element type.
template <int Operands, Takes Which = Takes::all, class F> void add(Functions& all, const char* name, F) {
  const auto record = []<class X>(std::type_identity<X>) {
    if constexpr (Operands == 1)
      return Recorded::of<F, X>();
    else if constexpr (Operands == 2)
      return Recorded::of<F, X, X>();
    else
      return Recorded::of<F, X, X, X>();
  };
  Function& made = all[name];
  made.takes = Which;
  if constexpr (Which != Takes::floats) made.of_i16 = record(std::type_identity<Tensor<std::int16_t, 2>>{}).type();
  if constexpr (Which != Takes::integers) made.gradient = record(std::type_identity<Tensor<float, 2>>{}).has_gradient();
}

#define ADD_UNARY(name) add<1>(all, #name, [](const auto& x) { return ts::name(x); })
#define ADD_BINARY(name) add<2>(all, #name, [](const auto& x, const auto& y) { return ts::name(x, y); })
#define ADD_INTEGERS(name) \
  add<2, Takes::integers>(all, #name, [](const auto& x, const auto& y) { return ts::name(x, y); })

void add_unary_functions(Functions& all) {
  ADD_UNARY(abs), ADD_UNARY(sign), ADD_UNARY(sqrt), ADD_UNARY(rsqrt), ADD_UNARY(exp), ADD_UNARY(log), ADD_UNARY(tanh);
  ADD_UNARY(sigmoid), ADD_UNARY(logical_not), ADD_UNARY(floor), ADD_UNARY(ceil), ADD_UNARY(trunc), ADD_UNARY(round);
  ADD_UNARY(frac), ADD_UNARY(expm1), ADD_UNARY(log1p), ADD_UNARY(exp2), ADD_UNARY(log2), ADD_UNARY(log10);
  ADD_UNARY(reciprocal), ADD_UNARY(square), ADD_UNARY(erf), ADD_UNARY(erfc), ADD_UNARY(erfinv), ADD_UNARY(lgamma);
  ADD_UNARY(digamma), ADD_UNARY(i0), ADD_UNARY(i1), ADD_UNARY(i0e), ADD_UNARY(i1e), ADD_UNARY(entr), ADD_UNARY(ndtr);
  ADD_UNARY(log_ndtr), ADD_UNARY(ndtri), ADD_UNARY(erfcx), ADD_UNARY(sinc), ADD_UNARY(nan_to_num), ADD_UNARY(signbit);
  ADD_UNARY(sin), ADD_UNARY(cos), ADD_UNARY(tan), ADD_UNARY(deg2rad), ADD_UNARY(rad2deg), ADD_UNARY(asin);
  ADD_UNARY(acos), ADD_UNARY(atan), ADD_UNARY(sinh), ADD_UNARY(cosh), ADD_UNARY(asinh), ADD_UNARY(acosh);
  ADD_UNARY(atanh), ADD_UNARY(isposinf), ADD_UNARY(isneginf), ADD_UNARY(isnan), ADD_UNARY(isinf), ADD_UNARY(isfinite);
  ADD_UNARY(stop_gradient), ADD_UNARY(relu), ADD_UNARY(gelu), ADD_UNARY(silu), ADD_UNARY(leaky_relu), ADD_UNARY(elu);
  ADD_UNARY(celu), ADD_UNARY(selu), ADD_UNARY(softplus), ADD_UNARY(mish), ADD_UNARY(logit), ADD_UNARY(logsigmoid);
  ADD_UNARY(softsign), ADD_UNARY(tanhshrink), ADD_UNARY(relu6), ADD_UNARY(hardsigmoid), ADD_UNARY(hardswish);
  ADD_UNARY(glu), ADD_UNARY(hardtanh);
  add<1>(all, "softshrink", [](const auto& x) { return ts::softshrink(x, 0.5); });
  add<1>(all, "hardshrink", [](const auto& x) { return ts::hardshrink(x, 0.5); });
  add<1>(all, "threshold", [](const auto& x) { return ts::threshold(x, 0.5, 1.5); });
  add<1>(all, "cast", [](const auto& x) { return ts::cast<double>(x); });
  add<1>(all, "frexp", [](const auto& x) { return ts::frexp(x).mantissa; });
  add<1>(all, "polygamma", [](const auto& x) { return ts::polygamma(1, x); });
  add<1>(all, "multigammaln", [](const auto& x) { return ts::multigammaln<2>(x); });
  add<1, Takes::integers>(all, "bitwise_not", [](const auto& x) { return ts::bitwise_not(x); });
}
void add_functions_of_several(Functions& all) {
  ADD_BINARY(pow), ADD_BINARY(float_power), ADD_BINARY(maximum), ADD_BINARY(minimum), ADD_BINARY(less);
  ADD_BINARY(less_equal), ADD_BINARY(greater), ADD_BINARY(greater_equal), ADD_BINARY(equal), ADD_BINARY(not_equal);
  ADD_BINARY(logical_and), ADD_BINARY(logical_or), ADD_BINARY(logical_xor), ADD_BINARY(igamma), ADD_BINARY(igammac);
  ADD_BINARY(betaln), ADD_BINARY(zeta), ADD_BINARY(xlogy), ADD_BINARY(xlog1py), ADD_BINARY(logaddexp);
  ADD_BINARY(logaddexp2), ADD_BINARY(hypot), ADD_BINARY(copysign), ADD_BINARY(heaviside), ADD_BINARY(ldexp);
  ADD_BINARY(atan2), ADD_BINARY(fmod), ADD_BINARY(remainder), ADD_BINARY(floor_divide), ADD_BINARY(fmax);
  ADD_BINARY(fmin), ADD_BINARY(isclose);
  ADD_INTEGERS(gcd), ADD_INTEGERS(lcm), ADD_INTEGERS(bitwise_and), ADD_INTEGERS(bitwise_or), ADD_INTEGERS(bitwise_xor);
  ADD_INTEGERS(bitwise_left_shift), ADD_INTEGERS(bitwise_right_shift);
  add<2, Takes::floats>(all, "nextafter", [](const auto& x, const auto& y) { return ts::nextafter(x, y); });
  add<2>(all, "x + y", [](const auto& x, const auto& y) { return x + y; });
  add<2>(all, "-", [](const auto& x, const auto& y) { return x - y; });
  add<2>(all, "*", [](const auto& x, const auto& y) { return x * y; });
  add<2>(all, "/", [](const auto& x, const auto& y) { return x / y; });
  add<2>(all, "x < y", [](const auto& x, const auto& y) { return x < y; });
  add<2>(all, "<=", [](const auto& x, const auto& y) { return x <= y; });
  add<2>(all, ">", [](const auto& x, const auto& y) { return x > y; });
  add<2>(all, ">=", [](const auto& x, const auto& y) { return x >= y; });
  add<2>(all, "select", [](const auto& x, const auto& y) { return ts::select(x < y, x, y); });
  add<2>(all, "masked_fill", [](const auto& x, const auto& y) { return ts::masked_fill(x, x < y, 1); });
  add<1>(all, "prelu", [](const auto& x) { return ts::prelu(x, ts::select<0>(x, 0)); });
  add<3>(all, "addcmul", [](const auto& x, const auto& a, const auto& b) { return ts::addcmul(x, a, b); });
  add<3>(all, "addcdiv", [](const auto& x, const auto& a, const auto& b) { return ts::addcdiv(x, a, b); });
  add<3>(all, "betainc", [](const auto& a, const auto& b, const auto& x) { return ts::betainc(a, b, x); });
  add<3>(all, "clamp", [](const auto& x, const auto& low, const auto& high) { return ts::clamp(x, low, high); });
  add<3, Takes::floats>(all, "lerp",
                        [](const auto& a, const auto& b, const auto& weight) { return ts::lerp(a, b, weight); });
}
#undef ADD_UNARY
#undef ADD_BINARY
#undef ADD_INTEGERS

// ---- The page

std::vector<std::string> split(const std::string& text, const std::string& separator) {
  std::vector<std::string> parts;
  std::size_t from = 0;
  for (std::size_t at; (at = text.find(separator, from)) != std::string::npos; from = at + separator.size())
    parts.push_back(text.substr(from, at - from));
  parts.push_back(text.substr(from));
  return parts;
}
/// The rows of the table of a section: the texts of its cells.
std::vector<std::vector<std::string>> table_of(const std::string& section) {
  std::vector<std::vector<std::string>> rows;
  bool own = false;
  for (const std::string& line : split(tessera_test::page_text("ops.md"), "\n")) {
    if (line.starts_with("## ")) own = line == "## " + section;
    if (own && line.starts_with("| ")) rows.push_back(split(line.substr(2, line.size() - 4), " | "));
  }
  if (!rows.empty()) rows.erase(rows.begin());  // the names of the columns
  return rows;
}
/// The functions of a first cell: "abs" and "sign" of "`ts::abs(x)`, `sign`"; operators as they are.
std::vector<std::string> functions_of(const std::string& cell) {
  std::vector<std::string> names;
  static const std::regex code("`([^`]*)`"), identifier("^(?:ts::)?([a-z]\\w+)(?:[(<].*)?$");
  for (std::sregex_iterator at(cell.begin(), cell.end(), code), end; at != end; ++at) {
    const std::string text = (*at)[1];
    std::smatch found;
    names.push_back(std::regex_match(text, found, identifier) ? std::string(found[1]) : text);
  }
  return names;
}
/// The part of a cell that is about one of several functions: cells with a part for each separate them by "; ".
std::string part_of(const std::string& cell, std::size_t index, std::size_t count) {
  const std::vector<std::string> parts = split(cell, "; ");
  return parts.size() == count && !parts.back().starts_with("no ") ? parts[index] : cell;
}

/// Whether the column "integers" says of a function what it does.
bool says_types(const std::string& said, const std::string& gives, const Function& f) {
  const auto begins = [&](const char* word) { return said.starts_with(word); };
  if (begins("refused")) return f.takes == Takes::floats;
  if (f.takes == Takes::floats || (said.find("no floats") != std::string::npos) != (f.takes == Takes::integers))
    return false;
  if (begins("T")) return f.of_i16 == ts::DType::f64;  // ts::cast<double>
  const bool gives_bools = f.of_i16 == ts::DType::bool_;
  if (begins("false") || begins("bool") || begins("compared")) return gives_bools;
  if (begins("promoted") && gives.find("bools") != std::string::npos) return gives_bools;
  if (begins("promoted") || begins("same")) return f.of_i16 == ts::DType::i16;
  return begins(std::string(f.of_i16 == ts::DType::f64 ? "double" : ts::name_of(f.of_i16)).c_str());
}

TEST(OpsPage, TablesOfElementwiseFunctionsAgreeWithTheLibrary) {
  Functions all;
  add_unary_functions(all), add_functions_of_several(all);
  std::map<std::string, bool> listed;
  for (const auto& row : table_of("Elementwise")) {
    const std::vector<std::string> names = functions_of(row[0]);
    for (std::size_t i = 0; i < names.size(); ++i) {
      const auto found = all.find(names[i]);
      ASSERT_NE(found, all.end()) << names[i] << " is in docs/ops.md, but not in this test";
      const Function& f = found->second;
      listed[names[i]] = true;
      EXPECT_TRUE(says_types(part_of(row[2], i, names.size()), row[1], f))
          << names[i] << ": integers: " << row[2] << ", but i16 gives " << ts::name_of(f.of_i16);
      const std::string gradient = part_of(row[3], i, names.size());
      // A gradient of 0 may be none, or computed.
      if (gradient != "0") EXPECT_EQ(f.gradient, gradient != "none") << names[i] << ": gradient: " << row[3];
    }
  }
  for (const auto& row : table_of("Activations"))
    for (const std::string& name : functions_of(row[0])) {
      ASSERT_TRUE(all.contains(name)) << name << " is in docs/ops.md, but not in this test";
      listed[name] = true;
      EXPECT_EQ(all[name].of_i16, name == "relu" ? ts::DType::i16 : ts::DType::f32) << name;
      EXPECT_TRUE(all[name].gradient) << name;
    }
  for (const auto& [name, of] : all) EXPECT_TRUE(listed[name]) << name << " is not in docs/ops.md";
}

// ---- Rows

/// Who records an operation, and its rule in an example.
struct Described {
  std::string functions, rule;
};
using Descriptions = std::map<ts::Op, Described>;

template <class Operation> void describe(Descriptions& all, const char* functions) {
  all[ts::ops::op_v<Operation>] = {functions, ""};
}
/// With the rule that the operation has in the program of f.
template <class Operation, class... Args, class F> void describe(Descriptions& all, const char* functions, F) {
  const ts::Op op = ts::ops::op_v<Operation>;
  const Recorded recorded = Recorded::of<F, Args...>();
  const ts::GraphView* const graph = recorded.with(op);
  ASSERT_NE(graph, nullptr) << ts::row_of(op).name << " is not in its example";
  all[op] = {functions, rules::rule_text(*graph, op)};
}

using Matrix = Tensor<float, 2>;
constexpr auto gradient_of_lookup = [](const auto& x, const auto& i) {
  return ts::grad([i](const auto& table) { return ts::sum(ts::embedding(table, i)); })(x);
};
constexpr auto gradient_of_gather = [](const auto& x, const auto& i) {
  return ts::grad([i](const auto& table) { return ts::sum(ts::gather<0>(table, i)); })(x);
};
constexpr auto unfolded = [](const auto& x) { return ts::unfold(x, {.window = {3, 3}}); };
constexpr auto gradient_of_unfold = [](const auto& x) {
  return ts::grad([](const auto& image) { return ts::sum(unfolded(image)); })(x);
};
constexpr auto gradient_of_attention = [](const auto& x) {
  return ts::grad([](const auto& q) { return ts::sum(ts::attention(q, q, q)); })(x);
};
constexpr auto gradient_of_ragged_dot = [](const auto& x, const auto& w, const auto& sizes) {
  return ts::grad([x, sizes](const auto& of) { return ts::sum(ts::ragged_dot(x, of, sizes)); })(w);
};

void describe_reductions_and_moves(Descriptions& all) {
  using namespace ts::ops;
  describe<SumOp, Matrix>(all, "`sum<1>(x)`, means, variances, losses", [](const auto& x) { return ts::sum<1>(x); });
  describe<MaxOp, Matrix>(all, "`max<1>(x)`, `argmax`, `softmax`", [](const auto& x) { return ts::max<1>(x); });
  describe<MinOp, Matrix>(all, "`min<1>(x)`, `argmin`", [](const auto& x) { return ts::min<1>(x); });
  describe<ProdOp, Matrix>(all, "`prod<1>(x)`", [](const auto& x) { return ts::prod<1>(x); });
  describe<CumsumOp, Matrix>(all, "`cumsum<0>(x)`", [](const auto& x) { return ts::cumsum<0>(x); });
  describe<CumprodOp, Matrix>(all, "`cumprod<0>(x)`", [](const auto& x) { return ts::cumprod<0>(x); });
  describe<CummaxOp, Matrix>(all, "`cummax<0>(x)`", [](const auto& x) { return ts::cummax<0>(x); });
  describe<CumminOp, Matrix>(all, "`cummin<0>(x)`", [](const auto& x) { return ts::cummin<0>(x); });
  describe<RearrangeOp, Matrix>(all, "`transpose(x)`, `rearrange`, `split_dim`, `merge_dims`, `reshape`, `unsqueeze`",
                                [](const auto& x) { return ts::transpose<1, 0>(x); });
  describe<SliceOp, Matrix>(all, "`slice<0>(x, 1, 2)`, `split`, `chunk`, `roll`",
                            [](const auto& x) { return ts::slice<0>(x, 1, 2); });
  describe<PadOp, Matrix>(all, "`pad<0>(x, 1, 2)`", [](const auto& x) { return ts::pad<0>(x, 1, 2); });
  describe<ConcatOp, Matrix, Matrix>(all, "`concat<0>(x, y)`, `stack`, `roll`",
                                     [](const auto& x, const auto& y) { return ts::concat<0>(x, y); });
  describe<FlipOp, Matrix>(all, "`flip<0>(x)`, `rot90`", [](const auto& x) { return ts::flip<0>(x); });
  describe<PermuteOp>(all, "`ppermute` of a `shard_map` or a `vmap`, `ring_attention`");
  describe<BroadcastOp, Matrix>(all, "`broadcast_to`, `broadcast_like`, gradients of sums",
                                [](const auto& x) { return ts::broadcast_like(ts::max<0>(x), x); });
}
void describe_lookups_and_products(Descriptions& all) {
  using namespace ts::ops;
  describe<EmbeddingOp, Matrix, Index>(all, "`embedding(x, i)`, `index_select`, `take`, `dynamic_slice`",
                                       [](const auto& x, const auto& i) { return ts::embedding(x, i); });
  describe<IndexAddOp, Matrix, Index>(all, "gradients of `embedding`, `segment_sum`", gradient_of_lookup);
  describe<ArgsortOp, Matrix>(all, "`argsort<0>(x)`, `sort`, `topk`, `median`, `unique`",
                              [](const auto& x) { return ts::argsort<0>(x); });
  describe<GatherOp, Matrix, Indices>(all, "`gather<0>(x, i)`, `sort`, `topk`, `take_along_dim`",
                                      [](const auto& x, const auto& i) { return ts::gather<0>(x, i); });
  describe<ScatterAddOp, Matrix, Indices>(all, "gradients of `gather`, `scatter_add`", gradient_of_gather);
  describe<ScatterOp, Matrix, Indices>(all, "`scatter<0>(x, i, x)`, `scatter_reduce`, `index_copy`, `masked_scatter`",
                                       [](const auto& x, const auto& i) { return ts::scatter<0>(x, i, x); });
  describe<EinsumOp, Matrix, Matrix>(all, "`matmul(x, y)`, `einsum`, convolutions",
                                     [](const auto& x, const auto& y) { return ts::matmul(x, y); });
  describe<RaggedDotOp, Matrix, Tensor<float, 3>, Index>(
      all, "`ragged_dot(x, w, sizes)`",
      [](const auto& x, const auto& w, const auto& sizes) { return ts::ragged_dot(x, w, sizes); });
  describe<RaggedOuterOp, Matrix, Tensor<float, 3>, Index>(all, "gradients of `ragged_dot`", gradient_of_ragged_dot);
  describe<PatchesOp, Image>(all, "`unfold(x, {.window = {3, 3}})`, convolutions, pools, slices with steps", unfolded);
  describe<FoldPatchesOp, Image>(all, "`fold`, transposed convolutions, gradients of windows", gradient_of_unfold);
  describe<AttentionLseOp, Image>(all, "the logarithms of the sums of weights, for gradients of `attention`",
                                  gradient_of_attention);
  describe<AttentionOp, Image>(all, "`attention(x, x, x)`, `causal_attention`, `band_attention`",
                               [](const auto& x) { return ts::attention(x, x, x); });
  describe<AttentionGradOp, Image>(all, "gradients of `attention`", gradient_of_attention);
  describe<CustomCallOp>(all, "`custom_call`, `linalg`, `fft`; factors: the batch dims");
}
void describe_others(Descriptions& all) {
  using namespace ts::ops;
  describe<ArgumentOp>(all, "a tensor of the arguments");
  describe<DimOp>(all, "a `ts::Dim` of the arguments");
  describe<ScalarOp>(all, "a `ts::Scalar` of the arguments");
  describe<ConstantOp>(all, "a number");
  describe<ExtentOp>(all, "`extent`");
  describe<AxisSizeOp>(all, "`axis_size` of a `shard_map`");
  describe<ArangeOp>(all, "`arange`, `axis_index` of a `shard_map`, `linspace`, `eye`");
  describe<IotaOp, Matrix>(all, "`iota<0, float>(x)`, `argmax`, `one_hot`, `tril`",
                           [](const auto& x) { return ts::iota<0, float>(x); });
  describe<RandomOp, Matrix>(all, "`uniform_like(x, key)`, `dropout` and all other draws",
                             [](const auto& x) { return ts::uniform_like(x, 1); });
  describe<ConstraintOp, Matrix>(all, "`with_sharding`, `mark_sharding`", [](const auto& x) {
    return ts::with_sharding(x, {"x", ts::none});
  });
  describe<AlikeOp, Matrix>(all, "`shard_as`, updates of parameters",
                            [](const auto& x) { return ts::shard_as(x, x + 1); });
  describe<RepeatOp>(all, "a call of a `ts::Stack`, `scan`, `map`, `fori_loop`, `cond`, `while_loop`");
  describe<ProjectOp>(all, "a result of a `repeat`, whose gradient rule reads its cotangents");
  describe<VariableOp>(all, "an argument of a function whose gradient is computed");
  describe<StopGradientOp, Matrix>(all, "`stop_gradient`", [](const auto& x) { return ts::stop_gradient(x); });
  describe<NameOp>(all, "`checkpoint_name`");
  describe<CustomGradientOp>(all, "a result of `custom_gradient`, `given_gradient`");
  describe<CustomResultOp>(all, "further results of these");
  describe<BarrierOp>(all, "what a `checkpoint` computes again");
  describe<SumExamplesOp>(all, "`psum` of a `vmap`");
  describe<GatherExamplesOp>(all, "`collective::all_gather` of a `vmap`");
  describe<OwnExampleOp>(all, "`ppermute`, `all_to_all` of a `vmap`");
}

/// Functions of rows that are elementwise, where they have another name than the row.
const std::map<std::string_view, std::string> elementwise_functions = {
    {"add", "`x + y`"},
    {"sub", "`x - y`"},
    {"mul", "`x * y`"},
    {"div", "`x / y`"},
    {"neg", "`-x`"},
    {"and", "`logical_and`"},
    {"random_gamma_grad", "gradients of `gamma`"},
    {"reparametrized_gamma", "`gamma`"},
};

std::string or_none(bool has, const char* what = "yes") { return has ? what : "none"; }

std::string elementwise_table() {
  std::string text = "| operation | operands | element type of the result | gradient |\n|---|---|---|---|\n";
  const auto add = [&]<class... Operation>(ts::ops::OperationList<Operation...>) {
    for (const ts::Op op : {ts::ops::op_v<Operation>...}) {
      const ts::OpRow& row = ts::row_of(op);
      if (row.kind != ts::OpKind::elementwise) continue;
      const auto found = elementwise_functions.find(row.name);
      text += ts::concat_text("| `", row.name, "`", found == elementwise_functions.end() ? "" : ": " + found->second,
                              " | ", static_cast<int>(row.arity), " | ", types_text(row), " | ",
                              or_none(ts::gradient_of(op) != nullptr), " |\n");
    }
  };
  add(ts::ops::Operations{});
  return text;
}
std::string other_rows_table() {
  Descriptions all;
  describe_reductions_and_moves(all), describe_lookups_and_products(all), describe_others(all);
  std::string text =
      "| operation | recorded by | operands | dims, by their factors | gradient | vmap |\n|---|---|---|---|---|---|\n";
  const auto add = [&]<class... Operation>(ts::ops::OperationList<Operation...>) {
    for (const ts::Op op : {ts::ops::op_v<Operation>...}) {
      const ts::OpRow& row = ts::row_of(op);
      if (row.kind == ts::OpKind::elementwise && !all.contains(op)) continue;
      EXPECT_TRUE(all.contains(op)) << row.name << " is not described in this test";
      text += ts::concat_text("| `", row.name, "` | ", all[op].functions, " | ",
                              row.arity == ts::any_arity ? "any number" : std::to_string(static_cast<int>(row.arity)),
                              " | ", all[op].rule.empty() ? "" : "`" + all[op].rule + "`", " | ",
                              or_none(ts::gradient_of(op) != nullptr), " | ",
                              row.kind == ts::OpKind::source     ? ""
                              : ts::batch_rule_of(op) != nullptr ? "at once"
                                                                 : "in a loop",
                              " |\n");
    }
  };
  add(ts::ops::Operations{});
  return text;
}
// ---- Calls

/// The operands beside x, which are whole: indices i, and weights w.
template <class Other> ts::ArgumentInfo whole(const ts::Mesh& mesh);
template <> ts::ArgumentInfo whole<Index>(const ts::Mesh& mesh) { return tensor(mesh, {4}); }
template <> ts::ArgumentInfo whole<Indices>(const ts::Mesh& mesh) { return tensor(mesh, {8, 6}); }
template <> ts::ArgumentInfo whole<Vector>(const ts::Mesh& mesh) { return tensor(mesh, {6}); }
template <> ts::ArgumentInfo whole<Matrix>(const ts::Mesh& mesh) { return tensor(mesh, {6, 4}); }
template <> ts::ArgumentInfo whole<Image>(const ts::Mesh& mesh) { return tensor(mesh, {3, 3, 4, 8}); }

/// The communication of each call, by the name of its function.
using Communication = std::map<std::string, std::string>;

/// A row of the table of calls, for x of f32 with one dim of the shape split at a time, over two devices.
template <class F, class X, class... Other>
std::string call_row(Communication& all, std::string text, const ts::Shape& shape, const std::string& of) {
  const ts::Mesh mesh({{"x", 2}});
  const Recorded recorded = Recorded::of<F, X, Other...>(), simplified = Recorded::of<F, X, Other...>(true);
  std::string result, communication;
  for (int d = 0; d < X::rank; ++d) {
    ts::PartitionSpec spec;
    for (int e = 0; e <= d; ++e) spec.entries.push_back(e == d ? ts::SpecEntry("x") : ts::SpecEntry());
    const std::vector<ts::ArgumentInfo> arguments{tensor(mesh, shape, spec), whole<Other>(mesh)...};
    const std::string kinds = collectives_of(simplified, arguments, mesh, result);
    if (kinds != "none") communication += ts::concat_text(communication.empty() ? "" : "; ", "dim ", d, ": ", kinds);
  }
  if (communication.empty()) communication = "none";
  all[text.substr(0, text.find_first_of("<("))] = communication;
  return ts::concat_text("| `", text, "` | ", result, " | ", of, " | ", communication, " | ",
                         or_none(recorded.has_gradient()), " |\n");
}
enum class Of { all, numbers, floats };
template <Of Types, int Rank, class... Other, class F>
std::string call(Communication& all, const char* text, const ts::Shape& shape, F) {
  std::string of;
  if constexpr (Types != Of::floats) of = ts::name_of(Recorded::of<F, Tensor<std::int16_t, Rank>, Other...>().type());
  if constexpr (Types == Of::all)
    of += ts::concat_text(", ", ts::name_of(Recorded::of<F, Tensor<bool, Rank>, Other...>().type()));
  return call_row<F, Tensor<float, Rank>, Other...>(all, text, shape, of);
}

#define CALL(types, ...) call<Of::types, 2>(found, #__VA_ARGS__, {8, 6}, [](const auto& x) { return __VA_ARGS__; })
#define CALL_VECTOR(types, ...) call<Of::types, 1>(found, #__VA_ARGS__, {8}, [](const auto& x) { return __VA_ARGS__; })
#define CALL_AT(types, Indices_, ...) \
  call<Of::types, 2, Indices_>(found, #__VA_ARGS__, {8, 6}, [](const auto& x, const auto& i) { return __VA_ARGS__; })
#define CALL_WITH(types, Weights, ...) \
  call<Of::types, 2, Weights>(found, #__VA_ARGS__, {8, 6}, [](const auto& x, const auto& w) { return __VA_ARGS__; })
#define CALL_IMAGE(...) \
  call<Of::floats, 4>(found, #__VA_ARGS__, {2, 8, 6, 4}, [](const auto& x) { return __VA_ARGS__; })
#define CALL_IMAGE_WITH(Weights, ...)                             \
  call<Of::floats, 4, Weights>(found, #__VA_ARGS__, {2, 8, 6, 4}, \
                               [](const auto& x, const auto& w) { return __VA_ARGS__; })

std::string reductions(Communication& found) {
  using namespace ts;
  return CALL(all, sum<0>(x)) + CALL(all, mean<0>(x)) + CALL(all, prod<0>(x)) + CALL(numbers, var<0>(x)) +
         CALL(numbers, norm<0>(x)) + CALL(all, max<0>(x)) + CALL(all, argmax<0>(x)) + CALL(all, any<0>(x)) +
         CALL(floats, logsumexp<0>(x)) + CALL(floats, softmax<0>(x)) + CALL(floats, log_softmax<0>(x)) +
         CALL(numbers, nansum<0>(x)) + CALL(numbers, diff<0>(x)) + CALL(numbers, cov(x)) + CALL(all, cumsum<0>(x)) +
         CALL(all, cumprod<0>(x)) + CALL(all, cummax<0>(x)) + CALL(floats, logcumsumexp<0>(x)) + CALL(all, sort<0>(x)) +
         CALL(all, argsort<0>(x)) + CALL(all, topk<0>(x, 2)) + CALL(numbers, median<0>(x)) +
         CALL(numbers, quantile<0>(x, 0.5)) + CALL(numbers, kthvalue<0>(x, 2)) + CALL(numbers, mode<0>(x)) +
         CALL(numbers, histogram(x, 4, 0, 1)) + CALL_VECTOR(numbers, unique(x, 4)) + CALL(numbers, cdist(x, x));
}
std::string moves(Communication& found) {
  using namespace ts;
  return CALL(all, transpose(x)) + CALL(all, split_dim<0>(x, 2)) + CALL(all, merge_dims<0, 1>(x)) +
         CALL(all, reshape(x, {6, 8})) + CALL(all, unsqueeze<0>(x)) + CALL(all, slice<0>(x, 0, 6)) +
         CALL(all, slice<0>(x, 2, 3, 2)) + CALL(all, select<0>(x, 1)) + CALL(all, pad<0>(x, 2, 0)) +
         CALL(all, concat<0>(x, x)) + CALL(all, stack<0>(x, x)) + CALL(all, broadcast_to(unsqueeze<0>(x), {3, 8, 6})) +
         CALL(all, tile<0>(x, 2)) + CALL(all, repeat_interleave<0>(x, 2)) + CALL(all, roll<0>(x, 1)) +
         CALL(all, flip<0>(x)) + CALL(all, rot90(x)) + CALL(all, tril(x)) + CALL(all, diagonal(x)) +
         CALL_VECTOR(all, diag(x)) + CALL(all, unbind<8, 0>(x)) + CALL(all, slice_scatter<0>(x, slice<0>(x, 0, 2), 3)) +
         CALL(all, select_scatter<0>(x, select<0>(x, 0), 3));
}
std::string lookups(Communication& found) {
  using namespace ts;
  return CALL_AT(all, Index, embedding(x, i)) + CALL_AT(all, Index, index_select<0>(x, i)) +
         CALL_AT(all, Indices, gather<0>(x, i)) + CALL_AT(all, Indices, scatter<0>(x, i, x)) +
         CALL_AT(numbers, Indices, scatter_add<0>(x, i, x)) +
         CALL_AT(numbers, Index, index_add<0>(x, i, slice<0>(x, 0, 4))) +
         CALL_AT(all, Index, dynamic_slice<0>(x, sum(i), 2)) + CALL_AT(all, Index, dynamic_index<0>(x, sum(i)));
}
std::string products_and_draws(Communication& found) {
  using namespace ts;
  return CALL_WITH(floats, Matrix, matmul(x, w)) + CALL(numbers, matmul(x, transpose(x))) +
         CALL(numbers, tensordot<1>(x, transpose(x))) + CALL(numbers, inner(x, x)) +
         CALL_WITH(floats, Vector, layer_norm(x, w, w)) + CALL_WITH(floats, Vector, rms_norm(x, w)) +
         CALL_WITH(floats, Vector, batch_norm(x, w, w, 1e-5)) + CALL(floats, mse(x, x)) + CALL(floats, huber(x, x)) +
         CALL(floats, uniform_like(x, 1)) + CALL(floats, dropout(x, 0.5, 1)) + CALL(floats, bernoulli(x, 1)) +
         CALL(floats, categorical(x, 1)) + CALL_VECTOR(all, permutation<0>(x, 1));
}
std::string images(Communication& found) {
  using namespace ts;
  return CALL_IMAGE_WITH(Image, conv2d(x, w, {.same = true})) + CALL_IMAGE_WITH(Image, conv_transpose2d(x, w)) +
         CALL_IMAGE(max_pool2d(x, {.window = {2, 2}})) +
         CALL_IMAGE(avg_pool2d(x, {.window = {3, 3}, .strides = {1, 1}, .padding = {1, 1}})) +
         CALL_IMAGE(adaptive_avg_pool2d(x, {2, 2})) + CALL_IMAGE(interpolate<1>(x, 16)) +
         CALL_IMAGE(pixel_shuffle(x, 2)) + CALL_IMAGE(channel_shuffle(x, 2)) +
         CALL_IMAGE(unfold(x, {.window = {3, 3}})) + CALL_IMAGE(attention(x, x, x)) +
         CALL_IMAGE(causal_attention(x, x, x));
}
#undef CALL
#undef CALL_VECTOR
#undef CALL_AT
#undef CALL_WITH
#undef CALL_IMAGE
#undef CALL_IMAGE_WITH

const std::string first = "<!-- tools/ops_page -->\n", last = "<!-- end -->\n";

std::string tables(Communication& found) {
  std::string text = R"(
### Calls

For each call: its result for x of f32[8,6], or f32[8] or f32[2,8,6,4] of vectors and images; the element types of its result for x of i16
and of bool, if it takes them; the collectives of its plan if one dim of x is split over two devices, and w and i are whole; and whether x,
or an operand that is a floating-point tensor, has a gradient. An all-reduce may be a reduce-scatter if the reader of the result is split.

| call | result | of i16, bool | communication of a split dim | gradient |
|---|---|---|---|---|
)";
  text += reductions(found) + moves(found) + lookups(found) + products_and_draws(found) + images(found);
  text += R"(
### Elementwise rows

Shapes are broadcast, a split dim stays split without communication, and `ts::vmap` runs all examples at once.

)" + elementwise_table() +
          R"(
### Other rows

Dims are letters, as in `einsum`: `ab, bc -> ac  b summed` is a matrix product. If a dim is split whose letter is in the result, the result
is split. A dim that is "summed" gives partial values, which a collective reduces; one that is "moved" stays split by an exchange of rows near
the borders of shards; one that is "whole" is gathered first. Sizes and numbers are left out; 1 is a dim of extent 1.

)" + other_rows_table();
  return std::regex_replace(text, std::regex("\\|  \\|"), "| |") + "\n";
}

TEST(OpsPage, HasTheTablesOfTheLibrary) {
  Communication found;
  const std::string made = tables(found), page = tessera_test::page_text("ops.md");
  const std::size_t from = page.find(first) + first.size(), to = page.find(last, from);
  ASSERT_TRUE(from >= first.size() && to != std::string::npos);
  if (std::getenv("TESSERA_WRITE_PAGES") != nullptr) {
    std::ofstream(tessera_test::detail::page_path("ops.md")) << page.substr(0, from) << made << page.substr(to);
    return;
  }
  EXPECT_EQ(page.substr(from, to - from), made) << "run tools/ops_page and commit docs/ops.md";
}

/// The column "communication" of hand-written tables, where it names none, a halo or a gather.
TEST(OpsPage, CommunicationAgreesWithPlans) {
  Communication found;
  tables(found);
  int checked = 0;
  for (const char* section : {"Moving elements", "Images"})
    for (const auto& row : table_of(section))
      for (const std::string& name : functions_of(row[0])) {
        const auto at = found.find(name);
        if (at == found.end()) continue;
        const auto planned = [&](const char* kind) { return at->second.find(kind) != std::string::npos; };
        ++checked;
        if (row[2] == "none") EXPECT_EQ(at->second, "none") << name;
        if (row[2] == "a halo") EXPECT_TRUE(planned("permute")) << name << ": " << at->second;
        if (row[2].find("is gathered, then") != std::string::npos) EXPECT_TRUE(planned("all_gather")) << name;
      }
  EXPECT_GE(checked, 12);
}

}  // namespace
