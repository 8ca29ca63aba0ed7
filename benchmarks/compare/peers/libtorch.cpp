#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "../peer.hpp"
#include <torch/torch.h>

#ifdef COMPARE_LIBTORCH_USES_ONEDNN
#include <dnnl.h>

// Replaces the BLAS that libtorch was linked with by oneDNN, its fastest backend here: the linker finds this sgemm_
// first. BLAS is column-major and dnnl_sgemm row-major, so it multiplies the transposes.
extern "C" void sgemm_(const char* transpose_a, const char* transpose_b, const int* m, const int* n, const int* k,
                       const float* alpha, const float* a, const int* lda, const float* b, const int* ldb,
                       const float* beta, float* c, const int* ldc) {
  dnnl_sgemm(*transpose_b, *transpose_a, *n, *m, *k, *alpha, b, *ldb, a, *lda, *beta, c, *ldc);
}
#endif

namespace {

using compare::AttentionShape;
using compare::ChainInput;
using compare::GptShape;
using compare::ImageShape;
using compare::MlpShape;
using compare::Task;
using torch::Tensor;
namespace nn = torch::nn;

Tensor view(const float* data, at::IntArrayRef shape) { return torch::from_blob(const_cast<float*>(data), shape); }

std::vector<float> values_of(const Tensor& x) {
  const Tensor flat = x.detach().contiguous();
  return {flat.data_ptr<float>(), flat.data_ptr<float>() + flat.numel()};
}

/// Runs f without recording for autograd.
template <class F> Task inference(const std::shared_ptr<Tensor>& y, F f) {
  return Task(
      [=] {
        const torch::NoGradGuard no_gradients;
        f(*y);
      },
      [=] { return values_of(*y); });
}

/// A channels-last tensor, which libtorch's kernels vectorise along the features.
Tensor images(const ImageShape& s, const float* data) {
  return view(data, {s.batch, s.height, s.width, s.features}).permute({0, 3, 1, 2});
}
template <class F> Task of_images(F f) {
  const auto y = std::make_shared<Tensor>();
  return Task(
      [=] {
        const torch::NoGradGuard no_gradients;
        *y = f();
      },
      [=] {
        return values_of(y->permute({0, 2, 3, 1}));
      });
}
/// A loss and its gradient.
template <class Loss> Task gradient_of(const Tensor& input, Loss loss) {
  const Tensor x = input.detach().requires_grad_();
  const auto gradient = std::make_shared<Tensor>();
  return Task([=] { *gradient = torch::autograd::grad({loss(x)}, {x})[0]; }, [=] { return values_of(*gradient); });
}

struct BlockImpl : nn::Module {
  nn::LayerNorm before_attention, before_mlp;
  nn::Linear qkv, out, up, down;
  std::int64_t heads;

  BlockImpl(std::int64_t features, std::int64_t head_count)
      : before_attention(register_module("before_attention", nn::LayerNorm(nn::LayerNormOptions({features})))),
        before_mlp(register_module("before_mlp", nn::LayerNorm(nn::LayerNormOptions({features})))),
        qkv(register_module("qkv", nn::Linear(features, 3 * features))),
        out(register_module("out", nn::Linear(features, features))),
        up(register_module("up", nn::Linear(features, 4 * features))),
        down(register_module("down", nn::Linear(4 * features, features))), heads(head_count) {}

  Tensor forward(const Tensor& x, const Tensor& mask) {
    const auto batch = x.size(0), time = x.size(1), features = x.size(2), width = features / heads;
    const auto parts = qkv(before_attention(x)).view({batch, time, 3, heads, width}).permute({2, 0, 3, 1, 4});
    const double scale = 1 / std::sqrt(static_cast<double>(width));
    const auto scores = torch::matmul(parts[0], parts[1].transpose(-2, -1)) * scale + mask;
    const auto mixed = torch::matmul(torch::softmax(scores, -1), parts[2]);
    const auto y = x + out(mixed.transpose(1, 2).reshape({batch, time, features}));
    return y + down(torch::gelu(up(before_mlp(y)), "tanh"));
  }
};
TORCH_MODULE(Block);

struct GptImpl : nn::Module {
  nn::Embedding tokens, positions;
  std::vector<Block> blocks;
  nn::LayerNorm norm;
  nn::Linear head;
  Tensor mask, places;

  explicit GptImpl(const GptShape& s)
      : tokens(register_module("tokens", nn::Embedding(s.classes, s.features))),
        positions(register_module("positions", nn::Embedding(s.time, s.features))),
        norm(register_module("norm", nn::LayerNorm(nn::LayerNormOptions({s.features})))),
        head(register_module("head", nn::Linear(nn::LinearOptions(s.features, s.classes).bias(false)))),
        mask(torch::full({s.time, s.time}, -std::numeric_limits<float>::infinity()).triu(1)),
        places(torch::arange(s.time)) {
    for (int i = 0; i < s.layers; ++i)
      blocks.push_back(register_module("block" + std::to_string(i), Block(s.features, s.heads)));
  }

  Tensor forward(const Tensor& x) {
    Tensor y = tokens(x) + positions(places);
    for (Block& block : blocks) y = block(y, mask);
    return head(norm(y));
  }
};
TORCH_MODULE(Gpt);

class LibTorch : public compare::Peer {
 public:
  void set_threads(int threads) override { at::set_num_threads(threads); }

  // In place, which is fastest for libtorch: each operation that allocates its result pays for page faults.
  Task chain(const ChainInput& in) override {
    const Tensor x = view(in.x, {in.size}), mask = view(in.mask, {in.size}), t = torch::empty({in.size});
    const auto scale = at::scalar_tensor(in.scale);
    return inference(std::make_shared<Tensor>(torch::empty({in.size})), [=, shift = in.shift](Tensor& y) {
      Tensor u = t;
      at::mul_out(u, x, scale).add_(shift);
      at::gelu_out(y, u, "tanh").mul_(mask).add_(x);
    });
  }

