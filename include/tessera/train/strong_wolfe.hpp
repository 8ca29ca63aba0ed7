#ifndef TESSERA_TRAIN_STRONG_WOLFE_HPP
#define TESSERA_TRAIN_STRONG_WOLFE_HPP
#include <tessera/base/push_macros.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include <tessera/base/error.hpp>
#include <tessera/base/here.hpp>
#include <tessera/base/source.hpp>

namespace tessera::train {

/// The strong Wolfe conditions that a line search meets: at the rate t along a direction of slope g, the loss is at
/// most f + c1 t g, and the slope there is at most c2 |g| in size.
struct WolfeConditions {
  double c1 = 1e-4, c2 = 0.9;
  int max_trials = 25;  ///< evaluations of one search; then the best of them is taken

  /// Errors: `option` unless 0 < c1 < c2 < 1, and for less than one trial.
  void check(const char* function, Here at) const {
    if (!(0 < c1 && c1 < c2 && c2 < 1))
      fail(errc::option, "[", function, "] line_search: c1 and c2 of ", c1, " and ", c2, " are not 0 < c1 < c2 < 1",
           Source::from(at));
    if (max_trials < 1)
      fail(errc::option, "[", function, "] line_search: max_trials of ", max_trials, " is below 1", Source::from(at));
  }
};

namespace detail {

/// A point along a direction.
template <class Gradient> struct Trial {
  double rate = 0, loss = 0, slope = 0;
  Gradient gradient;
};

/// Where the cubic polynomial through two points with their slopes is least, within bounds; their middle where it is
/// least nowhere.
template <class Gradient>
double cubic_minimum(const Trial<Gradient>& a, const Trial<Gradient>& b, double low, double high) {
  const double d1 = a.slope + b.slope - 3 * (a.loss - b.loss) / (a.rate - b.rate), square = d1 * d1 - a.slope * b.slope;
  if (!(square >= 0)) return (low + high) / 2;
  const double d2 = std::sqrt(square);
  const Trial<Gradient>&left = a.rate <= b.rate ? a : b, &right = a.rate <= b.rate ? b : a;
  const double least =
      right.rate - (right.rate - left.rate) * ((right.slope + d2 - d1) / (right.slope - left.slope + 2 * d2));
  if (std::isnan(least)) return (low + high) / 2;
  return least < low ? low : least > high ? high : least;
}

/// A point that meets the strong Wolfe conditions, with the numbers of the line search of torch.optim.LBFGS: first it
/// looks for two points with such a point between them, then it narrows them. `trial(rate)` evaluates a point, `start`
/// is that at rate 0. It ends as well where points differ by less than `tolerance` in each parameter, of which a rate
/// of 1 changes none by more than `largest_step`. Source: Nocedal, Wright (2006), algorithms 3.5 and 3.6.
template <class Gradient, class Evaluate>
Trial<Gradient> strong_wolfe(const Evaluate& trial, Trial<Gradient> start, double rate, double largest_step,
                             double tolerance, const WolfeConditions& wolfe) {
  using Point = Trial<Gradient>;
  const auto evaluate = [&](double at) {
    Point made = trial(at);
    if (std::isnan(made.loss)) made.loss = std::numeric_limits<double>::infinity();
    return made;
  };
  const double loss = start.loss, slope = start.slope;
  const auto too_high = [&](const Point& x) { return x.loss > loss + wolfe.c1 * x.rate * slope; };
  const auto is_flat = [&](const Point& x) { return std::abs(x.slope) <= -wolfe.c2 * slope; };

  Point previous = start, next = evaluate(rate);
  int trials = 0;
  while (true) {
    if (trials == wolfe.max_trials) {
      previous = std::move(start);
      break;
    }
    if (too_high(next) || (trials > 1 && next.loss >= previous.loss)) break;
    if (is_flat(next)) return next;
    if (next.slope >= 0) break;
    const double farther =
        cubic_minimum(previous, next, next.rate + 0.01 * (next.rate - previous.rate), next.rate * 10);
    previous = std::move(next);
    next = evaluate(farther);
    ++trials;
  }

  Point ends[] = {std::move(previous), std::move(next)};
  const auto lower_end = [&] { return ends[0].loss <= ends[1].loss ? 0 : 1; };
  int low = lower_end();
  bool was_near = false;
  while (trials < wolfe.max_trials && !(std::abs(ends[1].rate - ends[0].rate) * largest_step < tolerance)) {
    const double least = std::min(ends[0].rate, ends[1].rate), most = std::max(ends[0].rate, ends[1].rate);
    double at = cubic_minimum(ends[0], ends[1], least, most);
    // Near an end of the interval twice, or at it: a tenth of the interval away from it.
    const double tenth = 0.1 * (most - least);
    const bool is_near = std::min(most - at, at - least) < tenth;
    const bool moves = is_near && (was_near || at >= most || at <= least);
    if (moves) at = most - at < at - least ? most - tenth : least + tenth;
    was_near = is_near && !moves;

    next = evaluate(at);
    ++trials;
    Point &best = ends[low], &other = ends[1 - low];
    if (too_high(next) || next.loss >= best.loss) {
      other = std::move(next);
      low = lower_end();
      continue;
    }
    const bool done = is_flat(next);
    if (!done && next.slope * (other.rate - best.rate) >= 0) other = std::move(best);
    best = std::move(next);
    if (done) break;
  }
  return std::move(ends[low]);
}

}  // namespace detail

}  // namespace tessera::train

#include <tessera/base/pop_macros.hpp>

#endif
