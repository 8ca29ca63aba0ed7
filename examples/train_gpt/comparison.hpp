#ifndef TRAIN_GPT_COMPARISON_HPP
#define TRAIN_GPT_COMPARISON_HPP

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "options.hpp"
#include "report.hpp"
#include "text.hpp"

#include <tessera/mesh/mesh.hpp>
#include <tessera/partition/plan/plan.hpp>

namespace train_gpt {

/// A row of the table of --compare: what one strategy learns, how fast, with what memory and what communication.
struct Comparison {
  std::string strategy, mesh;
  double loss = 0,
         difference = 0;         ///< of the last step; the largest relative difference to the first row, of all steps
  double tokens_per_second = 0;  ///< of the median step
  std::int64_t stored = 0, predicted = 0, scratch = 0, sent = 0;  ///< bytes per device
  std::int64_t gathers = 0, scatters = 0, reduces = 0, exchanges = 0, permutes = 0;
  int microbatches = 0;  ///< of a pipeline
  double bubble = 0;     ///< the share of the work of a pipeline's stages that is in vain

  Comparison(std::string_view name, const ts::Mesh& on, const ts::Plan& plan)
      : strategy(name), predicted(predicted_argument_bytes(plan)),
        scratch(plan.main().arena_bytes / std::max<std::int64_t>(1, on.size())) {
    if (on.rank() == 0) mesh = "-";
    for (int axis = 0; axis < on.rank(); ++axis)
      mesh += (axis > 0 ? "," : "") + std::string(on.axis_name(axis).view()) + "=" + std::to_string(on.axis_size(axis));
    for (const CollectiveTotal& total : collective_totals(plan)) {
      sent += total.wire;
      std::int64_t* count = total.kind == ts::Collective::all_gather       ? &gathers
                            : total.kind == ts::Collective::reduce_scatter ? &scatters
                            : total.kind == ts::Collective::all_reduce     ? &reduces
                            : total.kind == ts::Collective::all_to_all     ? &exchanges
                                                                           : &permutes;
      *count += total.count;
    }
  }

  /// A stage of 1F1B computes in vain while it waits, and where it has fewer layers than others. The plan counts its
  /// loop of ticks, each with two permutes over the axis; stages - 1 of the ticks go in one direction only.
  void set_pipeline(const Options& o, const ts::Plan& plan) {
    microbatches = o.microbatches;
    const int axis = o.mesh.axis_index("pipe"), stages = o.mesh.axis_size(axis);
    std::int64_t both_ways = 0;
    for (const CollectiveTotal& total : collective_totals(plan))
      if (total.kind == ts::Collective::permute && total.axes == 1u << axis) both_ways += total.count;
    if (both_ways == 0) return;  // one stage
    const std::int64_t ticks = both_ways / 2 - (stages - 1), most_layers = (o.layers + stages - 1) / stages;
    bubble = 1 - static_cast<double>(o.microbatches) * o.layers / static_cast<double>(ticks * stages * most_layers);
  }
  void set_losses(const std::vector<double>& losses, const std::vector<double>& first) {
    loss = losses.back();
    for (std::size_t i = 0; i < losses.size(); ++i)
      difference = std::max(difference, std::abs(losses[i] - first[i]) / std::abs(first[i]));
  }
  void set_rate(double tokens, std::vector<double> seconds) {
    std::nth_element(seconds.begin(), seconds.begin() + std::ssize(seconds) / 2, seconds.end());
    tokens_per_second = tokens / seconds[seconds.size() / 2];
  }

  void print() const {
    char pipeline[32] = "";
    if (microbatches > 0) std::snprintf(pipeline, sizeof pipeline, " %5d %5.1f%%", microbatches, 100 * bubble);
    std::printf("%-10s %-22s %8.4f %8.1e %9s %10s %10s %10s %5lld %5lld %5lld %5lld %5lld %10s%s\n", strategy.c_str(),
                mesh.c_str(), loss, difference, grouped(std::llround(tokens_per_second)).c_str(),
                bytes_text(stored).c_str(), bytes_text(predicted).c_str(), bytes_text(scratch).c_str(),
                static_cast<long long>(gathers), static_cast<long long>(scatters), static_cast<long long>(reduces),
                static_cast<long long>(exchanges), static_cast<long long>(permutes), bytes_text(sent).c_str(),
                pipeline);
    std::fflush(stdout);
  }
};

inline void print_header() {
  std::printf("\n%-10s %-22s %8s %8s %9s %10s %10s %10s %29s %10s\n", "", "", "", "", "", "bytes of", "a device", "",
              "collectives of a step", "bytes a");
  std::printf("%-10s %-22s %8s %8s %9s %10s %10s %10s %5s %5s %5s %5s %5s %10s %5s %6s\n", "strategy", "mesh", "loss",
              "differs", "tokens/s", "stored", "predicted", "scratch", "ag", "rs", "ar", "a2a", "perm", "device sent",
              "micro", "bubble");
}

}  // namespace train_gpt

#endif
