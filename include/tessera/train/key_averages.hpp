#ifndef TESSERA_TRAIN_KEY_AVERAGES_HPP
#define TESSERA_TRAIN_KEY_AVERAGES_HPP
#include <tessera/base/push_macros.hpp>

#include <cstdint>
#include <string>
#include <vector>

#include <tessera/base/compiled.hpp>
#include <tessera/base/here.hpp>
#include <tessera/base/text_output.hpp>
#if TESSERA_HAS_DEFINITIONS
#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <iterator>

#include <tessera/base/error.hpp>
#include <tessera/base/source.hpp>
#endif

namespace tessera {

/// What the rows of KeyAverages have in common.
enum class ProfileGroup : std::uint8_t { operation_and_line, operation, line };
/// By which column a table of KeyAverages is sorted, the largest first.
enum class ProfileSort : std::uint8_t { self_time, total_time, calls, bytes, flops, sent_bytes };

/// One row of KeyAverages: all calls of an operation of a line.
struct KeyAverage {
  std::string operation;  ///< as explain names it, such as "matmul+add"; empty when grouped by line
  std::string line;       ///< "train.cpp:41"; empty when it is unknown, and when grouped by operation
  std::int64_t calls = 0;
  double self_ms = 0;     ///< without what ran inside: the steps in the body of a loop have rows of their own
  double total_ms = 0;    ///< with what ran inside; grouped by line, as self_ms
  double bytes = 0;       ///< read and written by all calls, as planned
  double flops = 0;       ///< of all calls, as planned
  double sent_bytes = 0;  ///< sent by each device in all calls, as planned (CollectiveInfo::wire_bytes)

  double mean_us() const { return total_ms * 1e3 / static_cast<double>(calls); }
  double gb_per_s() const { return self_ms > 0 ? bytes / self_ms / 1e6 : 0; }
  double gflop_per_s() const { return self_ms > 0 ? flops / self_ms / 1e6 : 0; }
};

struct ProfileTableOptions {
  ProfileSort sort_by = ProfileSort::self_time;
  std::int64_t row_limit = 100;  ///< a line below the table tells how many rows are left out
};

/// Where the time of a Profiler went. `self_ms` of all rows, `run_ms`, `planning_ms` and `outside_ms` sum up to
/// `wall_ms`.
struct KeyAverages {
  std::vector<KeyAverage> rows;  ///< by self_ms, the largest first
  double wall_ms = 0;            ///< since the profiler was made or cleared
  std::int64_t runs = 0;         ///< of programs: calls of compiled functions, and expressions
  double run_ms = 0;             ///< in runs, but outside of steps: setting arguments, memory of results
  std::int64_t plans = 0;        ///< made by first calls
  double planning_ms = 0;
  double outside_ms = 0;  ///< the rest: the user's code, and what a call does before it runs

