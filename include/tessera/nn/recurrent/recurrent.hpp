#ifndef TESSERA_NN_RECURRENT_RECURRENT_HPP
#define TESSERA_NN_RECURRENT_RECURRENT_HPP
#include <tessera/base/push_macros.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <tuple>
#include <type_traits>
#include <utility>

#include <tessera/base/here.hpp>
#include <tessera/base/source.hpp>
#include <tessera/graph/trace/function_call.hpp>
#include <tessera/graph/trace/layer_call.hpp>
#include <tessera/graph/trace/require_trace.hpp>
#include <tessera/nn/dropout.hpp>
#include <tessera/nn/recurrent/recurrent_cells.hpp>
#include <tessera/ops/control_flow.hpp>
#include <tessera/ops/data_movement/shape.hpp>
#include <tessera/ops/data_movement/slicing.hpp>
#include <tessera/ops/data_movement/stack.hpp>
#include <tessera/ops/elementwise.hpp>
#include <tessera/ops/indexing/checked_lengths.hpp>
#include <tessera/ops/reduction/reduction.hpp>

namespace tessera::nn {

/// The order in which a recurrent layer visits the steps. With `both`, one cell visits them forward and one in reverse,
/// and the features of their outputs are concatenated.
enum class Direction : std::uint8_t { forward, reverse, both };

/// The initial state of a recurrent layer: zeros.
struct ZeroState {};

/// For sequences of different lengths in one batch: see Recurrent.
template <class Tensor> struct SequenceLengths {
  Tensor lengths;
};
/// `lengths` [batch], integers: the steps of each sequence.
template <TensorOperand Tensor> constexpr auto lengths(const Tensor& lengths) {
  static_assert(Tensor::rank == 1 && std::is_integral_v<typename Tensor::element>,
                "tessera: the lengths of sequences are a vector [batch] of integers");
  return SequenceLengths<Tensor>{lengths};
}

namespace detail {

template <class> struct IsLengths : std::false_type {};
template <class Tensor> struct IsLengths<SequenceLengths<Tensor>> : std::true_type {};
template <class> struct IsLayerDropout : std::false_type {};
template <class Rate, class Key> struct IsLayerDropout<LayerDropout<Rate, Key>> : std::true_type {};
/// What is no other option is the initial state.
template <class T> struct IsState : std::bool_constant<!IsLengths<T>::value && !IsLayerDropout<T>::value> {};

/// The function that makes layers of a cell, for messages.
template <class Cell> constexpr const char* layer_name() {
  if constexpr (requires { Cell::layer_name; })
    return Cell::layer_name;
  else
    return "recurrent layer";
}

/// The xs, whose features are those of the weight of the first cell.
template <class Cell> struct InputsTag {
  static constexpr const char* function = layer_name<Cell>();
  template <class Xs, class Weight> struct result : Xs {
    using Checks = decltype([] {
      static_assert(Xs::rank == 3, "tessera: a recurrent layer takes xs of [time, batch, features]");
    });
  };
  static constexpr Value emit(Value context, Value xs, Value weight) {
    xs = xs.at(context.source);
    build::same_extents(xs, xs.shifted(2, 3), weight, weight.shifted(0, 3), 1, build::ExtentsOf::inputs);
    return xs;
  }
};

/// A tensor of the state, whose cells and batch are those of the layer.
template <class Cell, int Cells> struct InitialStateTag {
  static constexpr const char* function = layer_name<Cell>();
  template <class State, class Xs> struct result : State {
    using Checks = decltype([] {
      static_assert(State::rank == 3,
                    "tessera: a state of a recurrent layer is [cells, batch, hidden], where cells are "
                    "the layers times the directions");
    });
  };
  static constexpr Value emit(Value context, Value state, Value xs) {
    state = state.at(context.source);
    build::require_cells(state, state.shifted(0, 3), Cells);
    build::same_extents(state, state.shifted(1, 3), xs, xs.shifted(1, 3), 1, build::ExtentsOf::batch);
    return state;
  }
};

/// The first option of a kind.
template <template <class> class Is, class None> constexpr None option_of() { return {}; }
template <template <class> class Is, class None, class First, class... More>
constexpr auto option_of(const First& first, const More&... more) {
  if constexpr (Is<First>::value)
    return first;
  else
    return option_of<Is, None>(more...);
}

}  // namespace detail

/// Cells that run over the steps of a sequence, as torch.nn.LSTM, GRU and RNN. Each layer runs over the outputs of the
/// layer before.
///
///     const auto [outputs, last] = lstm(xs);            // xs [time, batch, features]
///     const auto [more, end] = lstm(next_xs, last);     // continued
/// outputs are [time, batch, hidden]; with both directions, twice the hidden features, the forward ones first. The
/// state is h [layers, batch, hidden], for an LSTM std::tuple(h, c). With both directions, the cells of layer l have
/// the positions 2 l (forward) and 2 l + 1 (reverse). The state is that after the last step of each cell, which for a
/// reverse cell is step 0. xs without steps return the initial state. Options follow xs and the state, in any order:
///
///     lstm(xs, ts::nn::lengths(steps))                             // sequences of different lengths, then padding
///     lstm(xs, last, ts::nn::layer_dropout(0.5, key))              // in training; in evaluation without it
/// With lengths, results are those of PyTorch's packed sequences: padding does not change the state, the last state is
/// that at the end of each sequence, a reverse cell begins there, and outputs of padding are 0. Dropout, as `dropout`
/// of torch.nn.LSTM, drops outputs of each layer except the last, with different random numbers in each layer.
/// The products with x of all steps are one product before the loop. The loop is a ts::scan, traced and planned once
/// for each layer and direction. Errors: shape_mismatch; option for a rate outside of [0, 1]; dim_range for a length
/// that is negative or larger than the number of steps. Communication: that of the cell in each step; a split time dim
/// is gathered.
template <class Cell, int Layers = 1, Direction Order = Direction::forward> struct Recurrent {
  static constexpr int directions = Order == Direction::both ? 2 : 1;

  std::array<Cell, static_cast<std::size_t>(Layers* directions)> cells;

  static constexpr std::array field_names{"cells"};
  TESSERA_LAYER_OPERATOR(called)

 private:
  template <class Given, class... Options>
  constexpr auto called(Here at, const Given& given, const Options&... options) const {
    tessera::detail::require_trace(detail::layer_name<Cell>(), "the layer", Source::from(at), *this, given, options...);
    const tessera::detail::LayerCall layer(at, given);
    static_assert((0 + ... + int(detail::IsLengths<Options>::value)) <= 1 &&
                      (0 + ... + int(detail::IsLayerDropout<Options>::value)) <= 1 &&
                      (0 + ... + int(detail::IsState<Options>::value)) <= 1,
                  "tessera: a recurrent layer takes one initial state, one nn::lengths and one nn::layer_dropout");
    const auto steps = detail::option_of<detail::IsLengths, NoLengths>(options...);
    const auto drops = detail::option_of<detail::IsLayerDropout, NoDropout>(options...);
    const auto xs = call<detail::InputsTag<Cell>>(Source::from(at), given, cells[0].ih.weight);
    const auto initial = checked(detail::option_of<detail::IsState, ZeroState>(options...), xs, at);
    if constexpr (std::is_same_v<std::remove_const_t<decltype(steps)>, NoLengths>)
      return run<0>(xs, steps, drops, initial);
    else
      return run<0>(xs, unsqueeze<2>(is_step(xs, steps.lengths)), drops, initial);
  }

  template <class State, class Xs> static constexpr auto checked(const State& state, const Xs& xs, Here at) {
    if constexpr (std::is_same_v<State, ZeroState>)
      return state;
    else
      return each_tensor(state, [&](const auto& all) {
        return call<detail::InitialStateTag<Cell, Layers * directions>>(Source::from(at), all, xs);
      });
  }

  /// Whether each step of each sequence is in front of its end: [time, batch].
  template <class Xs, class Lengths> static constexpr auto is_step(const Xs& xs, const Lengths& lengths) {
    constexpr const char* name = "lengths of a recurrent layer";
    const Here at = Here::current();
    const auto ends = tessera::detail::checked_lengths(lengths, extent<0>(xs, at), name, at);
    const tessera::detail::FunctionCall named(name, xs);
    return less(iota<0, std::int32_t>(sum<2>(xs, at), at), ends, at);
  }

  static_assert(Layers >= 1, "tessera: a recurrent layer has at least 1 layer");

  struct NoLengths {};
  struct NoDropout {};
  static constexpr std::uint32_t first_stream = 0x4c53544d;  // of dropout between layers

  template <int Layer, class Xs, class Steps, class Drops, class State, class... Last>
  constexpr auto run(const Xs& xs, const Steps& steps, const Drops& drops, const State& initial,
                     const Last&... last) const {
    if constexpr (Layer == Layers) {
      return std::tuple(xs, joined(last...));
    } else if constexpr (directions == 1) {
      const auto one = visit<Layer>(xs, steps, initial, Order == Direction::reverse);
      return run<Layer + 1>(dropped<Layer>(std::get<1>(one), drops), steps, drops, initial, last..., std::get<0>(one));
    } else {
      const auto there = visit<2 * Layer>(xs, steps, initial, false),
                 back = visit<2 * Layer + 1>(xs, steps, initial, true);
      return run<Layer + 1>(dropped<Layer>(concat<2>(std::get<1>(there), std::get<1>(back)), drops), steps, drops,
                            initial, last..., std::get<0>(there), std::get<0>(back));
    }
  }
  template <int Layer, class Xs, class Drops> static constexpr auto dropped(const Xs& xs, const Drops& drops) {
    if constexpr (std::is_same_v<Drops, NoDropout> || Layer + 1 == Layers)
      return xs;
    else
      return drops.template drop<first_stream + static_cast<std::uint32_t>(Layer)>(xs);
  }

  /// The last state of one cell, and its outputs of all steps.
  template <int Index, class Xs, class Steps, class State>
  constexpr auto visit(const Xs& xs, const Steps& steps, const State& initial, bool reverse) const {
    const Cell& cell = cells[Index];
    const auto of_xs = cell.ih(xs);  // [T, B, gates, H]
    const auto first = [&] {
      if constexpr (std::is_same_v<State, ZeroState>)
        return Cell::template zero_state<Xs>(of_xs);
      else
        return each_tensor(initial, [](const auto& all) { return squeeze<0>(slice<0>(all, Index, 1)); });
    }();
    if constexpr (std::is_same_v<Steps, NoLengths>) {
      return scan(
          [&](const auto& state, const auto& of_x) {
            const auto next = cell.step(of_x, state);
            return std::tuple(next, Cell::output(next));
          },
          first, of_xs, {.reverse = reverse});
    } else {
      return scan(
          [&](const auto& state, const auto& step) {
            const auto& [of_x, inside] = step;
            const auto next = cell.step(of_x, state);
            const auto& output = Cell::output(next);
            return std::tuple(unless_padding(inside, next, state), select(inside, output, zeros_like(output)));
          },
          first, std::tuple(of_xs, steps), {.reverse = reverse});
    }
  }
  template <class Inside, class State>
  static constexpr auto unless_padding(const Inside& inside, const auto& next, const State& state) {
    if constexpr (TensorOperand<State>)
      return select(inside, next, state);
    else
      return [&]<std::size_t... I>(std::index_sequence<I...>) {
        return std::tuple(select(inside, std::get<I>(next), std::get<I>(state))...);
      }(std::make_index_sequence<std::tuple_size_v<State>>());
  }

  /// f of a tensor, or of each tensor of a tuple.
  template <class State, class F> static constexpr auto each_tensor(const State& state, const F& f) {
    if constexpr (TensorOperand<State>)
      return f(state);
    else
      return std::apply([&](const auto&... tensors) { return std::tuple(f(tensors)...); }, state);
  }
  template <std::size_t I, class... States> static constexpr auto joined_at(const States&... states) {
    return joined(std::get<I>(states)...);
  }
  /// The states of all cells along a new first dim.
  template <class State, class... More> static constexpr auto joined(const State& state, const More&... more) {
    if constexpr (TensorOperand<State>) {
      if constexpr (sizeof...(More) == 0)
        return unsqueeze<0>(state);
      else
        return concat<0>(unsqueeze<0>(state), unsqueeze<0>(more)...);
    } else {
      return [&]<std::size_t... I>(std::index_sequence<I...>) {
        return std::tuple(joined_at<I>(state, more...)...);
      }(std::make_index_sequence<std::tuple_size_v<State>>());
    }
  }
};

template <Element T = float, int Layers = 1, Direction Order = Direction::forward, bool Bias = true>
using Lstm = Recurrent<LstmCell<T, Bias>, Layers, Order>;
template <Element T = float, int Layers = 1, Direction Order = Direction::forward, bool Bias = true>
using Gru = Recurrent<GruCell<T, Bias>, Layers, Order>;
template <Element T = float, int Layers = 1, Direction Order = Direction::forward, bool Bias = true,
          RnnFunction Function = RnnFunction::tanh>
using Rnn = Recurrent<RnnCell<T, Bias, Function>, Layers, Order>;

namespace detail {

template <class Layer, class Make> Layer recurrent(Key key, Extent in, Extent hidden, const Make& make) {
  Layer layer;
  for (std::size_t i = 0; i < layer.cells.size(); ++i) {
    const bool first = i < static_cast<std::size_t>(Layer::directions);
    layer.cells[i] = make(fold_in(key, i), first ? in : Extent(hidden.value * Layer::directions));
  }
  return layer;
}

}  // namespace detail

/// Layers of cells, initialised and sharded as lstm_cell, gru_cell and rnn_cell:
///
///     auto lstm = ts::nn::lstm<float, 2, ts::nn::Direction::both>(key, 64, 128, strategy);
template <Element T = float, int Layers = 1, Direction Order = Direction::forward, bool Bias = true>
Lstm<T, Layers, Order, Bias> lstm(Key key, Extent in, Extent hidden, const ShardingStrategy& strategy) {
  return detail::recurrent<Lstm<T, Layers, Order, Bias>>(
      key, in, hidden, [&](Key own, Extent from) { return lstm_cell<T, Bias>(own, from, hidden, strategy); });
}
template <Element T = float, int Layers = 1, Direction Order = Direction::forward, bool Bias = true>
Gru<T, Layers, Order, Bias> gru(Key key, Extent in, Extent hidden, const ShardingStrategy& strategy) {
  return detail::recurrent<Gru<T, Layers, Order, Bias>>(
      key, in, hidden, [&](Key own, Extent from) { return gru_cell<T, Bias>(own, from, hidden, strategy); });
}
template <Element T = float, int Layers = 1, Direction Order = Direction::forward, bool Bias = true,
          RnnFunction Function = RnnFunction::tanh>
Rnn<T, Layers, Order, Bias, Function> rnn(Key key, Extent in, Extent hidden, const ShardingStrategy& strategy) {
  return detail::recurrent<Rnn<T, Layers, Order, Bias, Function>>(
      key, in, hidden, [&](Key own, Extent from) { return rnn_cell<T, Bias, Function>(own, from, hidden, strategy); });
}

}  // namespace tessera::nn

#include <tessera/base/pop_macros.hpp>

#endif
