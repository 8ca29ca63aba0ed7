#include <cmath>
#include <cstddef>
#include <memory>
#include <unordered_map>
#include <vector>

#include "../peer.hpp"
#include <dnnl.h>
#include <dnnl.hpp>
#include <omp.h>

// oneDNN's dnnl_sgemm, which packs operands in each call, and one pass over its result for the epilogue.
namespace {

using compare::GemmShape;
using compare::Task;

/// gelu with a rational approximation of tanh, since compilers don't vectorise libm's.
inline float gelu(float x) {
  float u = 0.7978845608f * (x + 0.044715f * x * x * x);
  u = std::fmin(7.9f, std::fmax(-7.9f, u));
  const float s = u * u;
  float p = -2.76076847742355e-16f;
  p = p * s + 2.00018790482477e-13f;
  p = p * s + -8.60467152213735e-11f;
  p = p * s + 5.12229709037114e-08f;
  p = p * s + 1.48572235717979e-05f;
  p = p * s + 6.37261928875436e-04f;
  p = p * s + 4.89352455891786e-03f;
  float q = 1.19825839466702e-06f;
  q = q * s + 1.18534705686654e-04f;
  q = q * s + 2.26843463243900e-03f;
  q = q * s + 4.89352518554385e-03f;
  return 0.5f * x * (1 + u * p / q);
}

class OneDnn : public compare::Peer {
 public:
  void set_threads(int threads) override { omp_set_num_threads(threads); }

  Task gemm(const GemmShape& s, const float* a, const float* b) override {
    const auto c = output(s);
    return Task([=] { multiply(s, a, b, c->data()); }, [=] { return *c; });
  }

  // A matmul primitive, made once; it packs the right operand in each call.
  Task gemm_bf16(const GemmShape& s, const std::uint16_t* a, const std::uint16_t* b) override {
    using namespace dnnl;
    using Desc = memory::desc;
    constexpr auto rows = memory::format_tag::ab;
    const auto c = output(s);
    const engine cpu(engine::kind::cpu, 0);
    const Desc a_desc({s.m, s.k}, memory::data_type::bf16, rows), b_desc({s.k, s.n}, memory::data_type::bf16, rows),
        c_desc({s.m, s.n}, memory::data_type::f32, rows);
    const matmul product(matmul::primitive_desc(matmul::desc(a_desc, b_desc, c_desc), cpu));
    const std::unordered_map<int, memory> arguments{
        {DNNL_ARG_SRC, memory(a_desc, cpu, const_cast<std::uint16_t*>(a))},
        {DNNL_ARG_WEIGHTS, memory(b_desc, cpu, const_cast<std::uint16_t*>(b))},
        {DNNL_ARG_DST, memory(c_desc, cpu, c->data())}};
    stream queue(cpu);
    return Task(
        [=]() mutable {
          product.execute(queue, arguments);
          queue.wait();
        },
        [=] { return *c; });
  }

  Task linear(const GemmShape& s, const float* x, const float* w, const float* bias, const float* residual) override {
    const auto c = output(s);
    const auto run = [=] {
      multiply(s, x, w, c->data());
#pragma omp parallel for
      for (int i = 0; i < s.m; ++i) {
        float* const row = c->data() + std::ptrdiff_t{i} * s.n;
        const float* const add = residual + std::ptrdiff_t{i} * s.n;
#pragma omp simd
        for (int j = 0; j < s.n; ++j) row[j] = gelu(row[j] + bias[j]) + add[j];
      }
    };
    return Task(run, [=] { return *c; });
  }

 private:
  static std::shared_ptr<std::vector<float>> output(const GemmShape& s) {
    return std::make_shared<std::vector<float>>(static_cast<std::size_t>(s.m) * static_cast<std::size_t>(s.n));
  }
  static void multiply(const GemmShape& s, const float* a, const float* b, float* c) {
    dnnl_sgemm('N', 'N', s.m, s.n, s.k, 1, a, s.k, b, s.n, 0, c, s.n);
  }
};

}  // namespace

extern "C" compare::Peer* compare_peer() { return new OneDnn; }
