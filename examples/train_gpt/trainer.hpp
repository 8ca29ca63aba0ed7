#ifndef TRAIN_GPT_TRAINER_HPP
#define TRAIN_GPT_TRAINER_HPP

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "data.hpp"
#include "options.hpp"

#include <tessera/graph/trace/sharded_tensor.hpp>
#include <tessera/mesh/mesh.hpp>
#include <tessera/partition/plan/plan.hpp>
#include <tessera/tensor/key.hpp>

namespace train_gpt {

/// A batch in the shards of a mesh, [B, T] each.
struct PlacedBatch {
  ts::ShardedTensor<std::int32_t, 2> inputs, targets;
};

/// A model in training under one strategy. Strategies that change the model, by a wrapper or another attention, have
/// compiled programs of their own, and with them classes that derive from this one.
class Trainer {
 public:
  virtual ~Trainer() = default;

  virtual PlacedBatch place(const Batch& batch) const = 0;
  /// The plan of a step, and its text.
  virtual ts::Plan plan(const PlacedBatch& batch) const = 0;
  virtual std::string explain(const PlacedBatch& batch) const = 0;
  /// Trains for a step; returns the loss.
  virtual double step(const PlacedBatch& batch, double learning_rate) = 0;

  virtual std::int64_t parameter_count() const = 0;
  /// On the device that stores most of them.
  virtual std::int64_t parameter_bytes() const = 0;
  virtual std::int64_t state_bytes() const = 0;

  /// The logits [1, T, V] of the characters after each of [1, T] characters.
  virtual std::vector<float> logits(const Tokens& window) const = 0;
};

// In the files *_trainer.cpp.
std::unique_ptr<Trainer> make_plain_trainer(ts::Key key, int classes, const Options& options);
std::unique_ptr<Trainer> make_zero2_trainer(ts::Key key, int classes, const Options& options);
std::unique_ptr<Trainer> make_ulysses_trainer(ts::Key key, int classes, const Options& options);
std::unique_ptr<Trainer> make_ring_trainer(ts::Key key, int classes, const Options& options);
std::unique_ptr<Trainer> make_pipeline_trainer(ts::Key key, int classes, const Options& options);
std::unique_ptr<Trainer> make_fsdp_pipeline_trainer(ts::Key key, int classes, const Options& options);
std::unique_ptr<Trainer> make_expert_trainer(ts::Key key, int classes, const Options& options);

/// A trainer for the strategy of the options, with parameters that depend only on the key.
inline std::unique_ptr<Trainer> make_trainer(ts::Key key, int classes, const Options& options) {
  if (options.experts > 0) return make_expert_trainer(key, classes, options);
  switch (options.strategy.strategy) {
    case Strategy::zero2:
      return make_zero2_trainer(key, classes, options);
    case Strategy::ulysses:
      return make_ulysses_trainer(key, classes, options);
    case Strategy::ring:
      return make_ring_trainer(key, classes, options);
    case Strategy::pp:
    case Strategy::cp_pp:
      return make_pipeline_trainer(key, classes, options);
    case Strategy::fsdp_pp:
      return make_fsdp_pipeline_trainer(key, classes, options);
    default:
      return make_plain_trainer(key, classes, options);
  }
}

}  // namespace train_gpt

#endif
