// Shows a whole program: trains a character-level GPT on text files, sharded over a mesh of virtual devices.
// docs/train_gpt.md describes its options and explains what it prints.
//
//   train_gpt --mesh data=2,model=2 --strategy fsdp+tp --steps 500 --svg loss.svg

#include <chrono>
#include <csignal>
#include <cstdio>
#include <exception>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "train_gpt/chart.hpp"
#include "train_gpt/data.hpp"
#include "train_gpt/generate.hpp"
#include "train_gpt/gpt.hpp"
#include "train_gpt/options.hpp"
#include "train_gpt/progress.hpp"
#include "train_gpt/report.hpp"

#include <tessera/tessera.hpp>

namespace train_gpt {

/// The first Ctrl-C ends the run after the current step, a second Ctrl-C ends the process at once.
struct Interrupt {
  static inline volatile std::sig_atomic_t requested = 0;

  static void arm() {
    requested = 0;
    std::signal(SIGINT, [](int) {
      requested = 1;
      std::signal(SIGINT, SIG_DFL);
    });
  }
};

/// Everything that changes from step to step.
struct Training {
  Gpt model;
  ts::optim::AdamWState<Gpt> state;
  TrainConfig config;
};

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

std::string layout_text(const Options& o) {
  return std::string(o.strategy.name) + (o.mesh.size() > 1 ? " on " + o.mesh.text() : "");
}
std::string model_text(const Options& o, const Gpt& model) {
  return ts::concat_text(grouped(ts::nn::parameter_count(model)), " parameters: ", o.layers, " layers, dim ", o.dim,
                         ", ", o.heads, " heads, context ", o.context,
                         o.dtype == ts::DType::bf16 ? ", computed in bf16" : "");
}

/// Plans a training step without running it, and prints the memory and the communication of the plan.
template <ts::Element T>
void print_plan(const Options& o, const Training& training, const auto& inputs, const auto& targets) {
  const auto start = std::chrono::steady_clock::now();
  const ts::Plan& plan = train_step<T>.plan(training.model, training.state, inputs, targets, training.config);
  const double seconds = seconds_since(start);
  if (o.explain) {
    const std::string text = train_step<T>.explain(training.model, training.state, inputs, targets, training.config);
    std::printf("\n%s\n", text.c_str());
  }

  const std::int64_t parameters = ts::nn::parameter_bytes_per_device(training.model);
  const std::int64_t state = ts::nn::parameter_bytes_per_device(training.state);
  const std::int64_t batch = ts::nn::parameter_bytes_per_device(std::tuple(inputs, targets));
  char planned[64];
  std::snprintf(planned, sizeof planned, "%zu steps, made in %.0f ms", plan.main().steps.size(), 1000 * seconds);
  print_row("plan", planned);
  print_row("bytes per device", grouped(parameters + state + batch) + " stored, " +
                                    grouped(predicted_argument_bytes(plan)) + " predicted: parameters " +
                                    bytes_text(parameters) + ", optimizer " + bytes_text(state) + ", batch " +
                                    bytes_text(batch));
  print_row("scratch", bytes_text(plan.main().arena_bytes) + " for all devices together");
  print_communication(plan);
  std::printf("\n");
}

/// Trains until the last step or Ctrl-C, computing in T. Returns the loss of each step.
template <ts::Element T>
std::vector<double> train(const Options& o, Training& training, const Batches& batches,
                          const ts::nn::ShardingStrategy& strategy, CsvLog csv) {
  const std::int64_t tokens = std::int64_t{o.batch} * o.context;
  const auto on_mesh = [&](const Tokens& values) {
    return ts::shard(values, {o.batch, o.context}, strategy.mesh, strategy.batch);  // [B/data, T]
  };
  Progress progress(o.steps, tokens);
  std::vector<double> losses;
  for (int step = 1; step <= o.steps && !Interrupt::requested; ++step) {
    const Batch batch = batches(step);
    const auto inputs = on_mesh(batch.inputs), targets = on_mesh(batch.targets);
    if (step == 1) print_plan<T>(o, training, inputs, targets);

    const auto start = std::chrono::steady_clock::now();
    training.config.adamw.learning_rate = ts::optim::warmup_cosine(step - 1, o.warmup, o.steps, o.lr, o.lr / 10);
    auto [model, state, loss] =
        train_step<T>(std::move(training.model), std::move(training.state), inputs, targets, training.config);
    training.model = std::move(model);
    training.state = std::move(state);
    const double seconds = seconds_since(start);

    losses.push_back(ts::item(loss));
    csv.add(step, losses.back(), static_cast<double>(tokens) / seconds);
    progress.add(step, losses.back(), seconds);
  }
  progress.end();
  return losses;
}

void print_sample(const Options& o, const Gpt& model, const Vocabulary& vocabulary, Tokens prompt, ts::Key key) {
  std::printf("\n%s", printable(vocabulary.decode(prompt)).c_str());
  Generator generator(model, std::move(prompt), o.context, o.temperature, key);
  for (int i = 0; i < o.sample && !Interrupt::requested; ++i) {
    std::fputs(printable(vocabulary.decode({generator.next()})).c_str(), stdout);
    std::fflush(stdout);
  }
  std::printf("\n");
}

void run(const Options& o) {
  const auto [model_key, batch_key, sample_key] = ts::split<3>(ts::Key(o.seed));
  const Corpus corpus = read_corpus(o.text, TESSERA_SOURCE_DIR);
  const Batches batches(corpus.tokens, o.batch, o.context, batch_key);
  Tokens prompt = corpus.vocabulary.encode(decode(o.prompt, "--prompt"), "--prompt");
  if (prompt.empty()) prompt.push_back(corpus.tokens.front());
  CsvLog csv(OutputFile("--csv", o.csv, o.text));
  OutputFile svg("--svg", o.svg, o.text);

  if (o.threads > 0) ts::set_parallelism(o.threads);
  const ts::nn::ShardingStrategy strategy = strategy_of(o);
  Training training;
  training.model = make_gpt(model_key, corpus.vocabulary.size(), o, strategy);
  training.config.adamw.beta2 = 0.99;
  training.config.clip = o.clip;
  training.state = ts::optim::init_state(training.config.adamw, training.model);

  print_row("text", counted(corpus.files, "file") + ", " + counted(std::ssize(corpus.tokens), "character") + ", " +
                        grouped(corpus.vocabulary.size()) + " distinct");
  print_row("model", model_text(o, training.model));
  print_row("layout",
            layout_text(o) + ": " + counted(o.mesh.size(), "device") + " on " + counted(ts::parallelism(), "thread"));

  Interrupt::arm();
  const std::vector<double> losses = o.dtype == ts::DType::bf16
                                         ? train<ts::bf16>(o, training, batches, strategy, std::move(csv))
                                         : train<float>(o, training, batches, strategy, std::move(csv));
  if (Interrupt::requested) std::printf("stopped after step %zu\n", losses.size());
  svg.write(LossChart("Training loss: " + layout_text(o), model_text(o, training.model)).svg(losses));

  Interrupt::arm();
  if (o.sample > 0) print_sample(o, training.model, corpus.vocabulary, std::move(prompt), sample_key);
}

}  // namespace train_gpt

int main(int argc, char** argv) {
  try {
    if (const auto options = train_gpt::parse_options(argc, argv)) train_gpt::run(*options);
    return 0;
  } catch (const tessera::error& e) {
    std::fprintf(stderr, "train_gpt: %s\n", e.what());
    return 2;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "train_gpt: %s\n", e.what());
    return 1;
  }
}
