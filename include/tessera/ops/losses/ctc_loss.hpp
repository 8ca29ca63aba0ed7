#ifndef TESSERA_OPS_LOSSES_CTC_LOSS_HPP
#define TESSERA_OPS_LOSSES_CTC_LOSS_HPP
#include <tessera/base/push_macros.hpp>

#include <cstdint>
#include <limits>
#include <tuple>
#include <type_traits>

#include <tessera/graph/trace/function_call.hpp>
#include <tessera/graph/trace/layer_call.hpp>
#include <tessera/ops/control_flow.hpp>
#include <tessera/ops/data_movement/rearrange.hpp>
#include <tessera/ops/data_movement/repeat.hpp>
#include <tessera/ops/data_movement/shape.hpp>
#include <tessera/ops/data_movement/slicing.hpp>
#include <tessera/ops/data_movement/stack.hpp>
#include <tessera/ops/indexing/checked_lengths.hpp>
#include <tessera/ops/indexing/gather.hpp>
#include <tessera/ops/losses/losses.hpp>

namespace tessera {

/// Options of ctc_loss, with PyTorch's names and defaults.
struct Ctc {
  int blank = 0;               ///< the class between labels
  bool zero_infinity = false;  ///< the loss of a target that is longer than its input is 0, not infinite
};

namespace detail {

/// The logarithm of a probability of 0: finite, so that no infinity is subtracted from another infinity.
inline constexpr double log_of_zero = -1e30;

/// The labels with blanks around them, [batch, 2 length + 1], and the logarithm of the probability, 1 or 0, that a
/// path goes to a label from the one before it, without the blank between them.
template <class T, class Targets> constexpr auto ctc_labels(const Targets& targets, int blank, Here at) {
  const auto extended = pad<1>(repeat_interleave<1>(targets, 2, at), 0, 1, at);  // t0 t0 t1 t1 ... 0
  const auto position = iota<1, std::int32_t>(extended, at);
  const auto is_label = tessera::equal(remainder(position, 2, at), 1, at);
  const auto labels = select(is_label, extended, full_like(extended, blank, at), at);
  const auto two_before = slice<1>(pad<1>(extended, 2, 0, at), 0, extent<1>(extended, at), at);
  const auto skips = logical_and(is_label, logical_or(not_equal(extended, two_before, at), position < 2, at), at);
  const auto like = cast<T>(extended, at);
  return std::pair(labels, select(skips, zeros_like(like, at), full_like(like, log_of_zero, at), at));
}

}  // namespace detail

/// Connectionist temporal classification, as torch.nn.functional.ctc_loss: -log of the probability that the steps
/// [0, input length) give the labels [0, target length) of a sequence, with blanks between them and repetitions.
///
/// Shapes: log_probs [time, batch, classes], the results of log_softmax<-1>; targets [batch, length], of integers other
/// than `blank`; input_lengths and target_lengths [batch], of integers. Each sequence has one loss. The mean divides
/// each by its target length, at least 1, as in PyTorch. A target that its input is too short for has an infinite loss,
/// of which the gradient is 0; with zero_infinity the loss is 0 too. The gradient is that of the formula; PyTorch's has
/// another part, which log_softmax removes again. PyTorch's concatenated targets and its form without a batch have no
/// counterpart. Errors: shape_mismatch; dim_range for a target outside of the classes, and for a length that is
/// negative or longer than the dim that it counts, such as frames of x that a strided convolution has made fewer.
///
/// One ts::scan over the steps, in logarithms; only inside a traced function. Communication: none for a split batch;
/// time that is split is gathered. Source: Graves et al., ICML 2006.
template <LossReduction Reduction = LossReduction::mean, TensorArgument X, TensorArgument Targets,
          TensorArgument Lengths, TensorArgument TargetLengths>
constexpr auto ctc_loss(const X& log_probs, const Targets& targets, const Lengths& input_lengths,
                        const TargetLengths& target_lengths, const Ctc& options = {}, Here at = Here::current()) {
  static_assert(X::rank == 3 && is_floating_v<typename X::element>,
                "tessera: the log_probs of ctc_loss are a float, double, bf16 or f16 tensor of [time, batch, classes]");
  static_assert(Targets::rank == 2 && Lengths::rank == 1 && TargetLengths::rank == 1,
                "tessera: the targets of ctc_loss are [batch, length], input_lengths and target_lengths [batch]");
  using T = detail::loss_t<typed_of<X>>;
  if (detail::trace_in(log_probs).module == nullptr)
    fail(errc::unsupported,
         "[ctc_loss] outside of a traced function: call ts::ctc_loss inside a function of ts::compile");
  const detail::LayerCall call(at, log_probs, targets);
  const auto steps = detail::checked_lengths(detail::as_sym(input_lengths), extent<0>(log_probs, at),
                                             "the input_lengths of ctc_loss", at);
  const auto lengths = detail::checked_lengths(detail::as_sym(target_lengths), extent<1>(targets, at),
                                               "the target_lengths of ctc_loss", at);
  const detail::FunctionCall named("ctc_loss", log_probs, targets);
  const auto x = detail::as_sym(cast<T>(log_probs, at));
  const auto both = detail::ctc_labels<T>(detail::as_sym(targets), options.blank, at);
  const auto& labels = both.first;  // [B, S], S = 2 length + 1
  const auto& skip_log = both.second;
  // Two positions more in front: a path starts at position 1, and no path is at position 0.
  const auto ahead = pad<1>(zeros_like(skip_log, at), 2, 0, at);  // [B, 2 + S]
  const auto position = iota<1, std::int32_t>(ahead, at);
  const auto never = full_like(ahead, detail::log_of_zero, at);
  const auto start = select(tessera::equal(position, 1, at), ahead, never, at);
  const auto two_never = slice<1>(never, 0, 2, at);
  const auto positions = extent<1>(skip_log, at);
  const auto running = less(iota<0, std::int32_t>(sum<2>(x, at), at), unsqueeze<0>(steps, at), at);

  const auto step = [&](const auto& alpha, const auto& now) {
    const auto emitted = maximum(gather<1>(std::get<0>(now), labels, at), detail::log_of_zero, at);  // [B, S]
    const auto stays = slice<1>(alpha, 2, positions, at), moves = slice<1>(alpha, 1, positions, at);
    const auto skips = slice<1>(alpha, 0, positions, at) + skip_log;
    const auto most = maximum(maximum(stays, moves, at), skips, at);
    const auto total = exp(stays - most, at) + exp(moves - most, at) + exp(skips - most, at);
    const auto next = concat<1>(two_never, most + log(total, at) + emitted, at);
    return std::tuple(select(unsqueeze<1>(std::get<1>(now), at), next, alpha, at), std::tuple());
  };
  const auto last = std::get<0>(scan(step, start, std::tuple(x, running), {}, at));

  // A path ends at the last label or at the blank after it.
  const auto end = unsqueeze<1>(lengths * 2 + 1, at);  // of the last label, or the start
  const auto at_end = logical_or(tessera::equal(position, end, at), tessera::equal(position, end + 1, at), at);
  const auto log_of_all = logsumexp<1>(select(at_end, last, never, at), at);  // [B]
  const double of_impossible = options.zero_infinity ? 0.0 : std::numeric_limits<double>::infinity();
  const auto losses =
      select(log_of_all < 0.5 * detail::log_of_zero, full_like(log_of_all, of_impossible, at), -log_of_all, at);
  if constexpr (Reduction == LossReduction::each)
    return losses;
  else if constexpr (Reduction == LossReduction::sum)
    return sum(losses, at);
  else
    return mean(losses / cast<T>(maximum(lengths, 1, at), at), at);
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
