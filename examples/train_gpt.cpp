// Shows a whole program: trains a character-level GPT on text files, sharded over a mesh of virtual devices.
// docs/train_gpt.md describes its options and explains what it prints.
//
//   train_gpt --mesh data=2,model=2 --strategy fsdp+tp --steps 500 --svg loss.svg
//   train_gpt --compare single dp zero2 fsdp tp ring --steps 50 --sample 0

#include <chrono>
#include <csignal>
#include <cstdio>
#include <exception>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "train_gpt/chart.hpp"
#include "train_gpt/comparison.hpp"
#include "train_gpt/data.hpp"
#include "train_gpt/generate.hpp"
#include "train_gpt/parse_options.hpp"
#include "train_gpt/progress.hpp"
#include "train_gpt/report.hpp"
#include "train_gpt/trainer.hpp"

#include <tessera/nn/parameters.hpp>
#include <tessera/optim/schedule/schedule.hpp>
#include <tessera/runtime/threads/team.hpp>

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

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

std::string layout_text(const Options& o) {
  return std::string(o.strategy.name) + (o.mesh.size() > 1 ? " on " + o.mesh.text() : "");
}
std::string model_text(const Options& o, std::int64_t parameters) {
  return ts::concat_text(grouped(parameters), " parameters: ", o.layers, " layers, dim ", o.dim, ", ", o.heads,
                         " heads, context ", o.context, o.experts > 0 ? ", " + counted(o.experts, "expert") : "",
                         o.dtype == ts::DType::bf16 ? ", computed in bf16" : "");
}
std::int64_t batch_bytes(const PlacedBatch& batch) {
  return ts::nn::parameter_bytes_per_device(std::tuple(batch.inputs, batch.targets));
}

/// Plans a training step without running it, and prints the memory and the communication of the plan.
void print_plan(const Options& o, const Trainer& trainer, const PlacedBatch& batch) {
  const auto start = std::chrono::steady_clock::now();
  const ts::Plan plan = trainer.plan(batch);
  const double seconds = seconds_since(start);
  if (o.explain) std::printf("\n%s\n", trainer.explain(batch).c_str());

  const std::int64_t parameters = trainer.parameter_bytes(), state = trainer.state_bytes(), own = batch_bytes(batch);
  char planned[64];
  std::snprintf(planned, sizeof planned, "%zu steps, made in %.0f ms", plan.main().steps.size(), 1000 * seconds);
  print_row("plan", planned);
  print_row("bytes per device", grouped(parameters + state + own) + " stored, " +
                                    grouped(predicted_argument_bytes(plan)) + " predicted: parameters " +
                                    bytes_text(parameters) + ", optimizer " + bytes_text(state) + ", batch " +
                                    bytes_text(own));
  print_row("scratch", bytes_text(plan.main().arena_bytes) + " for all devices together");
  print_communication(plan);
  std::printf("\n");
}

/// Trains until the last step or Ctrl-C, and calls done(step, loss, seconds) after each step, counted from 1.
template <class Done> void train(const Options& o, Trainer& trainer, const Batches& batches, const Done& done) {
  for (int step = 1; step <= o.steps && !Interrupt::requested; ++step) {
    const PlacedBatch batch = trainer.place(batches(step));
    const auto start = std::chrono::steady_clock::now();
    const double rate = ts::optim::warmup_cosine(step - 1, o.warmup, o.steps, o.lr, o.lr / 10);
    const double loss = trainer.step(batch, rate);
    done(step, loss, seconds_since(start));
  }
}

void print_sample(const Options& o, const Trainer& model, const Vocabulary& vocabulary, Tokens prompt, ts::Key key) {
  std::printf("\n%s", printable(vocabulary.decode(prompt)).c_str());
  Generator generator(model, std::move(prompt), o.context, o.temperature, key);
  for (int i = 0; i < o.sample && !Interrupt::requested; ++i) {
    std::fputs(printable(vocabulary.decode({generator.next()})).c_str(), stdout);
    std::fflush(stdout);
  }
  std::printf("\n");
}

/// Trains with each strategy of --compare, and prints a table.
void compare(Options o, ts::Key model_key, const Corpus& corpus, const Batches& batches) {
  std::vector<Comparison> rows;
  std::vector<double> first;  // the losses of the first row
  const int microbatches = o.microbatches;
  Interrupt::arm();
  for (const Layout& layout : o.compare) {
    o.strategy = layout.strategy;
    o.mesh = layout.mesh;
    o.microbatches = layout.microbatches > 0 ? layout.microbatches : microbatches;
    const auto trainer = make_trainer(model_key, corpus.vocabulary.size(), o);
    const PlacedBatch batch = trainer->place(batches(1));
    const ts::Plan plan = trainer->plan(batch);
    Comparison row(layout.strategy.name, layout.mesh, plan);
    if (is_pipeline(layout.strategy.strategy)) row.set_pipeline(o, plan);
    row.stored = trainer->parameter_bytes() + trainer->state_bytes() + batch_bytes(batch);
    std::vector<double> losses, times;
    train(o, *trainer, batches, [&](int, double loss, double seconds) {
      losses.push_back(loss);
      times.push_back(seconds);
    });
    if (Interrupt::requested) break;
    if (rows.empty()) {
      first = losses;
      print_row("model", model_text(o, trainer->parameter_count()));
      print_header();
    }
    row.set_losses(losses, first);
    row.set_rate(static_cast<double>(o.batch) * o.context, times);
    row.print();
    rows.push_back(row);
  }
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
  print_row("text", counted(corpus.files, "file") + ", " + counted(std::ssize(corpus.tokens), "character") + ", " +
                        grouped(corpus.vocabulary.size()) + " distinct");
  if (!o.compare.empty()) return compare(o, model_key, corpus, batches);

  const auto trainer = make_trainer(model_key, corpus.vocabulary.size(), o);
  const std::string model = model_text(o, trainer->parameter_count());
  print_row("model", model);
  print_row("layout",
            layout_text(o) + ": " + counted(o.mesh.size(), "device") + " on " + counted(ts::parallelism(), "thread"));
  print_plan(o, *trainer, trainer->place(batches(1)));

  Interrupt::arm();
  const std::int64_t tokens = std::int64_t{o.batch} * o.context;
  Progress progress(o.steps, tokens);
  std::vector<double> losses;
  train(o, *trainer, batches, [&](int step, double loss, double seconds) {
    losses.push_back(loss);
    csv.add(step, loss, static_cast<double>(tokens) / seconds);
    progress.add(step, loss, seconds);
  });
  progress.end();
  if (Interrupt::requested) std::printf("stopped after step %zu\n", losses.size());
  svg.write(LossChart("Training loss: " + layout_text(o), model).svg(losses));

  Interrupt::arm();
  if (o.sample > 0) print_sample(o, *trainer, corpus.vocabulary, std::move(prompt), sample_key);
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
