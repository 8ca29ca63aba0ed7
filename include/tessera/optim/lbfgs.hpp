#ifndef TESSERA_OPTIM_LBFGS_HPP
#define TESSERA_OPTIM_LBFGS_HPP
#include <tessera/base/push_macros.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <tuple>
#include <utility>

#include <tessera/base/error.hpp>
#include <tessera/base/growable.hpp>
#include <tessera/base/here.hpp>
#include <tessera/base/source.hpp>
#include <tessera/graph/ir/value.hpp>
#include <tessera/graph/trace/body.hpp>
#include <tessera/graph/trace/settle.hpp>
#include <tessera/graph/trace/sharded_tensor.hpp>
#include <tessera/ops/constraint.hpp>
#include <tessera/ops/data_movement/slicing.hpp>
#include <tessera/ops/elementwise.hpp>
#include <tessera/ops/reduction/reduce.hpp>
#include <tessera/optim/gradients/clip.hpp>
#include <tessera/optim/optimizer.hpp>
#include <tessera/optim/optimizer_call.hpp>
#include <tessera/optim/tree_map.hpp>
#include <tessera/optim/update.hpp>

namespace tessera {

namespace optim {

namespace detail {

// A tuple, since g++ 12 does not copy a std::array of models with a Stack in constant expressions.
template <class Model, class Indices> struct CopiesOf;
template <class Model, std::size_t... I> struct CopiesOf<Model, std::index_sequence<I...>> {
  template <std::size_t> using one = Model;
  using type = std::tuple<one<I>...>;
};

}  // namespace detail

/// Several models of one type.
template <class Model, int Count>
using models_t = typename detail::CopiesOf<Model, std::make_index_sequence<static_cast<std::size_t>(Count)>>::type;

/// Hyper-parameters of L-BFGS. They are Scalars, so a new learning rate needs no new plan.
struct Lbfgs {
  Scalar learning_rate = 1.0;
  Scalar tolerance = 1e-9;  ///< no step along a direction in which the loss falls by less than this
};

/// The last gradient, the last step, and for each of the last `History` steps the step and the change of the gradient,
/// the latest first: 2 History + 2 models, sharded like the parameters. Initially all are zeros.
template <class Model, int History = 10> struct LbfgsState {
  Model gradient, moved;
  models_t<Model, History> moves, changes;
  Scalar step = 0;

  static constexpr std::array field_names{"gradient", "moved", "moves", "changes", "step"};
};

}  // namespace optim

namespace optim::detail {

/// Tensors of a model as one vector. Sums are rank-0 values that all devices have.
struct Vectors {
  Source source;

