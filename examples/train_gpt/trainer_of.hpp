#ifndef TRAIN_GPT_TRAINER_OF_HPP
#define TRAIN_GPT_TRAINER_OF_HPP

#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "gpt.hpp"
#include "trainer.hpp"

#include <tessera/parallel/state/state_dict.hpp>
#include <tessera/tessera.hpp>

namespace train_gpt {

/// Logits of the character after each position.
inline constexpr auto predict = ts::compile([](auto model, auto tokens) { return model(tokens); });

template <class Model> class TrainerOf final : public Trainer {
 public:
  TrainerOf(Model model, const Options& o)
      : strategy_(strategy_of(o.strategy.strategy, o.mesh)), shape_{o.batch, o.context}, model_(std::move(model)) {
    config_.adamw.beta2 = 0.99;
    config_.clip = o.clip;
    state_ = o.strategy.strategy == Strategy::zero1
                 ? ts::optim::init_state(config_.adamw, model_, ts::optim::ZeroRedundancy{"data"})
                 : ts::optim::init_state(config_.adamw, model_);
  }

  PlacedBatch place(const Batch& batch) const override {
    const auto on_mesh = [&](const Tokens& values) {
      return ts::shard<2>(values, shape_, strategy_.mesh, strategy_.batch);
    };
    return {on_mesh(batch.inputs), on_mesh(batch.targets)};
  }
  ts::Plan plan(const PlacedBatch& batch) const override {
    return train_step.plan(model_, state_, batch.inputs, batch.targets, config_);
  }
  std::string explain(const PlacedBatch& batch) const override {
    return train_step.explain(model_, state_, batch.inputs, batch.targets, config_);
  }
  double step(const PlacedBatch& batch, double learning_rate) override {
    config_.adamw.learning_rate = learning_rate;
    auto [model, state, loss] = train_step(std::move(model_), std::move(state_), batch.inputs, batch.targets, config_);
    model_ = std::move(model);
    state_ = std::move(state);
    return ts::item(loss);
  }

  std::int64_t parameter_count() const override { return ts::nn::parameter_count(model_); }
  std::int64_t parameter_bytes() const override { return ts::nn::parameter_bytes_per_device(model_); }
  std::int64_t state_bytes() const override { return ts::nn::parameter_bytes_per_device(state_); }

  std::vector<float> logits(const Tokens& window) const override {
    const auto length = static_cast<std::int64_t>(window.size());
    return ts::to_host(ts::cast<float>(predict(model_, ts::shard(window, {1, length}, strategy_.mesh))));
  }

 private:
  ts::nn::ShardingStrategy strategy_;
  ts::Shape shape_;
  Model model_;
  Options options_;
  TrainConfig config_;
  ts::optim::AdamWState<Model> state_;
};

/// A trainer of the model that make(key, type of activations) gives.
template <class Make> std::unique_ptr<Trainer> trainer_of(const Options& o, const Make& make) {
  const auto of = [&]<class T>(std::type_identity<T>) -> std::unique_ptr<Trainer> {
    auto model = make.template operator()<T>();
    return std::make_unique<TrainerOf<decltype(model)>>(std::move(model), o);
  };
  if (o.dtype == ts::DType::bf16) return of(std::type_identity<ts::bf16>());
  return of(std::type_identity<float>());
}

}  // namespace train_gpt

#endif
