#include "trainer_of.hpp"

#include <tessera/parallel/fsdp.hpp>

namespace train_gpt {

constexpr ts::FsdpPolicy zero2{.axis = "data", .reshard_after_forward = false};

std::unique_ptr<Trainer> make_zero2_trainer(ts::Key key, int classes, const Options& o) {
  return trainer_of(o, [&]<class T>() {
    return ts::fsdp<zero2>(make_gpt<T>(key, classes, o, strategy_of(o.strategy.strategy, o.mesh)), o.mesh);
  });
}

}  // namespace train_gpt