  Task softmax(int rows, int columns, const float* data) override {
    const Tensor x = view(data, {rows, columns});
    return inference(std::make_shared<Tensor>(torch::empty({rows, columns})),
                     [=](Tensor& y) { at::_softmax_out(y, x, 1, false); });
  }

  Task layer_norm(int rows, int columns, const float* data, const float* gain, const float* bias) override {
    const Tensor x = view(data, {rows, columns}), g = view(gain, {columns}), b = view(bias, {columns});
    return inference(std::make_shared<Tensor>(), [=](Tensor& y) { y = torch::layer_norm(x, {columns}, g, b); });
  }

  Task batch_norm(const ImageShape& s, const float* x_data, const float* gain, const float* bias) override {
    const Tensor x = images(s, x_data), g = view(gain, {s.features}), b = view(bias, {s.features});
    return of_images([=] { return torch::batch_norm(x, g, b, {}, {}, true, 0, 1e-5, false); });
  }
  Task max_pool(const ImageShape& s, const float* data) override {
    return of_images([x = images(s, data)] { return torch::max_pool2d(x, 2, 2); });
  }
  Task avg_pool(const ImageShape& s, const float* data) override {
    return of_images([x = images(s, data)] { return torch::avg_pool2d(x, 2, 2); });
  }

  Task cross_entropy(int rows, int classes, const float* logits, const std::int32_t* targets) override {
    const Tensor t = torch::from_blob(const_cast<std::int32_t*>(targets), {rows}, torch::kInt32).to(torch::kInt64);
    return gradient_of(view(logits, {rows, classes}),
                       [=](const Tensor& x) { return nn::functional::cross_entropy(x, t); });
  }
  Task mse(std::int64_t size, const float* x, const float* y) override {
    return gradient_of(view(x, {size}),
                       [target = view(y, {size})](const Tensor& z) { return torch::mse_loss(z, target); });
  }
  Task bce_with_logits(std::int64_t size, const float* x, const float* y) override {
    return gradient_of(view(x, {size}), [target = view(y, {size})](const Tensor& z) {
      return torch::binary_cross_entropy_with_logits(z, target);
    });
  }

  Task attention(const AttentionShape& s, const float* q_data, const float* k_data, const float* v_data,
                 const float* g_data) override {
    // [batch, heads, time, width], so that the operands of the products are contiguous.
    const auto heads_first = [&](const float* data) {
      return view(data, {s.batch, s.time, s.heads, s.width}).transpose(1, 2).contiguous();
    };
    const Tensor q = heads_first(q_data).requires_grad_(), k = heads_first(k_data).requires_grad_(),
                 v = heads_first(v_data).requires_grad_(), g = heads_first(g_data);
    const Tensor mask = torch::full({s.time, s.time}, -std::numeric_limits<float>::infinity()).triu(1);
    const double scale = 1 / std::sqrt(static_cast<double>(s.width));
    const auto gradient = std::make_shared<Tensor>();
    const auto run = [=] {
      const auto scores = torch::matmul(q * scale, k.transpose(-2, -1)).add_(mask);
      const auto out = torch::matmul(torch::softmax(scores, -1), v);
      *gradient = torch::autograd::grad({out}, {q, k, v}, {g})[0];
    };
    return Task(run, [=] { return values_of(gradient->transpose(1, 2)); });
  }

  Task mlp_step(const MlpShape& s) override {
    torch::manual_seed(1);
    const auto gelu = [] { return nn::GELU(nn::GELUOptions().approximate("tanh")); };
    const nn::Sequential net(nn::Linear(s.in, s.hidden), gelu(), nn::Linear(s.hidden, s.hidden), gelu(),
                             nn::Linear(s.hidden, s.out));
    const auto optimizer = std::make_shared<torch::optim::SGD>(net->parameters(), torch::optim::SGDOptions(0.01));
    const Tensor x = torch::randn({s.batch, s.in}), target = torch::randn({s.batch, s.out});
    return Task([=, net = net]() mutable {
      optimizer->zero_grad();
      const Tensor loss = torch::mse_loss(net->forward(x), target);
      loss.backward();
      optimizer->step();
      loss.item<float>();
    });
  }

  Task gpt_step(const GptShape& s) override {
    torch::manual_seed(1);
    Gpt model(s);
    const auto optimizer = std::make_shared<torch::optim::AdamW>(model->parameters(), torch::optim::AdamWOptions(3e-4));
    const Tensor text = torch::randint(s.classes, {s.batch, s.time + 1});
    const Tensor x = text.slice(1, 0, s.time).contiguous(), target = text.slice(1, 1, s.time + 1).contiguous();
    return Task([=]() mutable {
      optimizer->zero_grad();
      const Tensor loss = nn::functional::cross_entropy(model->forward(x).view({-1, s.classes}), target.view({-1}));
      loss.backward();
      optimizer->step();
      loss.item<float>();
    });
  }

  Task small_add(int n, const float* a, const float* b) override {
    const Tensor x = view(a, {n, n}), y = view(b, {n, n});
    return inference(std::make_shared<Tensor>(), [=](Tensor& out) { out = x + y; });
  }
  Task small_matmul(int n, const float* a, const float* b) override {
    const Tensor x = view(a, {n, n}), y = view(b, {n, n});
    return inference(std::make_shared<Tensor>(), [=](Tensor& out) { out = torch::mm(x, y); });
  }
};

}  // namespace

extern "C" compare::Peer* compare_peer() { return new LibTorch; }
