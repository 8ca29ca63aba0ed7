#ifndef TRAIN_GPT_PARSE_OPTIONS_HPP
#define TRAIN_GPT_PARSE_OPTIONS_HPP

#include <charconv>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "options.hpp"
#include <CLI/CLI.hpp>

#include <tessera/base/dtype.hpp>
#include <tessera/base/error.hpp>
#include <tessera/mesh/mesh.hpp>

namespace train_gpt {

namespace detail {

/// A number in [low, high]. Unlike CLI::Range it rejects NaN, and its message contains the given text.
inline CLI::Validator between(double low, double high, const std::string& rule) {
  return CLI::Validator(
      [=](const std::string& text) -> std::string {
        double value = 0;
        if (CLI::detail::lexical_cast(text, value) && value >= low && value <= high) return {};
        return "'" + text + "' is not " + rule;
      },
      "");
}
inline CLI::Validator whole(double low, double high) {
  const auto text = [](double number) { return std::to_string(static_cast<long long>(number)); };
  return between(low, high, "a number from " + text(low) + " to " + text(high));
}
/// Rejects -1, which CLI11 would convert to the largest unsigned number.
inline CLI::Validator unsigned_number() {
  return CLI::Validator(
      [](const std::string& text) -> std::string {
        std::uint64_t value = 0;
        const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
        if (problem == std::errc() && end == text.data() + text.size()) return {};
        return "'" + text + "' is not a number from 0 to 18446744073709551615";
      },
      "");
}

inline StrategyInfo strategy_named(std::string_view name, std::string_view option = "--strategy") {
  std::string known;
  for (const StrategyInfo& info : strategies) {
    if (info.name == name) return info;
    known += (known.empty() ? "" : ", ") + std::string(info.name);
  }
  ts::fail(ts::errc::option, option, ": '", name, "' is none of ", known);
}

/// The strategy of a run without --strategy: it uses every axis of the mesh.
inline StrategyInfo strategy_for(const ts::Mesh& mesh) {
  const bool data = mesh.has_axis("data"), model = mesh.has_axis("model");
  if (mesh.has_axis("pipe"))
    return strategy_named(mesh.has_axis("context") ? "cp+pp"
                          : !mesh.has_axis("fsdp") ? "pp"
                          : model                  ? "fsdp+tp+pp"
                                                   : "fsdp+pp");
  if (data && mesh.has_axis("fsdp")) return strategy_named("hsdp");
  if (mesh.has_axis("context")) return strategy_named("cp");
  if (mesh.has_axis("expert")) return strategy_named("ep");
  return strategy_named(data && model ? "fsdp+tp" : data ? "fsdp" : model ? "tp" : "single");
}

inline ts::Mesh mesh_from(std::string_view text, std::string_view option = "--mesh") {
  constexpr int most_devices = 1024;
  const ts::Mesh mesh = [&] {
    try {
      return ts::parse_mesh(text);
    } catch (const ts::error& e) {
      ts::fail(ts::errc::option, option, ": '", text, "' is no mesh like data=2,model=2: ", e.what());
    }
  }();
  if (mesh.size() > most_devices)
    ts::fail(ts::errc::option, option, ": '", text, "' has ", mesh.size(), " devices, more than ", most_devices);
  return mesh;
}

/// Checks that a mesh has what a strategy needs.
inline void check(const StrategyInfo& strategy, const ts::Mesh& mesh, int microbatches, const Options& o,
                  std::string_view option) {
  for (const std::string_view axis : strategy.axes)
    if (!mesh.has_axis(axis))
      ts::fail(ts::errc::option, option, ": strategy '", strategy.name, "' shards over an axis '", axis, "', which ",
               mesh.text(), " lacks; try ", option, " ", option == "--mesh" ? "" : strategy.name,
               option == "--mesh" ? "" : ":", strategy.default_mesh);
  if (strategy.strategy == Strategy::ring && o.context % (2 * mesh.axis_size(mesh.axis_index("context"))) != 0)
    ts::fail(ts::errc::option, "--context: strategy 'ring' cuts ", o.context, " positions into two chunks for each of ",
             mesh.axis_size(mesh.axis_index("context")), " devices, evenly");
  if (strategy.strategy == Strategy::ep && o.experts == 0)
    ts::fail(ts::errc::option,
             "--experts: strategy 'ep' shares out experts, of which the model has none; try --experts 4");
  if (o.experts > 0)
    for (const Strategy without : {Strategy::zero2, Strategy::ulysses, Strategy::ring})
      if (strategy.strategy == without || is_pipeline(strategy.strategy))
        ts::fail(ts::errc::option, "--experts: strategy '", strategy.name, "' is of the model without experts here");
  if (is_pipeline(strategy.strategy) && o.batch % microbatches != 0)
    ts::fail(ts::errc::option, "--microbatches: ", microbatches, " don't divide --batch ", o.batch, " evenly");
}
/// Checks options that depend on each other.
inline void check(const Options& o) {
  if (o.dim % o.heads != 0)
    ts::fail(ts::errc::option, "--heads: ", o.heads, " heads don't divide --dim ", o.dim, " evenly");
  check(o.strategy, o.mesh, o.microbatches, o, "--mesh");
  for (const Layout& layout : o.compare)
    check(layout.strategy, layout.mesh, layout.microbatches > 0 ? layout.microbatches : o.microbatches, o, "--compare");
  if (!o.csv.empty() && o.csv == o.svg) ts::fail(ts::errc::option, "--svg: '", o.svg, "' is the file of --csv too");
}

/// "tp", "tp:model=4" or "pp:pipe=4:8".
inline Layout layout_from(const std::string& text) {
  const std::size_t colon = text.find(':');
  const StrategyInfo strategy = strategy_named(text.substr(0, colon), "--compare");
  if (colon == std::string::npos) return {strategy, ts::parse_mesh(strategy.default_mesh), 0};
  const std::size_t second = text.find(':', colon + 1);
  Layout layout{strategy, mesh_from(text.substr(colon + 1, second - colon - 1), "--compare"), 0};
  if (second == std::string::npos) return layout;
  const char *first = text.data() + second + 1, *last = text.data() + text.size();
  const auto [end, problem] = std::from_chars(first, last, layout.microbatches);
  if (problem != std::errc() || end != last || layout.microbatches < 1)
    ts::fail(ts::errc::option, "--compare: '", text.substr(second + 1), "' is not a number of microbatches");
  return layout;
}

}  // namespace detail

/// Reads the command line; nothing after --help. Errors: `option`, with a message that names the option and its value.
inline std::optional<Options> parse_options(int argc, const char* const* argv) {
  using detail::between;
  using detail::whole;
  constexpr int large = 1'000'000, huge = 1'000'000'000;
  Options o;
  std::string mesh, strategy, dtype = "f32";
  std::vector<std::string> compare;

  CLI::App app{"Trains a character-level GPT on text files, sharded over a mesh of virtual devices, and then\n"
               "generates text. Without --text it reads the sources and documents of this project.",
               "train_gpt"};
  app.get_formatter()->column_width(28);
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);  // a script's options can be overridden
  const auto section = [&](const std::string& name) { app.option_defaults()->group(name); };
  const auto count = [&](const std::string& name, int& value, const CLI::Validator& range, const std::string& help) {
    app.add_option(name, value, help)->type_name("N")->check(range)->capture_default_str();
  };
  const auto number = [&](const std::string& name, double& value, const CLI::Validator& range,
                          const std::string& help) {
    app.add_option(name, value, help)->type_name("X")->check(range)->capture_default_str();
  };
  const auto word = [&](const std::string& name, auto& value, const std::string& type, const std::string& help) {
    app.add_option(name, value, help)->type_name(type);
  };

