#define EIGEN_USE_THREADS
#include <cstddef>
#include <memory>
#include <vector>

#include "../peer.hpp"
#include <Eigen/Core>
#include <unsupported/Eigen/CXX11/Tensor>

// Eigen's matrix products run on OpenMP, Eigen::Tensor on its own thread pool.
namespace {

using compare::ChainInput;
using compare::GemmShape;
using compare::Task;
using Matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using Given = Eigen::Map<const Matrix>;

std::vector<float> values_of(const Matrix& matrix) { return {matrix.data(), matrix.data() + matrix.size()}; }

class EigenPeer : public compare::Peer {
 public:
  void set_threads(int threads) override {
    Eigen::setNbThreads(threads);
    pool_ = std::make_unique<Eigen::ThreadPool>(threads);
    device_ = std::make_unique<Eigen::ThreadPoolDevice>(pool_.get(), threads);
  }

  Task gemm(const GemmShape& s, const float* a, const float* b) override {
    const auto c = std::make_shared<Matrix>(s.m, s.n);
    return Task([=] { c->noalias() = Given(a, s.m, s.k) * Given(b, s.k, s.n); }, [=] { return values_of(*c); });
  }

  Task chain(const ChainInput& in) override {
    using In = Eigen::TensorMap<Eigen::Tensor<const float, 1, Eigen::RowMajor>>;
    const auto y = std::make_shared<Eigen::Tensor<float, 1, Eigen::RowMajor>>(in.size);
    const auto run = [=, this] {
      const In x(in.x, in.size), mask(in.mask, in.size);
      const auto t = x * in.scale + x.constant(in.shift);
      y->device(*device_) =
          t * 0.5f * (((t + t * t * t * 0.044715f) * 0.7978845608f).tanh() + x.constant(1.0f)) * mask + x;
    };
    return Task(run, [=] { return std::vector<float>(y->data(), y->data() + y->size()); });
  }

  Task small_add(int n, const float* a, const float* b) override {
    return small(n, a, b, [](Matrix& c, const Matrix& x, const Matrix& y) { c = x + y; });
  }
  Task small_matmul(int n, const float* a, const float* b) override {
    return small(n, a, b, [](Matrix& c, const Matrix& x, const Matrix& y) { c.noalias() = x * y; });
  }

 private:
  template <class F> static Task small(int n, const float* a, const float* b, F f) {
    const auto c = std::make_shared<Matrix>(n, n);
    const Matrix x = Given(a, n, n), y = Given(b, n, n);
    return Task([=] { f(*c, x, y); }, [=] { return values_of(*c); });
  }

  std::unique_ptr<Eigen::ThreadPool> pool_;
  std::unique_ptr<Eigen::ThreadPoolDevice> device_;
};

}  // namespace

extern "C" compare::Peer* compare_peer() { return new EigenPeer; }
