#ifndef TESSERA_BENCHMARKS_COMPARE_PEER_HPP
#define TESSERA_BENCHMARKS_COMPARE_PEER_HPP

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

// The interface of a peer, a library that one could use instead of Tessera. It includes neither the peer nor Tessera.
namespace compare {

/// One contender's implementation of a row, with its data prepared.
struct Task {
  /// Runs it `repeats` times, and returns the total seconds.
  std::function<double(int repeats)> seconds;
  /// The result of the last run, to be compared with that of other contenders. Empty if it can't be compared.
  std::function<std::vector<float>()> result;

  Task() = default;
  template <class Run>
    requires std::is_invocable_v<Run&>
  explicit Task(Run run, std::function<std::vector<float>()> result_of_run = {})
      : seconds([run = std::move(run)](int repeats) mutable {
          const auto start = std::chrono::steady_clock::now();
          for (int i = 0; i < repeats; ++i) run();
          return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
        }),
        result(std::move(result_of_run)) {}

  explicit operator bool() const { return static_cast<bool>(seconds); }
};

/// c [m, n] = a [m, k] b [k, n], row-major.
struct GemmShape {
  int m, n, k;

  std::string text() const {
    return m == n && n == k ? std::to_string(m) : std::to_string(m) + "x" + std::to_string(n) + "x" + std::to_string(k);
  }
  double flops() const { return 2.0 * m * n * k; }
};

/// Arrays are [batch, time, heads, width].
struct AttentionShape {
  int batch, heads, time, width;

  std::int64_t size() const { return std::int64_t{batch} * heads * time * width; }
};

/// The network that is trained: GELU between three linear layers, mean squared error, plain gradient descent.
struct MlpShape {
  int batch = 256, in = 1024, hidden = 4096, out = 1024;
};

/// A GPT of 5.3 million parameters, cross entropy, AdamW.
struct GptShape {
  int batch = 8, time = 256, classes = 4096, features = 256, heads = 4, layers = 4;
};

/// Arrays are [batch, height, width, features].
struct ImageShape {
  int batch, height, width, features;

  std::string text() const {
    return std::to_string(batch) + "x" + std::to_string(height) + "x" + std::to_string(width) + "x" +
           std::to_string(features);
  }
  std::int64_t size() const { return std::int64_t{batch} * height * width * features; }
};

/// gelu(scale x + shift) mask + x: thirteen operations on each element.
struct ChainInput {
  std::int64_t size;
  const float *x, *mask;
  float scale, shift;
};

/// A peer. Each function prepares a task, or returns an empty one if the library lacks the operation. Arrays that are
/// passed to it outlive the task.
class Peer {
 public:
  virtual ~Peer() = default;
  /// Called once, before anything else.
  virtual void set_threads(int /*threads*/) {}

  virtual Task gemm(const GemmShape&, const float* /*a*/, const float* /*b*/) { return {}; }
  /// A product of bf16 operands, given as bits, with an f32 result.
  virtual Task gemm_bf16(const GemmShape&, const std::uint16_t* /*a*/, const std::uint16_t* /*b*/) { return {}; }
  /// gelu(x w + bias) + residual.
  virtual Task linear(const GemmShape&, const float* /*x*/, const float* /*w*/, const float* /*bias*/,
                      const float* /*residual*/) {
    return {};
  }
  virtual Task chain(const ChainInput&) { return {}; }
  virtual Task softmax(int /*rows*/, int /*columns*/, const float* /*x*/) { return {}; }
  virtual Task layer_norm(int /*rows*/, int /*columns*/, const float* /*x*/, const float* /*gain*/,
                          const float* /*bias*/) {
    return {};
  }
  /// By the statistics of this batch.
  virtual Task batch_norm(const ImageShape&, const float* /*x*/, const float* /*gain*/, const float* /*bias*/) {
    return {};
  }
  /// Windows of 2 x 2, which don't overlap.
  virtual Task max_pool(const ImageShape&, const float* /*x*/) { return {}; }
  virtual Task avg_pool(const ImageShape&, const float* /*x*/) { return {}; }
  /// Losses, mean over all examples: the loss and its gradient with respect to the first array, which is the result.
  virtual Task cross_entropy(int /*rows*/, int /*classes*/, const float* /*logits*/, const std::int32_t* /*targets*/) {
    return {};
  }
  virtual Task mse(std::int64_t /*size*/, const float* /*x*/, const float* /*y*/) { return {}; }
  virtual Task bce_with_logits(std::int64_t /*size*/, const float* /*x*/, const float* /*y*/) { return {}; }
  /// Causal attention and its gradients in the direction `g`; the result is the gradient of q.
  virtual Task attention(const AttentionShape&, const float* /*q*/, const float* /*k*/, const float* /*v*/,
                         const float* /*g*/) {
    return {};
  }
  virtual Task mlp_step(const MlpShape&) { return {}; }
  virtual Task gpt_step(const GptShape&) { return {}; }
  /// The sum of two small square matrices.
  virtual Task small_add(int /*n*/, const float* /*a*/, const float* /*b*/) { return {}; }
  virtual Task small_matmul(int /*n*/, const float* /*a*/, const float* /*b*/) { return {}; }
  /// Collectives among `devices` devices; `bytes` is the size of the array that is reduced or gathered.
  virtual Task all_reduce(int /*devices*/, std::int64_t /*bytes*/) { return {}; }
  virtual Task reduce_scatter(int /*devices*/, std::int64_t /*bytes*/) { return {}; }
  virtual Task all_gather(int /*devices*/, std::int64_t /*bytes*/) { return {}; }
};

/// The function that the module of a peer exports under the name `compare_peer`.
using MakePeer = Peer*();

}  // namespace compare

#endif