  constexpr Value dot(const Growable<Value>& a, const Growable<Value>& b) const {
    const DType wide = summed_as(a);
    Value total{};
    for (std::size_t i = 0; i < a.size(); ++i) {
      const Value x = a[i].at(source), y = b[i].at(source);
      const DType type = computed_as(x.dtype());
      const Value products = build::cast(x, type) * build::cast(y, type);
      const Value own = build::cast(build::sum_of(products, (1u << x.rank()) - 1), wide);
      total = total.module == nullptr ? own : total + own;
    }
    return reduced(total);
  }
  constexpr Value sum_of_sizes(const Growable<Value>& a) const {
    const DType wide = summed_as(a);
    Value total{};
    for (const Value& value : a) {
      const Value size = build::apply<ops::AbsOp>(value.at(source));
      const Value own = build::cast(build::sum_of(size, (1u << size.rank()) - 1), wide);
      total = total.module == nullptr ? own : total + own;
    }
    return reduced(total);
  }
  /// A vector of f(x, y) for corresponding tensors x of a and y of b.
  template <class F>
  constexpr Growable<Value> map(const F& f, const Growable<Value>& a, const Growable<Value>& b) const {
    Growable<Value> made;
    for (std::size_t i = 0; i < a.size(); ++i) made.push_back(f(a[i].at(source), b[i]));
    return made;
  }
  /// a + factor b.
  constexpr Growable<Value> plus(const Growable<Value>& a, const Value& factor, const Growable<Value>& b) const {
    return map([&](Value x, Value y) { return x + build::cast(factor, x.dtype()) * y; }, a, b);
  }
  constexpr Growable<Value> times(const Value& factor, const Growable<Value>& a) const {
    return map([&](Value x, Value) { return build::cast(factor, x.dtype()) * x; }, a, a);
  }
  constexpr Growable<Value> select(const Value& condition, const Growable<Value>& a, const Growable<Value>& b) const {
    return map([&](Value x, Value y) { return build::select(condition, x, y); }, a, b);
  }
};
/// The tensors of each of several models.
template <class... Models>
constexpr std::array<Growable<Value>, sizeof...(Models)> parameters_of_each(const std::tuple<Models...>& models) {
  return std::apply(
      [](const auto&... own) { return std::array<Growable<Value>, sizeof...(own)>{parameters_of(own)...}; }, models);
}
/// a / b, and `other` where b is 0.
constexpr Value quotient(const Value& a, const Value& b, double other) {
  const Value none = build::equal(b, b.number(0));
  return build::select(none, a.number(other), a / build::select(none, b.number(1), b));
}

/// A loop over the steps of the history, from the latest or from the oldest on, that carries d.
class HistoryLoop {
 public:
  constexpr HistoryLoop(const Growable<Value>& d, const Growable<Value>& stacked, bool from_oldest)
      : body_(*d[0].module, {.reverse = from_oldest, .scan = true}) {
    for (const Value& tensor : d) carried.push_back(body_.carry(tensor, Storage::block));
    for (const Value& tensor : stacked) slices.push_back(body_.slice(tensor, Storage::block));
  }
  /// Ends the loop, whose step makes `next` of d, and `more`: returns the last d, and `more` of all steps.
  constexpr Growable<Value> end(const Value& context, const Growable<Value>& next, const Growable<Value>& more) {
    for (const Value& tensor : next) body_.give_carry(tensor);
    Growable<Node> types;
    for (const Value& value : more) {
      body_.give(value);
      types.push_back(build::stacked_type(value.node()));
    }
    const Value made = body_.close(context, context.source);
    Growable<Value> results;
    int output = 0;
    for (; output < static_cast<int>(next.size()); ++output)
      results.push_back(build::project(made, output, body_.carried_type(output), Storage::block));
    for (const Node& type : types) results.push_back(build::project(made, output++, type, Storage::block));
    return results;
  }
  Growable<Value> carried{}, slices{};

