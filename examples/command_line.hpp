#ifndef EXAMPLES_COMMAND_LINE_HPP
#define EXAMPLES_COMMAND_LINE_HPP

#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include <tessera/partition/plan/plan.hpp>

/// The command line of the examples that train a model.
namespace examples {

struct CommandLine {
  int fsdp = 0;                    ///< --fsdp N: on N devices, among which ts::fsdp splits the model. 0: not given
  std::int64_t steps = 0;          ///< --steps N: ends after N steps, and prints the loss of each. 0: not given
  std::vector<std::string> files;  ///< all other arguments

  /// Whether training ends after so many steps.
  bool ends_after(std::int64_t step) const { return steps > 0 && step >= steps; }
  /// Prints the loss of a step, counted from 1, if --steps is given.
  void print_loss(std::int64_t step, double loss) const {
    if (steps > 0) std::printf("step %4lld  loss %.6f\n", static_cast<long long>(step), loss);
  }
  /// Prints what a training step sends, if --fsdp is given.
  void print_collectives(const tessera::Plan& plan) const {
    if (fsdp == 0) return;
    std::map<std::string, long long> counts;
    plan.for_each_collective([&](const tessera::CollectiveInfo& c, std::int64_t times) {
      if (c.kind != tessera::Collective::slice) counts[std::string(tessera::name_of(c.kind))] += times;
    });
    std::printf("collectives of a step:");
    for (const auto& [kind, count] : counts) std::printf(" %lld %s,", count, kind.c_str());
    std::printf(" %lld bytes sent by a device\n", static_cast<long long>(plan.wire_bytes()));
  }
};

/// Errors: std::invalid_argument for other options, and for values that are no number from 1 on.
inline CommandLine parse_command_line(int argc, char** argv, std::size_t most_files) {
  CommandLine line;
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument == "--fsdp" || argument == "--steps") {
      const std::string_view text = i + 1 < argc ? argv[++i] : "";
      const int most = argument == "--fsdp" ? 64 : 1'000'000;
      int value = 0;
      const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
      if (error != std::errc() || end != text.data() + text.size() || value < 1 || value > most)
        throw std::invalid_argument(std::string(argument) + ": '" + std::string(text) + "' is no number from 1 to " +
                                    std::to_string(most));
      if (argument == "--fsdp")
        line.fsdp = value;
      else
        line.steps = value;
    } else if (argument.starts_with("-")) {
      throw std::invalid_argument(std::string(argument) + ": there are only the options --fsdp N and --steps N");
    } else {
      line.files.emplace_back(argument);
    }
  }
  if (line.files.size() > most_files) throw std::invalid_argument(line.files.back() + ": an argument too many");
  return line;
}

/// The main function of an example: body(line) returns its exit code, which is 1 if the body throws. A wrong command
/// line is exit code 2.
inline int run(int argc, char** argv, std::size_t most_files, int (*body)(const CommandLine&)) {
  CommandLine line;
  try {
    line = parse_command_line(argc, argv, most_files);
  } catch (const std::invalid_argument& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 2;
  }
  try {
    return body(line);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}

}  // namespace examples

#endif