  /// A table, and a line with the time that no row has. Errors: `option` for a limit below 0.
  TESSERA_ONCE std::string table(const ProfileTableOptions& options = {}, Here at = Here::current()) const;
  std::string text() const { return table(); }
};

#if TESSERA_HAS_DEFINITIONS
namespace detail {

/// "1.23 MB", with three digits; empty for 0.
inline std::string amount_text(double amount, const char* unit) {
  if (amount == 0) return {};
  const char* const prefixes[] = {"", "k", "M", "G", "T", "P", "E"};
  std::size_t prefix = 0;
  for (; amount >= 999.5 && prefix + 1 < std::size(prefixes); ++prefix) amount /= 1000;
  char text[32];
  const int digits = prefix == 0 || amount >= 99.95 ? 0 : amount >= 9.995 ? 1 : 2;
  std::snprintf(text, sizeof text, "%.*f %s%s", digits, amount, prefixes[prefix], unit);
  return text;
}
inline std::string fixed_text(double number, int digits) {
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", digits, number);
  return text;
}
/// "1.2 ms (3.4 %)".
inline std::string time_text(double ms, double wall_ms) {
  return fixed_text(ms, 2) + " ms (" + fixed_text(100 * ms / wall_ms, 1) + " %)";
}
inline double column_of(const KeyAverage& row, ProfileSort by) {
  switch (by) {
    case ProfileSort::self_time:
      return row.self_ms;
    case ProfileSort::total_time:
      return row.total_ms;
    case ProfileSort::calls:
      return static_cast<double>(row.calls);
    case ProfileSort::bytes:
      return row.bytes;
    case ProfileSort::flops:
      return row.flops;
    case ProfileSort::sent_bytes:
      return row.sent_bytes;
  }
  return 0;
}
inline void sort_rows(std::vector<KeyAverage>& rows, ProfileSort by) {
  std::stable_sort(rows.begin(), rows.end(),
                   [&](const KeyAverage& a, const KeyAverage& b) { return column_of(a, by) > column_of(b, by); });
}

}  // namespace detail

TESSERA_ONCE std::string KeyAverages::table(const ProfileTableOptions& options, Here at) const {
  if (options.row_limit < 0)
    fail(errc::option, "[key_averages] row_limit: ", options.row_limit, " rows; a limit is at least 0",
         Source::from(at));
  std::vector<KeyAverage> sorted = rows;
  detail::sort_rows(sorted, options.sort_by);
  const std::size_t shown = std::min(sorted.size(), static_cast<std::size_t>(options.row_limit));
  const auto number = [](double value) { return value == 0 ? std::string() : detail::fixed_text(value, 1); };
  const auto rate = [&](double value, double amount) { return amount == 0 ? std::string() : number(value); };
  constexpr std::size_t columns = 12, longest_name = 44;
  using Line = std::vector<std::string>;
  std::vector<Line> lines{{"operation", "line", "calls", "self ms", "share", "total ms", "mean us", "bytes", "GB/s",
                           "flops", "GFLOP/s", "sent"}};
  for (std::size_t r = 0; r < shown; ++r) {
    const KeyAverage& row = sorted[r];
    std::string name = row.operation;
    if (name.size() > longest_name) name = name.substr(0, longest_name - 3) + "...";
    lines.push_back({name, row.line, std::to_string(row.calls), detail::fixed_text(row.self_ms, 3),
                     detail::fixed_text(100 * row.self_ms / wall_ms, 1) + " %", detail::fixed_text(row.total_ms, 3),
                     detail::fixed_text(row.mean_us(), 1), detail::amount_text(row.bytes, "B"),
                     rate(row.gb_per_s(), row.bytes), detail::amount_text(row.flops, ""),
                     rate(row.gflop_per_s(), row.flops), detail::amount_text(row.sent_bytes, "B")});
  }
  std::string out;
  std::size_t width[columns] = {};
  for (const Line& line : lines)
    for (std::size_t c = 0; c < columns; ++c)  // a column that no row fills is left out
      if (&line != lines.data() && !line[c].empty())
        width[c] = std::max({width[c], line[c].size(), lines[0][c].size()});
  for (const Line& line : lines) {
    std::string text;
    for (std::size_t c = 0; c < columns; ++c) {
      if (width[c] == 0) continue;
      const std::string padding(width[c] - line[c].size(), ' ');
      text += (text.empty() ? "" : "  ") + (c < 2 ? line[c] + padding : padding + line[c]);
    }
    text.resize(text.find_last_not_of(' ') + 1);
    if (!text.empty()) out += text + '\n';
  }
  if (shown < sorted.size()) out += std::to_string(sorted.size() - shown) + " more rows\n";
  double row_ms = 0;
  for (const KeyAverage& row : rows) row_ms += row.self_ms;
  const auto part = [&](double ms) { return detail::time_text(ms, wall_ms); };
  return out + "all " + detail::fixed_text(wall_ms, 2) + " ms: rows " + part(row_ms) + ", planning " +
         part(planning_ms) + " of " + std::to_string(plans) + " programs, runs outside of steps " + part(run_ms) +
         " of " + std::to_string(runs) + ", outside of runs " + part(outside_ms) + '\n';
}
#endif

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
