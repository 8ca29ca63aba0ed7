#ifndef TESSERA_NN_SUMMARY_HPP
#define TESSERA_NN_SUMMARY_HPP
#include <tessera/base/push_macros.hpp>

#include <cstdint>
#include <string>
#include <vector>

#include <tessera/base/compiled.hpp>
#include <tessera/nn/parameters.hpp>
#include <tessera/partition/plan/plan.hpp>
#if TESSERA_HAS_DEFINITIONS
#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>

#include <tessera/partition/plan/explain.hpp>
#endif

namespace tessera {

namespace detail {

/// The table of a summary. `flops`: of a call; negative: not shown.
TESSERA_ONCE std::string summary_text(const std::vector<nn::NamedParameter>& leaves, std::int64_t flops);

#if TESSERA_HAS_DEFINITIONS
TESSERA_ONCE std::string summary_text(const std::vector<nn::NamedParameter>& leaves, std::int64_t flops) {
  using Row = std::array<std::string, 6>;
  std::vector<Row> rows{{"name", "type", "sharding", "elements", "bytes", "bytes a device"}};
  std::int64_t elements = 0, bytes = 0, on_device = 0;
  for (const nn::NamedParameter& leaf : leaves) {
    if (!leaf.is_tensor) {
      char value[32];
      char* const end = std::to_chars(value, value + sizeof value, leaf.value).ptr;
      rows.push_back({leaf.name, leaf.dtype == DType::i64 ? "Dim" : "Scalar", std::string(value, end), "", "", ""});
      continue;
    }
    const std::string times = leaf.layers > 1 ? std::to_string(leaf.layers) + " x " : "";
    const std::int64_t own[] = {leaf.elements * leaf.layers, leaf.bytes * leaf.layers, leaf.device_bytes * leaf.layers};
    rows.push_back({leaf.name, times + shape_text(leaf.dtype, leaf.shape), leaf.sharding, grouped(own[0]),
                    grouped(own[1]), grouped(own[2])});
    elements += own[0], bytes += own[1], on_device += own[2];
  }
  rows.push_back({"total", "", "", grouped(elements), grouped(bytes), grouped(on_device)});
  std::array<std::size_t, 6> widths{};
  for (const Row& row : rows)
    for (std::size_t c = 0; c < 6; ++c) widths[c] = std::max(widths[c], row[c].size());
  std::string text;
  for (const Row& row : rows) {
    std::string line;
    for (std::size_t c = 0; c < 6; ++c) {
      const std::string space(widths[c] - row[c].size(), ' ');
      if (c > 0) line += "  ";
      line += c < 3 ? row[c] + space : space + row[c];
    }
    text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  if (flops >= 0) text += "flops of a call: " + grouped(flops) + "\n";
  return text;
}
#endif

}  // namespace detail

/// A table of a model or an optimizer state. Each tensor has a row with its name, element type and shape, sharding,
/// number of elements, bytes of all elements, and bytes on the device with the largest shard; each Dim and Scalar has a
/// row with its value; the last row has totals. The layers of a Stack share a row, "blocks.*.mlp.up.weight", with the
/// sums over all layers. Errors: empty_tensor for a tensor without data.
///
///     std::cout << ts::summary(model);
///     std::cout << ts::summary(model, step.plan(model, x));   // also the flops of this call, of all devices together
template <class Model> std::string summary(const Model& model, Here at = Here::current()) {
  detail::require_data("summary", model, at);
  return detail::summary_text(nn::detail::described(model, detail::VisitLayers::together), -1);
}
template <class Model> std::string summary(const Model& model, const Plan& plan, Here at = Here::current()) {
  detail::require_data("summary", model, at);
  return detail::summary_text(nn::detail::described(model, detail::VisitLayers::together), plan.flops());
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