 private:
  tessera::detail::BodyTrace body_;
};
/// The direction of next_direction by loops over the history, whose steps are copied into one tensor for each tensor of
/// the model.
template <std::size_t History>
constexpr Growable<Value> looped_direction(const Vectors& all, const Growable<Value>& g,
                                           const std::array<Growable<Value>, History>& s,
                                           const std::array<Growable<Value>, History>& y) {
  const std::size_t count = g.size();
  const Value context = g[0].at(all.source);
  Growable<Value> stacked;
  for (const auto* history : {&s, &y})
    for (std::size_t t = 0; t < count; ++t) {
      Growable<Value> parts;
      for (const Growable<Value>& step : *history) {
        const Value part = step[t].at(all.source);
        parts.push_back(build::insert_singletons(part, 1u, part.rank() + 1));
      }
      stacked.push_back(build::concat_all(parts, 0));
    }
  const auto part = [&](const Growable<Value>& from, std::size_t first) {
    Growable<Value> own;
    for (std::size_t t = 0; t < count; ++t) own.push_back(from[first + t].at(all.source));
    return own;
  };
  const Value square = all.dot(y[0], y[0]), latest_product = all.dot(y[0], s[0]);
  HistoryLoop latest(all.times(context.number(-1, summed_as(g)), g), stacked, false);
  Growable<Value> own_s = part(latest.slices, 0), own_y = part(latest.slices, count), d = part(latest.carried, 0), more;
  const Value product = all.dot(own_y, own_s), inverse = quotient(product.number(1), product, 0);
  const Value taken = all.dot(own_s, d) * inverse;
  more.push_back(inverse);
  more.push_back(taken);
  Growable<Value> made = latest.end(context, all.plus(d, taken.number(-1) * taken, own_y), more);
  stacked.push_back(made[count]);
  stacked.push_back(made[count + 1]);

  HistoryLoop oldest(all.times(quotient(latest_product, square, 1), part(made, 0)), stacked, true);
  own_s = part(oldest.slices, 0), own_y = part(oldest.slices, count), d = part(oldest.carried, 0);
  const Value own_inverse = oldest.slices[2 * count], own_taken = oldest.slices[2 * count + 1];
  return oldest.end(context, all.plus(d, own_taken - all.dot(own_y, d) * own_inverse, own_s), {});
}
/// For how many tensors of a model the steps of the history are written out. For more tensors the trace would take too
/// many steps for clang's limit (with two parameter groups at 10 tensors), so loops run over a copy of the history.
inline constexpr std::size_t most_written_out = 8;

/// The direction d = -H g, where H approximates the inverse of the Hessian by the last steps s and changes of the
/// gradient y, the latest first. Adds the pair of the last step, which was `moved` from where the gradient was
/// `before`.
template <std::size_t History>
constexpr Growable<Value> next_direction(const Vectors& all, const Growable<Value>& g, const Growable<Value>& before,
                                         const Growable<Value>& moved, std::array<Growable<Value>, History>& s,
                                         std::array<Growable<Value>, History>& y) {
  // The pair of the last step comes first, unless the curvature along it is too small.
  const Growable<Value> change = all.map([](Value now, Value then) { return now - then; }, g, before);
  const Value curvature = all.dot(change, moved), keeps = build::greater(curvature, curvature.number(1e-10));
  for (std::size_t i = History - 1; i > 0; --i) {
    s[i] = all.select(keeps, s[i - 1], s[i]);
    y[i] = all.select(keeps, y[i - 1], y[i]);
  }
  s[0] = all.select(keeps, moved, s[0]);
  y[0] = all.select(keeps, change, y[0]);

  bool loops = g.size() > most_written_out;
  for (const Value& tensor : g) loops = loops && tensor.rank() < max_rank;
  if (loops) return looped_direction(all, g, s, y);
  const Value minus_one = curvature.number(-1);
  Growable<Value> d = all.times(minus_one, g);
  std::array<Value, History> inverse{}, taken{};
  for (std::size_t i = 0; i < History; ++i) {
    inverse[i] = quotient(curvature.number(1), all.dot(y[i], s[i]), 0);
    taken[i] = all.dot(s[i], d) * inverse[i];
    d = all.plus(d, minus_one * taken[i], y[i]);
  }
  const Value square = all.dot(y[0], y[0]);
  d = all.times(quotient(all.dot(y[0], s[0]), square, 1), d);
  for (std::size_t i = History; i-- > 0;) d = all.plus(d, taken[i] - all.dot(y[i], d) * inverse[i], s[i]);
  return d;
}

}  // namespace optim::detail

/// Inside a traced function: one iteration of L-BFGS, with a fixed step size along a direction computed from the last
/// `History` steps. For gradients of a whole data set, not of batches. Returns (model, state).
///
///     d = -H g, where H approximates the inverse of the Hessian by the last steps s and changes of the gradient y
///     p = p + rate d;  in the first step p = p - rate min(1, 1 / sum |g|) g
/// A pair with y s of at most 1e-10 is not kept, and no step is made if g d is above -tolerance. Results are those of
/// torch.optim.LBFGS without a line search, of which one call of `step` makes max_iter iterations. Nothing checks that
/// the loss falls, so use a small rate far from the minimum, or use ts::train::minimize, which has a line search. Sums
/// are f32, or f64 for models of f64.
///
/// A model of more than 8 tensors has its history copied in each step, for loops over the history.
///
/// Communication: 3 History + 4 all_reduces of a rank-0 tensor, and one more with loops; partial gradients are reduced
/// into the sharding of the parameters. Errors: structure when model, gradients and state differ. Source: Nocedal,
/// Math. Comp. 35 (1980); Liu, Nocedal, Math. Programming 45 (1989).
template <class Model, int History, optim::GradientsOf<Model> Gradients>
constexpr auto lbfgs(const Model& model, const Gradients& gradients,
                     const optim::LbfgsState<optim::stored_t<Model>, History>& state, const optim::Lbfgs& config = {},
                     Here at = Here::current()) {
  using namespace optim::detail;
  static_assert(History > 0, "tessera: lbfgs needs a history of at least one step");
  const optim::detail::OptimizerCall named("lbfgs", model, at);
  const Scalar step = next_step("lbfgs", model, state.step, at);
  const Vectors all{Source::from(at)};
  const Growable<Value> p = parameters_of(model), before = parameters_of(state.gradient);
  const Growable<Value> moved = parameters_of(state.moved), given = parameters_of(tessera::detail::settle(gradients));
  if (given.size() != p.size() || before.size() != p.size() || moved.size() != p.size())
    fail(errc::structure, "[lbfgs] structure: model, gradients and state have different numbers of tensors");
  NextName<Model> name_of_gradient, name_of_next;
  const Growable<Value> g =
      all.map([&](Value x, Value like) { return like_parameter(x, like, name_of_gradient()); }, given, p);

  std::array<Growable<Value>, History> s = parameters_of_each(state.moves), y = parameters_of_each(state.changes);
  const Growable<Value> d = next_direction(all, g, before, moved, s, y);
  const Value slope = all.dot(g, d);

  const Value root = p.front().at(all.source), t = lower(root, step);
  const auto number = [&](const Scalar& of) { return build::cast(lower(root, of), slope.dtype()); };
  const Value least = build::apply<ops::MinimumOp>(quotient(slope.number(1), all.sum_of_sizes(g), 1), slope.number(1));
  const Value rate = number(config.learning_rate) * build::select(build::less(t.number(1), t), slope.number(1), least);
  const Value falls = build::less(slope, slope.number(-1) * number(config.tolerance));
  const Growable<Value> move = all.times(build::select(falls, rate, rate.number(0)), d);
  const Growable<Value> next =
      all.map([&](Value x, Value by) { return like_parameter(x + by, x, name_of_next()); }, p, move);

  return [&]<std::size_t... I>(std::index_sequence<I...>) {
    using State = optim::LbfgsState<optim::stored_t<Model>, History>;
    using Models = optim::models_t<optim::stored_t<Model>, History>;
    return std::tuple(with_parameters(model, next),
                      State{with_parameters(state.gradient, g), with_parameters(state.moved, move),
                            Models(with_parameters(std::get<I>(state.moves), s[I])...),
                            Models(with_parameters(std::get<I>(state.changes), y[I])...), step});
  }(std::make_index_sequence<History>());
}

namespace optim {

template <> struct Optimizer<Lbfgs> {
  template <class Model, int History = 10> using State = LbfgsState<Model, History>;
  static constexpr auto step(const auto&... call) { return lbfgs(call...); }
};
/// A step with any length of the history.
template <class Model, GradientsOf<Model> Gradients, int History>
constexpr auto optimizer_step(const Model& model, const Gradients& gradients,
                              const LbfgsState<stored_t<Model>, History>& state, const Lbfgs& config,
                              Here at = Here::current()) {
  return lbfgs(model, gradients, state, config, at);
}

}  // namespace optim

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
