#include <cstddef>
#include <memory>
#include <vector>

#include "../peer.hpp"
#include <cblas.h>

namespace {

using compare::GemmShape;
using compare::Task;

class OpenBlas : public compare::Peer {
 public:
  void set_threads(int threads) override { openblas_set_num_threads(threads); }

  Task gemm(const GemmShape& s, const float* a, const float* b) override {
    const auto c = std::make_shared<std::vector<float>>(static_cast<std::size_t>(s.m) * static_cast<std::size_t>(s.n));
    const auto run = [=] {
      cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, s.m, s.n, s.k, 1, a, s.k, b, s.n, 0, c->data(), s.n);
    };
    return Task(run, [=] { return *c; });
  }
};

}  // namespace

extern "C" compare::Peer* compare_peer() { return new OpenBlas; }
