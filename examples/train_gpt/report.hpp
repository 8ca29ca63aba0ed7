#ifndef TRAIN_GPT_REPORT_HPP
#define TRAIN_GPT_REPORT_HPP

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "text.hpp"

#include <tessera/base/error.hpp>
#include <tessera/partition/plan/plan.hpp>

namespace train_gpt {

namespace ts = tessera;

/// A file that a run writes. It is opened before training, so that a file that can't be written is reported at once.
class OutputFile {
 public:
  /// Errors: `file` if the file can't be written, or is one of the texts that are read.
  OutputFile(std::string_view option, const std::string& path, const std::vector<std::string>& inputs)
      : name_(std::string(option) + ": " + path) {
    if (path.empty()) return;
    std::error_code ignored;
    for (const std::string& input : inputs)
      if (std::filesystem::equivalent(path, input, ignored))
        ts::fail(ts::errc::file, name_, ": would overwrite the text that is read");
    file_.open(path, std::ios::binary);
    if (!file_) ts::fail(ts::errc::file, name_, ": can't be written");
  }

  /// Errors: `file` when the disk is full.
  void write(std::string_view text) {
    if (!file_.is_open()) return;
    file_ << text << std::flush;
    if (!file_) ts::fail(ts::errc::file, name_, ": writing failed");
  }

 private:
  std::string name_;
  std::ofstream file_;
};

/// "step,loss,tokens_per_second", a row for each step.
class CsvLog {
 public:
  explicit CsvLog(OutputFile file) : file_(std::move(file)) { file_.write("step,loss,tokens_per_second\n"); }

  void add(int step, double loss, double tokens_per_second) {
    char row[96];
    std::snprintf(row, sizeof row, "%d,%.6f,%.0f\n", step, loss, tokens_per_second);
    file_.write(row);
  }

 private:
  OutputFile file_;
};

inline std::string counted(std::int64_t number, const std::string& thing) {
  return grouped(number) + " " + thing + (number == 1 ? "" : "s");
}
inline void print_row(const char* name, const std::string& text) { std::printf("%-18s%s\n", name, text.c_str()); }

/// Bytes of a plan's arguments, on the device that stores most of them.
inline std::int64_t predicted_argument_bytes(const ts::Plan& plan) {
  std::int64_t bytes = 0;
  for (const std::int32_t value : plan.main().arguments)
    if (value >= 0) bytes += plan.main().values[static_cast<std::size_t>(value)].device_bytes;
  return bytes;
}

/// The collectives of a plan of one kind over the same axes.
struct CollectiveTotal {
  ts::Collective kind;
  unsigned axes;
  std::int64_t count = 0, payload = 0, wire = 0;
};
inline std::vector<CollectiveTotal> collective_totals(const ts::Plan& plan) {
  std::vector<CollectiveTotal> totals;
  plan.for_each_collective([&](const ts::CollectiveInfo& c, std::int64_t times) {
    if (c.kind == ts::Collective::slice) return;  // each device keeps a part of what it has
    auto at = std::find_if(totals.begin(), totals.end(),
                           [&](const CollectiveTotal& t) { return t.kind == c.kind && t.axes == c.axes; });
    if (at == totals.end()) at = totals.insert(at, {c.kind, c.axes});
    at->count += times;
    at->payload += times * c.payload_bytes;
    at->wire += times * c.wire_bytes;
  });
  return totals;
}

/// Prints the collectives of a plan by kind and axes: their number, their payload, and the bytes that a device sends.
inline void print_communication(const ts::Plan& plan) {
  const std::vector<CollectiveTotal> totals = collective_totals(plan);
  if (totals.empty()) return print_row("collectives", "none");
  std::printf("%-18s%8s  %-16s%-12s%16s%16s\n", "collectives", "per step", "kind", "over", "payload, bytes",
              "sent, bytes");
  for (const CollectiveTotal& total : totals) {
    std::string axes;
    for (int axis = 0; axis < plan.mesh.rank(); ++axis)
      if ((total.axes >> axis & 1) != 0)
        axes += (axes.empty() ? "" : ",") + std::string(plan.mesh.axis_name(axis).view());
    std::printf("%-18s%8s  %-16s%-12s%16s%16s\n", "", grouped(total.count).c_str(),
                std::string(ts::name_of(total.kind)).c_str(), axes.c_str(), grouped(total.payload).c_str(),
                grouped(total.wire).c_str());
  }
}

}  // namespace train_gpt

#endif