  section("Data");
  app.add_option("--text", o.text, "UTF-8 text; may be given several times")
      ->type_name("FILE")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  app.add_option("--seed", o.seed, "Seed of parameters, batches and sample")
      ->type_name("N")
      ->check(detail::unsigned_number())
      ->capture_default_str();

  section("Model");
  count("--layers", o.layers, whole(1, 10'000), "Transformer blocks");
  count("--dim", o.dim, whole(1, large), "Width of the residual stream");
  count("--heads", o.heads, whole(1, large), "Attention heads; they divide --dim");
  count("--experts", o.experts, whole(0, 10'000),
        "Experts of each layer, in place of the MLP; default: 4 for ep, else none");
  count("--context", o.context, whole(1, large), "Characters that the model sees for a prediction");

  section("Training");
  count("--batch", o.batch, whole(1, large), "Windows of text in a training step");
  count("--microbatches", o.microbatches, whole(1, large), "Parts of a batch that go through a pipeline one by one");
  count("--steps", o.steps, whole(1, huge), "Training steps, with AdamW");
  count("--warmup", o.warmup, whole(0, huge), "Steps until the full learning rate");
  number("--lr", o.lr, between(1e-12, 100, "a number above 0, at most 100"), "Highest learning rate");
  number("--clip", o.clip, between(1e-12, 1e12, "a number above 0"), "Largest norm of the gradient");

  word("--dtype", dtype, "TYPE", "Element type of activations: f32, or bf16 with parameters in f32");

  section("Layout");
  word("--strategy", strategy, "NAME",
       "single; dp, zero1, zero2, fsdp, hsdp; tp, sp, fsdp+tp; cp, ulysses, ring; pp, dp+pp, tp+pp, fsdp+pp, "
       "fsdp+tp+pp, cp+pp; ep; "
       "default: all axes of the "
       "mesh");
  word("--mesh", mesh, "MESH", "Devices by axis, like data=2,model=2; default: the strategy's");
  app.add_option("--threads", o.threads, "Threads that run the devices; default: all processors")
      ->type_name("N")
      ->check(whole(1, 4096));

  app.add_option("--compare", compare,
                 "Trains with each strategy, and prints one table; a mesh follows a colon, and "
                 "microbatches another one")
      ->type_name("NAME[:MESH[:N]] ...")
      ->expected(1, 64)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);

  section("Output");
  word("--csv", o.csv, "FILE", "Writes step,loss,tokens_per_second");
  word("--svg", o.svg, "FILE", "Draws the loss curve");
  app.add_flag("--explain", o.explain, "Prints the plan of a training step");
  count("--sample", o.sample, whole(0, large), "Characters of text to generate at the end");
  word("--prompt", o.prompt, "TEXT", "Text that the generated text continues");
  number("--temperature", o.temperature, between(0, 100, "a number from 0 to 100"),
         "Randomness of the generated text; 0: none");

  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp& help) {
    app.exit(help);
    return std::nullopt;
  } catch (const CLI::ParseError& e) {
    ts::fail(ts::errc::option, e.what(), "; see --help");
  }

  if (dtype == "bf16")
    o.dtype = ts::DType::bf16;
  else if (dtype != "f32")
    ts::fail(ts::errc::option, "--dtype: '", dtype, "' is none of f32, bf16");
  if (!strategy.empty()) o.strategy = detail::strategy_named(strategy);
  if (!mesh.empty()) o.mesh = detail::mesh_from(mesh);
  if (mesh.empty())
    o.mesh = ts::parse_mesh(o.strategy.default_mesh);
  else if (strategy.empty())
    o.strategy = detail::strategy_for(o.mesh);
  for (const std::string& layout : compare) o.compare.push_back(detail::layout_from(layout));
  for (const char* single : {"--strategy", "--mesh", "--csv", "--svg", "--explain"})
    if (!compare.empty() && app.count(single) > 0)
      ts::fail(ts::errc::option, single, ": is of one run, and can't be combined with --compare");
  bool shares_experts = o.strategy.strategy == Strategy::ep;
  for (const Layout& layout : o.compare) shares_experts = shares_experts || layout.strategy.strategy == Strategy::ep;
  if (shares_experts && app.count("--experts") == 0) o.experts = 4;
  detail::check(o);
  return o;
}

}  // namespace train_gpt

#endif
