#ifndef TESSERA_TRAIN_MINIMIZE_HPP
#define TESSERA_TRAIN_MINIMIZE_HPP
#include <tessera/base/push_macros.hpp>

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <tuple>
#include <type_traits>
#include <utility>

#include <tessera/base/error.hpp>
#include <tessera/base/growable.hpp>
#include <tessera/base/here.hpp>
#include <tessera/base/source.hpp>
#include <tessera/graph/trace/scalar.hpp>
#include <tessera/optim/lbfgs.hpp>
#include <tessera/optim/state/init_state.hpp>
#include <tessera/tensor/compile.hpp>
#include <tessera/tensor/host.hpp>
#include <tessera/train/strong_wolfe.hpp>

namespace tessera::train {

/// The argument of a hook that minimize() calls after each iteration. A hook that sets `stop` ends the search.
struct MinimizeReport {
  int iteration = 0;            ///< counted from 1
  int evaluations = 0;          ///< calls of the objective until now
  double loss = 0;              ///< at the point that the iteration found
  double largest_gradient = 0;  ///< the largest absolute element of the gradient there
  double rate = 0;              ///< the step is rate times the direction
  bool stop = false;
};

/// When minimize() ends. The defaults of tolerances and line search are those of torch.optim.LBFGS.
struct MinimizeOptions {
  int max_iterations = 100;
  int max_evaluations = 0;   ///< no iteration begins after this number; 0: 5/4 of max_iterations
  double learning_rate = 1;  ///< the first rate of each line search; the first line search begins with a smaller one
  double gradient_tolerance = 1e-7;  ///< ends where no element of the gradient is larger
  double change_tolerance = 1e-9;    ///< ends where the loss or all parameters change by less than this
  WolfeConditions line_search{};
  std::function<void(MinimizeReport&)> after_iteration{};
};

/// The result of minimize().
template <class Model> struct Minimum {
  Model model;
  double loss = 0, largest_gradient = 0;
  int iterations = 0, evaluations = 0;
  bool converged = false;  ///< a tolerance was reached, not a limit of iterations or evaluations
};

namespace detail {

/// Where a search for a minimum is: the last gradient, direction and rate, and the pairs of steps before.
template <class Model, int History> struct Path {
  Model gradient, direction;
  optim::models_t<Model, History> moves, changes;
  Scalar rate;

  static constexpr std::array field_names{"gradient", "direction", "moves", "changes", "rate"};
};

/// The largest absolute element of tensors.
constexpr Value largest_of(const Growable<Value>& a) {
  Value largest{};
  for (const Value& x : a) {
    const Value own = build::cast(build::max_of(build::apply<ops::AbsOp>(x), (1u << x.rank()) - 1, false), DType::f64);
    largest = largest.module == nullptr ? own : build::maximum(largest, own);
  }
  return largest;
}
constexpr Sym<double, 0> as_number(const Value& x) { return Sym<double, 0>(build::cast(x, DType::f64)); }

/// The next direction, the path to here, the slope along the direction, the sum of the absolute elements of the
/// gradient, and the largest absolute element of the direction.
template <int History> struct NextDirection {
  template <class Stored>
  constexpr auto operator()(const auto& model, const auto& gradient, const Path<Stored, History>& path) const {
    using namespace optim::detail;
    const Growable<Value> p = parameters_of(model), given = parameters_of(gradient);
    if (p.empty()) fail(errc::structure, "[minimize] model: the model has no floating-point tensor");
    const Vectors all{p.front().source};
    const auto alike = [](Value x, Value like) { return build::alike(x, like, {.exactly = true}); };
    const Growable<Value> g = all.map(alike, given, p);
    const Value rate = lower(p.front(), path.rate);
    std::array<Growable<Value>, History> s = parameters_of_each(path.moves), y = parameters_of_each(path.changes);
    const Growable<Value> d = all.map(
        alike,
        next_direction(all, g, parameters_of(path.gradient), all.times(rate, parameters_of(path.direction)), s, y), p);
    return [&]<std::size_t... I>(std::index_sequence<I...>) {
      using Models = optim::models_t<Stored, History>;
      return std::tuple(Path<Stored, History>{with_parameters(path.gradient, g), with_parameters(path.direction, d),
                                              Models(with_parameters(std::get<I>(path.moves), s[I])...),
                                              Models(with_parameters(std::get<I>(path.changes), y[I])...), path.rate},
                        as_number(all.dot(g, d)), as_number(all.sum_of_sizes(g)), as_number(largest_of(d)));
    }(std::make_index_sequence<History>());
  }
};

struct Moved {
  constexpr auto operator()(const auto& model, const auto& direction, const auto& rate) const {
    using namespace optim::detail;
    const Growable<Value> p = parameters_of(model);
    const Vectors all{p.front().source};
    const Growable<Value> next = all.plus(p, lower(p.front(), rate), parameters_of(direction));
    return with_parameters(
        model, all.map([](Value x, Value like) { return build::alike(x, like, {.exactly = true}); }, next, p));
  }
};

struct Slope {
  constexpr auto operator()(const auto& gradient, const auto& direction) const {
    using namespace optim::detail;
    const Growable<Value> g = parameters_of(gradient);
    const Vectors all{g.front().source};
    return as_number(all.dot(g, parameters_of(direction)));
  }
};
struct Largest {
  constexpr auto operator()(const auto& gradient) const {
    const Growable<Value> g = optim::detail::parameters_of(gradient);
    if (g.empty()) fail(errc::structure, "[minimize] model: the model has no floating-point tensor");
    return as_number(largest_of(g));
  }
};

}  // namespace detail

/// Minimizes the loss of a whole data set (not of batches), starting at `model`, by L-BFGS with a line search that
/// meets the strong Wolfe conditions. `objective(model)` returns the loss, a tensor of one element, and its gradient.
/// It is a compiled function, or a function that calls a compiled function with the data:
///
///     constexpr auto objective = ts::compile(
///         [](auto model, auto x, auto t) { return ts::value_and_grad(loss)(model, x, t); });
///     const auto found = ts::train::minimize(model, [&](const auto& m) { return objective(m, x, t); });
///     model = found.model;                                  // found.loss, found.converged, ...
/// The direction is that of ts::lbfgs, from the last `History` steps. Results are those of one call of `step` of
/// torch.optim.LBFGS with line_search_fn="strong_wolfe", max_iter=max_iterations and history_size=History, except that
/// a NaN loss counts as infinite, so that the line search steps back from it. Memory: 2 History
/// + 6 models. Errors: `option` for negative limits and tolerances, a rate that is not above 0, and constants of the
/// line search that are not 0 < c1 < c2 < 1; `structure` for a model without parameters; those of the objective.
/// Communication: 3 History + 6 all_reduces of a rank-0 tensor for each iteration, one for each evaluation, and that of
/// the objective. Source: Nocedal, Wright, Numerical Optimization (2006), algorithms 3.5 and 7.5.
template <int History = 10, class Model, class Objective>
Minimum<Model> minimize(Model model, const Objective& objective, const MinimizeOptions& options = {},
                        Here at = Here::current()) {
  static_assert(History > 0, "tessera: minimize needs a history of at least one step");
  using Evaluated = std::remove_cvref_t<decltype(objective(std::as_const(model)))>;
  static_assert(std::is_same_v<std::tuple_element_t<1, Evaluated>, Model>,
                "tessera: the objective of minimize returns the loss and a gradient of the type of the model, such as "
                "the results of ts::value_and_grad");
  const auto refuse = [&](const char* option, auto value, const char* rule) {
    fail(errc::option, "[minimize] ", option, ": ", value, rule, Source::from(at));
  };
  if (options.max_iterations < 0) refuse("max_iterations", options.max_iterations, " is negative");
  if (options.max_evaluations < 0) refuse("max_evaluations", options.max_evaluations, " is negative");
  if (!(options.learning_rate > 0)) refuse("learning_rate", options.learning_rate, " is not above 0");
  if (!(options.gradient_tolerance >= 0)) refuse("gradient_tolerance", options.gradient_tolerance, " is negative");
  if (!(options.change_tolerance >= 0)) refuse("change_tolerance", options.change_tolerance, " is negative");
  options.line_search.check("minimize", at);
  const std::int64_t iterations = options.max_iterations;
  const std::int64_t most = options.max_evaluations > 0 ? options.max_evaluations : iterations + iterations / 4;

  static constexpr auto next_direction = compile(detail::NextDirection<History>{});
  static constexpr auto moved = compile(detail::Moved{});
  static constexpr auto slope_of = compile(detail::Slope{});
  static constexpr auto largest_of = compile(detail::Largest{});

  Minimum<Model> found{std::move(model)};
  const auto evaluate = [&](const Model& point) {
    ++found.evaluations;
    auto made = objective(point);
    return std::pair<double, Model>(static_cast<double>(item(std::get<0>(made))), std::move(std::get<1>(made)));
  };
  auto [loss, gradient] = evaluate(found.model);
  found.loss = loss;
  found.largest_gradient = item(largest_of(gradient));
  if (found.largest_gradient <= options.gradient_tolerance) {
    found.converged = true;
    return found;
  }
  auto none = optim::init_state<History>(optim::Lbfgs{}, found.model, at);
  detail::Path<Model, History> path{std::move(none.gradient), std::move(none.moved), std::move(none.moves),
                                    std::move(none.changes), 0.0};
  while (found.iterations < options.max_iterations) {
    ++found.iterations;
    auto [next, of_slope, of_sum, of_largest] = next_direction(found.model, gradient, std::move(path));
    path = std::move(next);
    const double slope = item(of_slope), largest_step = item(of_largest), sum = item(of_sum);
    const double first =
        found.iterations == 1 ? (sum > 1 ? 1 / sum : 1.0) * options.learning_rate : options.learning_rate;
    if (slope > -options.change_tolerance) {
      found.converged = true;
      break;
    }
    const auto trial = [&](double rate) {
      auto [of_loss, of_gradient] = evaluate(moved(found.model, path.direction, Scalar(rate)));
      const double along = item(slope_of(of_gradient, path.direction));
      return detail::Trial<Model>{rate, of_loss, along, std::move(of_gradient)};
    };
    detail::Trial<Model> taken =
        detail::strong_wolfe(trial, detail::Trial<Model>{0, found.loss, slope, std::move(gradient)}, first,
                             largest_step, options.change_tolerance, options.line_search);
    const double before = found.loss;
    found.model = moved(found.model, path.direction, Scalar(taken.rate));
    found.loss = taken.loss;
    path.rate = taken.rate;
    gradient = std::move(taken.gradient);
    found.largest_gradient = item(largest_of(gradient));

    MinimizeReport report{found.iterations, found.evaluations, found.loss, found.largest_gradient, taken.rate};
    if (options.after_iteration) options.after_iteration(report);
    found.converged = found.largest_gradient <= options.gradient_tolerance ||
                      largest_step * std::abs(taken.rate) <= options.change_tolerance ||
                      std::abs(found.loss - before) < options.change_tolerance;
    if (found.converged || report.stop || found.evaluations >= most) break;
  }
  return found;
}

}  // namespace tessera::train

#include <tessera/base/pop_macros.hpp>

#endif
