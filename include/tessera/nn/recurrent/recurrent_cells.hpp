#ifndef TESSERA_NN_RECURRENT_RECURRENT_CELLS_HPP
#define TESSERA_NN_RECURRENT_RECURRENT_CELLS_HPP
#include <tessera/base/push_macros.hpp>

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <tuple>
#include <type_traits>

#include <tessera/base/dtype.hpp>
#include <tessera/base/here.hpp>
#include <tessera/base/source.hpp>
#include <tessera/graph/trace/layer_call.hpp>
#include <tessera/graph/trace/sharded_tensor.hpp>
#include <tessera/nn/linear.hpp>
#include <tessera/nn/mixed.hpp>
#include <tessera/nn/sharding_strategy.hpp>
#include <tessera/ops/contraction/einsum.hpp>
#include <tessera/ops/data_movement/stack.hpp>
#include <tessera/ops/elementwise.hpp>
#include <tessera/ops/reduction/reduction.hpp>
#include <tessera/tensor/creation.hpp>
#include <tessera/tensor/random.hpp>

namespace tessera::nn {

/// The inputs of all gates of a recurrent cell: x W + b, for x [batch, in] or [time, batch, in].
/// The gates are a separate dim, [..., gates, hidden], so a mesh axis that splits the hidden features splits each gate
/// in the same way, and separating the gates needs no communication. With f32 parameters an x of bf16 or f16 is
/// multiplied by the weight rounded to its type, and the result is f32. Errors and communication: as Linear.
template <Element T = float, bool Bias = true> struct Gates {
  ShardedTensor<T, 3> weight;  ///< [in, gates, hidden]
  ShardedTensor<T, 2> bias;    ///< [gates, hidden]

  static constexpr std::array field_names{"weight", "bias"};
  template <class X> constexpr auto operator()(const X& x, Here at = Here::current()) const {
    return call<AddTag>(Source::from(at), Gates<T, false>{weight}(x, at), bias);
  }
};

template <Element T> struct Gates<T, false> {
  ShardedTensor<T, 3> weight;

  static constexpr std::array field_names{"weight"};
  template <class X> constexpr auto operator()(const X& x, Here at = Here::current()) const {
    constexpr bool has_batch = X::rank == 2 || X::rank == 3;
    static_assert(has_batch, "tessera: a recurrent cell takes x of [batch, features]; a recurrent layer of [time, "
                             "batch, features]");
    constexpr FixedString text = [] {
      if constexpr (X::rank == 3)
        return FixedString("tbi,igh->tbgh");
      else
        return FixedString("bi,igh->bgh");
    }();
    if constexpr (detail::is_mixed_v<X, T>)
      return einsum<text, float>(x, detail::as_met_by<X>(weight, at), at);
    else
      return einsum<text>(x, weight, at);
  }
};

namespace detail {

/// Zeros with the extents [batch, hidden] of one gate. The sum is not computed: only its shape is used.
template <Element T> constexpr auto zeros_of_a_gate(const auto& gates) {
  using G = std::remove_cvref_t<decltype(gates)>;
  if constexpr (G::rank == 4)
    return cast<T>(zeros_like(sum<0, 2>(gates)));
  else
    return cast<T>(zeros_like(sum<1>(gates)));
}

}  // namespace detail

/// The function of a RnnCell.
enum class RnnFunction : std::uint8_t { tanh, relu };

/// A cell that computes its next state from the gates of x and of h, by the rule of the network: LstmCell, GruCell or
/// RnnCell. cell(x, state) returns the next state; cell(x) starts from zeros. x is [batch, in].
template <Element T, bool Bias, class Rule> struct RecurrentCell {
  Gates<T, Bias> ih;  ///< of x: [in, gates, hidden]
  Gates<T, Bias> hh;  ///< of h: [hidden, gates, hidden]

  static constexpr std::array field_names{"ih", "hh"};
  static constexpr const char* layer_name = Rule::layer_name;
  template <class X, class State>
  constexpr auto operator()(const X& x, const State& state, Here at = Here::current()) const {
    const tessera::detail::LayerCall call(at, x);
    return step(ih(x), state);
  }
  template <class X> constexpr auto operator()(const X& x, Here at = Here::current()) const {
    const tessera::detail::LayerCall call(at, x);
    const auto gates = ih(x);
    return step(gates, zero_state<X>(gates));
  }

  /// The next state, from the gates' inputs of x.
  template <class State> constexpr auto step(const auto& of_x, const State& state) const {
    return Rule::next(of_x, hh, state);
  }
  template <class X> static constexpr auto zero_state(const auto& gates) { return Rule::template zeros<X>(gates); }
  static constexpr const auto& output(const auto& state) { return Rule::output(state); }
};

namespace detail {

/// A state that is only h.
struct HiddenState {
  template <class X> static constexpr auto zeros(const auto& gates) {
    return zeros_of_a_gate<typename X::element>(gates);
  }
  static constexpr const auto& output(const auto& state) { return state; }
};

struct LstmRule {
  static constexpr const char* layer_name = "lstm";
  static constexpr int gate_count = 4;
  template <class H, class C>
  static constexpr auto next(const auto& of_x, const auto& hh, const std::tuple<H, C>& state) {
    const auto sum = of_x + hh(std::get<0>(state));  // [B, 4, H]
    const auto [i, f, g, o] = unbind<4, -2>(sum);
    const auto c = sigmoid(f) * std::get<1>(state) + sigmoid(i) * tanh(g);
    return std::tuple(cast<typename H::element>(sigmoid(o) * tanh(c)), c);
  }
  template <class X> static constexpr auto zeros(const auto& gates) {
    using G = std::remove_cvref_t<decltype(gates)>;
    return std::tuple(zeros_of_a_gate<typename X::element>(gates), zeros_of_a_gate<typename G::element>(gates));
  }
  static constexpr const auto& output(const auto& state) { return std::get<0>(state); }
};

struct GruRule : HiddenState {
  static constexpr const char* layer_name = "gru";
  static constexpr int gate_count = 3;
  template <class G, class H> static constexpr auto next(const G& of_x, const auto& hh, const H& h) {
    const auto of_h = hh(h);  // [B, 3, H]
    const auto [xr, xz, xn] = unbind<3, -2>(of_x);
    const auto [hr, hz, hn] = unbind<3, -2>(of_h);
    const auto n = tanh(xn + sigmoid(xr + hr) * hn);
    return cast<typename H::element>(n + sigmoid(xz + hz) * (cast<typename G::element>(h) - n));
  }
};

template <RnnFunction Function> struct RnnRule : HiddenState {
  static constexpr const char* layer_name = "rnn";
  static constexpr int gate_count = 1;
  template <class H> static constexpr auto next(const auto& of_x, const auto& hh, const H& h) {
    const auto [sum] = unbind<1, -2>(of_x + hh(h));  // [B, H]
    if constexpr (Function == RnnFunction::relu)
      return cast<typename H::element>(relu(sum));
    else
      return cast<typename H::element>(tanh(sum));
  }
};

}  // namespace detail

/// One step of a long short-term memory, as torch.nn.LSTMCell:
///
///     (i, f, g, o) = x W + b + h U + d
///     c' = sigmoid(f) c + sigmoid(i) tanh(g),  h' = sigmoid(o) tanh(c')
/// cell(x, std::tuple(h, c)) returns the state std::tuple(h', c'); cell(x) starts from zeros. x is [batch, in], h and c
/// are [batch, hidden]. PyTorch's parameters: `weight_ih[g * hidden + j][i]` is `ih.weight[i][g][j]`, and its biases
/// are `ih.bias` and `hh.bias`. With f32 parameters and an x of bf16 or f16, h has its type and the gates and c are
/// f32. Errors: shape_mismatch. Communication: with the hidden features sharded, an all_gather of h, or an all_reduce
/// of the gates. Source: Hochreiter, Schmidhuber, Neural Computation 9 (1997); with the forget gate of Gers et al.
/// 2000.
template <Element T = float, bool Bias = true> using LstmCell = RecurrentCell<T, Bias, detail::LstmRule>;

/// One step of a gated recurrent unit, as torch.nn.GRUCell, with r, z, n the gates of x and of h in this order:
///
///     r = sigmoid(x W_r + b_r + h U_r + d_r),  z = sigmoid(x W_z + b_z + h U_z + d_z)
///     n = tanh(x W_n + b_n + r (h U_n + d_n)),  h' = (1 - z) n + z h
/// cell(x, h) returns h'; cell(x) starts from zeros. Otherwise as LstmCell. Source: Cho et al., 1406.1078, with r
/// multiplied after the product, as in cuDNN.
template <Element T = float, bool Bias = true> using GruCell = RecurrentCell<T, Bias, detail::GruRule>;

/// One step of an Elman network, as torch.nn.RNNCell: h' = tanh(x W + b + h U + d), or relu of it. cell(x, h) returns
/// h'; cell(x) starts from zeros. Otherwise as LstmCell. Source: Elman, Cognitive Science 14 (1990).
template <Element T = float, bool Bias = true, RnnFunction Function = RnnFunction::tanh>
using RnnCell = RecurrentCell<T, Bias, detail::RnnRule<Function>>;

namespace detail {

/// Uniform in [-1 / sqrt(hidden), 1 / sqrt(hidden)), biases too, as PyTorch's recurrent layers.
template <Element T, bool Bias>
Gates<T, Bias> gates(Key key, Extent in, int count, Extent hidden, const ShardingStrategy& strategy) {
  const auto entry = [](const PartitionSpec& spec, std::size_t d) {
    return d < spec.entries.size() ? spec.entries[d] : SpecEntry{};
  };
  const PartitionSpec& columns = strategy.column_weight;  // [in, out]
  const PartitionSpec of_weight{entry(columns, 0), none, entry(columns, 1)};
  const PartitionSpec of_bias{none, entry(strategy.column_bias, 0)};
  const auto limit = static_cast<computed_t<T>>(1 / std::sqrt(static_cast<double>(hidden.value)));
  const auto [first, second] = split<2>(key);
  auto weight = uniform<T>(first, {in, Extent(count), hidden}, strategy.mesh, of_weight, -limit, limit);
  if constexpr (Bias)
    return {weight, uniform<T>(second, {Extent(count), hidden}, strategy.mesh, of_bias, -limit, limit)};
  else
    return {weight};
}

template <Element T, bool Bias, class Rule>
RecurrentCell<T, Bias, Rule> recurrent_cell(Key key, Extent in, Extent hidden, const ShardingStrategy& strategy) {
  const auto [first, second] = split<2>(key);
  return {gates<T, Bias>(first, in, Rule::gate_count, hidden, strategy),
          gates<T, Bias>(second, hidden, Rule::gate_count, hidden, strategy)};
}

}  // namespace detail

/// Cells with PyTorch's initialisation: all parameters are uniform in [-1 / sqrt(hidden), 1 / sqrt(hidden)). Weights
/// are sharded like column weights, with the hidden features in the place of the columns.
template <Element T = float, bool Bias = true>
LstmCell<T, Bias> lstm_cell(Key key, Extent in, Extent hidden, const ShardingStrategy& strategy) {
  return detail::recurrent_cell<T, Bias, detail::LstmRule>(key, in, hidden, strategy);
}
template <Element T = float, bool Bias = true>
GruCell<T, Bias> gru_cell(Key key, Extent in, Extent hidden, const ShardingStrategy& strategy) {
  return detail::recurrent_cell<T, Bias, detail::GruRule>(key, in, hidden, strategy);
}
template <Element T = float, bool Bias = true, RnnFunction Function = RnnFunction::tanh>
RnnCell<T, Bias, Function> rnn_cell(Key key, Extent in, Extent hidden, const ShardingStrategy& strategy) {
  return detail::recurrent_cell<T, Bias, detail::RnnRule<Function>>(key, in, hidden, strategy);
}

}  // namespace tessera::nn

#include <tessera/base/pop_macros.hpp>

#endif
