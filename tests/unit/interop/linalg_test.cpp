#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <tuple>
#include <vector>

#include "../../support/gradients.hpp"
#include "../base/expect_error.hpp"
#include "double_tensors.hpp"
#include <gtest/gtest.h>

#include <tessera/interop/linalg.hpp>
#include <tessera/tensor/oracle.hpp>
#include <tessera/tessera.hpp>

namespace ts = tessera;
namespace la = tessera::linalg;
using tessera_test::check_gradient_of;
using tessera_test::devices;
using tessera_test::Double;
using tessera_test::expect_error;
using tessera_test::random_values;

namespace {

using Matrix = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

/// Matrix `entry` of a tensor of rank 3.
Matrix matrix_of(const Double<3>& x, std::int64_t entry) {
  const ts::Shape shape = ts::shape(x);
  const std::vector<double> host = ts::to_host(x);
  return Eigen::Map<const Matrix>(host.data() + entry * shape[1] * shape[2], shape[1], shape[2]);
}
/// Row `entry` of a tensor of rank 2.
Eigen::VectorXd vector_of(const Double<2>& x, std::int64_t entry) {
  const ts::Shape shape = ts::shape(x);
  const std::vector<double> host = ts::to_host(x);
  return Eigen::Map<const Eigen::VectorXd>(host.data() + entry * shape[1], shape[1]);
}
void expect_equal(const Matrix& got, const Matrix& want, const char* what) {
  ASSERT_EQ(got.rows(), want.rows()) << what;
  ASSERT_EQ(got.cols(), want.cols()) << what;
  if (got.size() == 0) return;
  EXPECT_LT((got - want).cwiseAbs().maxCoeff(), 1e-9) << what;
}
Matrix identity(Eigen::Index n) { return Matrix::Identity(n, n); }

struct Problem {
  Double<3> a, positive, b;
};
Problem make_problem(std::int64_t batch, std::int64_t n, std::int64_t k, const ts::PartitionSpec& spec) {
  const std::vector<double> a = random_values(batch * n * n, 1), b = random_values(batch * n * k, 2);
  std::vector<double> positive(a.size());
  for (std::int64_t e = 0; e < batch; ++e) {
    const Eigen::Map<const Matrix> own(a.data() + e * n * n, n, n);
    Eigen::Map<Matrix>(positive.data() + e * n * n, n, n) = own * own.transpose() + 0.5 * identity(n);
  }
  return {ts::shard(a, {batch, n, n}, devices, spec), ts::shard(positive, {batch, n, n}, devices, spec),
          ts::shard(b, {batch, n, k}, devices, spec)};
}

constexpr auto solutions = ts::compile([](auto a, auto positive, auto b) {
  const auto l = la::cholesky(positive);
  const auto [sign, logarithm] = la::slogdet(a);
  return std::tuple(l, la::solve(a, b), la::solve_triangular<la::Triangle::lower>(l, b), la::inv(a), la::det(a), sign,
                    logarithm, la::matrix_power<3>(a));
});
constexpr auto decompositions = ts::compile([](auto a, auto positive, auto b) {
  const auto factors = la::lu(a);
  const auto orthogonal = la::qr(b);
  const auto spectrum = la::eigh(positive);
  const auto singular = la::svd(b);
  return std::tuple(factors.p, factors.l, factors.u, orthogonal.q, orthogonal.r, spectrum.values, spectrum.vectors,
                    singular.u, singular.s, singular.vt);
});

void check_problem(const Problem& given) {
  const auto [l, x, y, inverse, det, sign, logarithm, cube] = solutions(given.a, given.positive, given.b);
  const auto [p, lower, upper, q, r, values, vectors, u, s, vt] = decompositions(given.a, given.positive, given.b);
  const std::vector<double> dets = ts::to_host(det), signs = ts::to_host(sign), logarithms = ts::to_host(logarithm);
  for (std::int64_t e = 0; e < ts::shape(given.a)[0]; ++e) {
    const Matrix a = matrix_of(given.a, e), positive = matrix_of(given.positive, e), b = matrix_of(given.b, e);
    const Eigen::Index n = a.rows();
    const auto at = static_cast<std::size_t>(e);
    const Matrix factor = matrix_of(l, e);
    expect_equal(factor * factor.transpose(), positive, "cholesky");
    expect_equal(Matrix(factor.triangularView<Eigen::Lower>()), factor, "cholesky is lower triangular");
    expect_equal(a * matrix_of(x, e), b, "solve");
    expect_equal(factor * matrix_of(y, e), b, "solve_triangular");
    expect_equal(a * matrix_of(inverse, e), identity(n), "inv");
    const double want = n == 0 ? 1 : Eigen::FullPivLU<Matrix>(a).determinant();
    const double off = 1e-9 * std::max(1.0, std::fabs(want));
    EXPECT_NEAR(dets[at], want, off);
    EXPECT_NEAR(signs[at] * std::exp(logarithms[at]), want, off);
    expect_equal(matrix_of(cube, e), a * a * a, "matrix_power");

    expect_equal(matrix_of(p, e) * matrix_of(lower, e) * matrix_of(upper, e), a, "lu");
    expect_equal(Matrix(matrix_of(lower, e).triangularView<Eigen::UnitLower>()), matrix_of(lower, e), "l");
    expect_equal(Matrix(matrix_of(upper, e).triangularView<Eigen::Upper>()), matrix_of(upper, e), "u");
    const Matrix columns = matrix_of(q, e), left = matrix_of(u, e), right = matrix_of(vt, e);
    expect_equal(columns * matrix_of(r, e), b, "qr");
    expect_equal(columns.transpose() * columns, identity(columns.cols()), "columns of q");
    expect_equal(Matrix(matrix_of(r, e).triangularView<Eigen::Upper>()), matrix_of(r, e), "r");
    const Matrix v = matrix_of(vectors, e);
    expect_equal(v * vector_of(values, e).asDiagonal() * v.transpose(), positive, "eigh");
    expect_equal(v.transpose() * v, identity(n), "eigenvectors");
    expect_equal(left * vector_of(s, e).asDiagonal() * right, b, "svd");
    expect_equal(left.transpose() * left, identity(left.cols()), "left singular vectors");
    expect_equal(right * right.transpose(), identity(right.rows()), "right singular vectors");
  }
}

TEST(Linalg, ResidualsOnShardings) {
  for (const ts::PartitionSpec& spec :
       {ts::PartitionSpec{}, ts::PartitionSpec{"data"}, ts::PartitionSpec{{"data", "model"}, ts::none},
        ts::PartitionSpec{"data", "model"}, ts::PartitionSpec{ts::none, "data", "model"}}) {
    const ts::OracleScope same_on_one_device;
    check_problem(make_problem(5, 4, 3, spec));  // the batch is split unevenly
    check_problem(make_problem(4, 3, 5, spec));
    check_problem(make_problem(0, 3, 2, spec));
    check_problem(make_problem(3, 1, 1, spec));
    check_problem(make_problem(2, 0, 2, spec));
    check_problem(make_problem(2, 2, 0, spec));
  }
  check_problem(make_problem(2, 40, 17, {"data"}));
}

TEST(Linalg, PlansSplitTheBatchWithoutCommunication) {
  const Problem batch = make_problem(5, 4, 3, {"data"}), rows = make_problem(5, 4, 3, {ts::none, "model"});
  EXPECT_EQ(solutions.plan(batch.a, batch.positive, batch.b).wire_bytes(), 0);
  EXPECT_EQ(decompositions.plan(batch.a, batch.positive, batch.b).wire_bytes(), 0);
  // Split rows: no axis divides a batch of 5, so the matrices are gathered; one of 4 is split in the place of the rows.
  EXPECT_GT(decompositions.plan(rows.a, rows.positive, rows.b).count(ts::all_gather), 0);
  const Problem even = make_problem(4, 4, 2, {ts::none, "model"});
  EXPECT_GT(decompositions.plan(even.a, even.positive, even.b).count(ts::all_to_all), 0);
  EXPECT_EQ(decompositions.plan(even.a, even.positive, even.b).count(ts::all_gather), 0);
}

TEST(Linalg, SingularMatrices) {
  const auto given = ts::shard(std::vector<double>{1, 2, 2, 4, 0, 0, 0, 0}, {2, 2, 2}, devices, {"data"});
  const Double<3> l = la::cholesky(given - 5.0);
  for (const double v : ts::to_host(l)) EXPECT_TRUE(std::isnan(v));
  const std::vector<double> inverse = ts::to_host(Double<3>(la::inv(given)));
  for (std::size_t i = 0; i < 4; ++i) EXPECT_FALSE(std::isfinite(inverse[i])) << i;
  const auto mixed = ts::shard(std::vector<double>{0, 0, 0, 0, 2, 0, 0, 4}, {2, 2, 2}, devices, {"data"});
  const std::vector<double> halves = ts::to_host(Double<3>(la::inv(mixed)));
  for (std::size_t i = 0; i < 4; ++i) EXPECT_FALSE(std::isfinite(halves[i])) << i;
  EXPECT_EQ(std::vector<double>(halves.begin() + 4, halves.end()), (std::vector<double>{.5, 0, 0, .25}));
  const auto [sign, logarithm] = la::slogdet(given);
  EXPECT_EQ(ts::to_host(Double<1>(sign)), (std::vector<double>{0, 0}));
  EXPECT_EQ(ts::to_host(Double<1>(logarithm))[1], -std::numeric_limits<double>::infinity());
  EXPECT_EQ(ts::to_host(Double<1>(la::det(given))), (std::vector<double>{0, 0}));
}

TEST(Linalg, VectorsOnTheRight) {
  const auto a = ts::shard(std::vector<double>{2, 0, 0, 4}, {2, 2}, devices);
  const auto b = ts::shard(std::vector<double>{2, 2}, {2}, devices);
  EXPECT_EQ(ts::to_host(Double<1>(la::solve(a, b))), (std::vector<double>{1, .5}));
  const auto both = ts::shard(std::vector<double>{2, 2, 4, 4}, {2, 2, 1}, devices, {"data"});
  EXPECT_EQ(ts::to_host(Double<3>(la::solve(a, both))), (std::vector<double>{1, .5, 2, 1}));
}

// The residual of the least squares is orthogonal to the columns of the matrix.
TEST(Linalg, LeastSquares) {
  for (const ts::PartitionSpec& spec : {ts::PartitionSpec{"data"}, ts::PartitionSpec{ts::none, "model"}}) {
    const auto a = ts::shard(random_values(60, 21), {3, 5, 4}, devices, spec),
               b = ts::shard(random_values(30, 22), {3, 5, 2}, devices, spec);
    const auto c = ts::shard(random_values(15, 23), {3, 5}, devices, spec);
    const Double<3> x = la::lstsq(a, b);
    const Double<2> y = la::lstsq(a, c);
    for (std::int64_t e = 0; e < 3; ++e) {
      const Matrix own = matrix_of(a, e);
      expect_equal(own.transpose() * (own * matrix_of(x, e)), own.transpose() * matrix_of(b, e), "lstsq");
      expect_equal(own.transpose() * (own * vector_of(y, e)), own.transpose() * vector_of(c, e), "lstsq of a vector");
    }
  }
  const auto wide = ts::shard(random_values(6, 24), {2, 3}, devices);
  expect_error(
      ts::errc::shape_mismatch, [&] { ts::eval(la::lstsq(wide, wide)); },
      "[lstsq] the matrix must have at least as many rows as columns: ", " at linalg_test.cpp:");
  const auto square = ts::shard(random_values(4, 24), {2, 2}, devices);
  const auto vector = ts::shard(random_values(3, 24), {3}, devices);
  expect_error(
      ts::errc::shape_mismatch, [&] { ts::eval(la::solve(square, vector)); },
      "[solve] extents of n differ: ", "[2,2] x ", "[3] at linalg_test.cpp:");
}

// The four equations that define the inverse of Moore and Penrose; numbers of a matrix of rank 2.
TEST(Linalg, PseudoInverses) {
  std::vector<double> values = random_values(3 * 5 * 4, 31);
  for (std::size_t i = 0; i < 5; ++i) values[i * 4 + 2] = values[i * 4] + values[i * 4 + 1], values[i * 4 + 3] = 0;
  for (const ts::PartitionSpec& spec : {ts::PartitionSpec{"data"}, ts::PartitionSpec{ts::none, "model"}}) {
    const auto a = ts::shard(values, {3, 5, 4}, devices, spec);
    const Double<3> x = la::pinv(a);
    for (std::int64_t e = 0; e < 3; ++e) {
      const Matrix own = matrix_of(a, e), inverse = matrix_of(x, e);
      expect_equal(own * inverse * own, own, "a x a");
      expect_equal(inverse * own * inverse, inverse, "x a x");
      expect_equal((own * inverse).transpose(), own * inverse, "a x");
      expect_equal((inverse * own).transpose(), inverse * own, "x a");
    }
    EXPECT_EQ(ts::to_host(la::matrix_rank(a)), (std::vector<std::int32_t>{2, 4, 4}));
    EXPECT_EQ(ts::to_host(la::matrix_rank(a, 2.0)), (std::vector<std::int32_t>{0, 0, 0}));
    EXPECT_EQ(ts::to_host(ts::ShardedTensor<double, 3>(la::pinv(a, 2.0))), std::vector<double>(60));
  }
  const auto diagonal = ts::shard<double>({{4, 0}, {0, -0.5}}, devices);
  EXPECT_EQ(ts::to_host(la::cond(diagonal)), std::vector<double>{8});
  EXPECT_EQ(ts::to_host(la::pinv(diagonal)), (std::vector<double>{0.25, 0, 0, -2}));
}

constexpr auto functions_of_matrices = ts::compile([](auto a, auto positive, auto b) {
  const auto l = la::cholesky(positive);
  const auto spectrum = la::eig(a);
  const auto values = la::eigvals(a);
  return std::tuple(la::matrix_exp(a), la::matrix_exp(-a), la::cholesky_solve(b, l), la::eigvalsh(positive),
                    la::eigh(positive).values, spectrum.values.real, spectrum.values.imag, spectrum.vectors.real,
                    spectrum.vectors.imag, values.real, values.imag, la::matrix_power<0>(a));
});

TEST(Linalg, ExponentialsEigenvaluesAndSolutionsByAFactor) {
  for (const ts::PartitionSpec& spec :
       {ts::PartitionSpec{}, ts::PartitionSpec{"data"}, ts::PartitionSpec{"model", "data"},
        ts::PartitionSpec{ts::none, ts::none, "model"}}) {
    const ts::OracleScope same_on_one_device;
    for (const std::int64_t n : {0, 1, 4}) {
      const Problem given = make_problem(5, n, 2, spec);
      const auto [power, inverse, x, values, of_eigh, real, imag, vectors, vectors_imag, real_alone, imag_alone, one] =
          functions_of_matrices(given.a, given.positive, given.b);
      EXPECT_EQ(ts::to_host(values), ts::to_host(of_eigh));
      EXPECT_EQ(ts::to_host(real), ts::to_host(real_alone));
      EXPECT_EQ(ts::to_host(imag), ts::to_host(imag_alone));
      for (std::int64_t e = 0; e < 5; ++e) {
        const Matrix a = matrix_of(given.a, e);
        expect_equal(matrix_of(power, e) * matrix_of(inverse, e), identity(n), "matrix_exp of a and -a");
        expect_equal(matrix_of(given.positive, e) * matrix_of(x, e), matrix_of(given.b, e), "cholesky_solve");
        expect_equal(matrix_of(one, e), identity(n), "matrix_power<0>");
        // a (v + i w) = (r + i s) (v + i w), for columns v and w
        const Matrix v = matrix_of(vectors, e), w = matrix_of(vectors_imag, e);
        const Matrix r = vector_of(real, e).asDiagonal(), s = vector_of(imag, e).asDiagonal();
        expect_equal(a * v, v * r - w * s, "real part of eig");
        expect_equal(a * w, v * s + w * r, "imaginary part of eig");
        expect_equal((v.cwiseAbs2() + w.cwiseAbs2()).colwise().sum(), Matrix::Ones(1, n), "lengths of eigenvectors");
      }
    }
  }
}

// torch.linalg.matrix_exp and eigvals
TEST(Linalg, ExponentialAndEigenvaluesByPyTorch) {
  const std::vector<double> values{1, 2, 0, -1, 0.5, 3, 0.25, 0, -2};
  const auto a = ts::shard(values, {3, 3}, devices);
  const std::vector<double> want{1.0080187339353543,  3.137691732380104,   2.5106390275900203,
                                 -1.2550159877412996, 0.22359580084033245, 0.9405790571851264,
                                 0.1306865678402191,  0.20921991896583517, 0.2766595957160677},
      of_eight{-211.35378348308308, -95.61542937743843,  53.43343164404171, 54.486893644224445, -187.4499261387236,
               -223.57329153222005, -17.517911135100817, 4.452785970336814, 16.672294019473775};
  const std::vector<double> got = ts::to_host(Double<2>(la::matrix_exp(a))),
                            scaled = ts::to_host(Double<2>(la::matrix_exp(a * 8.0)));
  const std::vector<float> in_f32 = ts::to_host(ts::eval(la::matrix_exp(ts::cast<float>(a))));
  for (std::size_t i = 0; i < 9; ++i) {
    EXPECT_NEAR(got[i], want[i], 1e-14);
    EXPECT_NEAR(scaled[i], of_eight[i], 1e-11);
    EXPECT_NEAR(in_f32[i], want[i], 1e-6);
  }
  const auto spectrum = la::eigvals(a);
  const std::vector<double> real = ts::to_host(ts::eval(ts::sort<0>(spectrum.real))),
                            imag = ts::to_host(ts::eval(ts::sort<0>(spectrum.imag)));
  const std::vector<double> real_parts{-1.8249245907504448, 0.6624622953752219, 0.6624622953752219},
      imag_parts{-1.2161542557408769, 0, 1.2161542557408769};
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_NEAR(real[i], real_parts[i], 1e-13);
    EXPECT_NEAR(imag[i], imag_parts[i], 1e-13);
  }
  const auto with_nan = ts::shard<double>({{1, NAN}, {0, 1}}, devices),
             large = ts::shard<double>({{1e308, 0}, {1e308, 1}}, devices);
  for (const double v : ts::to_host(Double<2>(la::matrix_exp(with_nan)))) EXPECT_TRUE(std::isnan(v));
  for (const double v : ts::to_host(Double<2>(la::matrix_exp(large)))) EXPECT_TRUE(std::isnan(v));
  for (const double v : ts::to_host(Double<1>(la::eigvals(with_nan).real))) EXPECT_TRUE(std::isnan(v));
}

// Gradients against finite differences, of well-conditioned matrices.
TEST(Linalg, Gradients) {
  oracle::Array a = oracle::random_array({2, 3, 3}, 3);
  for (std::int64_t e = 0; e < 2; ++e)
    for (std::int64_t i = 0; i < 3; ++i) a.at({e, i, i}) += 2 + static_cast<double>(i);
  const oracle::Array b = oracle::random_array({2, 3, 2}, 4), tall = oracle::random_array({2, 4, 3}, 5);
  check_gradient_of<3>([](const auto& x) { return la::cholesky(ts::einsum<"bij,bkj->bik">(x, x)); }, a);
  check_gradient_of<3>([](const auto& x, const auto& y) { return la::solve(x, y); }, a, b);
  check_gradient_of<3>([](const auto& x, const auto& y) { return la::solve_triangular<la::Triangle::lower>(x, y); }, a,
                       b);
  check_gradient_of<3>(
      [](const auto& x, const auto& y) { return la::solve_triangular<la::Triangle::upper, la::Diagonal::ones>(x, y); },
      a, b);
  check_gradient_of<3>([](const auto& x, const auto& y) { return la::lstsq(x, y); }, tall,
                       oracle::random_array({2, 4, 2}, 6));
  check_gradient_of<3>([](const auto& x) { return la::inv(x); }, a);
  check_gradient_of<3>([](const auto& x) { return la::matrix_exp(x); }, oracle::random_array({2, 3, 3}, 8));
  check_gradient_of<3>([](const auto& x, const auto& y) { return la::cholesky_solve(x, y); },
                       oracle::random_array({2, 3, 2}, 7), a);
  check_gradient_of<3>([](const auto& x) { return la::eigvalsh(x); }, a);
  check_gradient_of<3>([](const auto& x) { return la::pinv(x); }, tall);
  check_gradient_of<3>([](const auto& x) { return la::cond(x); }, tall);
  check_gradient_of<3>([](const auto& x) { return la::det(x) + la::slogdet(x).logabsdet; }, a);
  check_gradient_of<3>([](const auto& x) { return la::lu(x).l + la::lu(x).u * 2.0; }, a);
  check_gradient_of<3>(
      [](const auto& x) {
        const auto [q, r] = la::qr(x);
        return q * q + ts::einsum<"bij,bjk->bik">(q, r * r);
      },
      tall);
  check_gradient_of<3>(
      [](const auto& x) {
        const auto [values, v] = la::eigh(x);
        return ts::einsum<"bij,bkj->bik">(v * v, v * v * ts::unsqueeze<1>(values * values));
      },
      a);
  check_gradient_of<3>(
      [](const auto& x) {
        const auto [u, s, vt] = la::svd(x);
        return ts::einsum<"bij,bjk->bik">(u * u * ts::unsqueeze<1>(s), vt * vt);
      },
      tall);
}

// Of matrices with real eigenvalues and with pairs of complex ones; of functions that do not depend on phases.
TEST(Linalg, GradientsOfEigenvaluesAndEigenvectors) {
  oracle::Array a = oracle::random_array({3, 4, 4}, 12);
  for (std::int64_t i = 0; i < 4; ++i) a.at({0, i, i}) += 3 * static_cast<double>(i);
  for (std::int64_t i = 0; i < 4; i += 2) {  // two pairs, and in the last matrix one
    a.at({1, i, i + 1}) += 3 + static_cast<double>(i), a.at({1, i + 1, i}) -= 3 + static_cast<double>(i);
    a.at({2, i, i}) += 4;
  }
  a.at({2, 0, 1}) += 5, a.at({2, 1, 0}) -= 5, a.at({2, 3, 3}) -= 4;
  const std::vector<double> imag = ts::to_host(ts::eval(la::eigvals(ts::shard(a.data, {3, 4, 4}, devices)).imag));
  for (std::size_t e = 0; e < 3; ++e)
    EXPECT_EQ(std::count(imag.begin() + 4 * e, imag.begin() + 4 * e + 4, 0.0), e == 0 ? 4 : e == 1 ? 0 : 2) << e;
  check_gradient_of<3>(
      [](const auto& x) {
        const auto w = la::eigvals(x);
        return w.real * w.real + w.imag * 2.0 + w.real * w.imag;
      },
      a);
  check_gradient_of<3>(
      [](const auto& x) {
        const auto [w, v] = la::eig(x);
        const auto re = ts::unsqueeze<1>(w.real);
        const auto im = ts::unsqueeze<1>(w.imag);
        // The real part of v diag(w) v^H, and the sizes of the elements of v.
        const auto left = ts::einsum<"bij,bkj->bik">(v.real * re - v.imag * im, v.real);
        const auto right = ts::einsum<"bij,bkj->bik">(v.real * im + v.imag * re, v.imag);
        return left + right + v.real * v.real + v.imag * v.imag;
      },
      a);
}

// Of singular matrices the gradient of the determinant is the matrix of cofactors.
TEST(Linalg, GradientOfTheDeterminantOfSingularMatrices) {
  constexpr auto gradient =
      ts::compile([](auto a) { return ts::grad([](const auto& x) { return ts::sum(la::det(x)); })(a); });
  const auto a = ts::shard(std::vector<double>{1, 2, 2, 4, 0, 0, 0, 3, 0, 0, 0, 0}, {3, 2, 2}, devices, {"data"});
  const std::vector<double> got = ts::to_host(gradient(a)), want{4, -2, -2, 1, 3, 0, 0, 0, 0, 0, 0, 0};
  for (std::size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[i], want[i], 1e-12) << i;
}

/// A layer that solves a system in each batch entry.
struct Solves {
  Double<3> a;
  constexpr auto operator()(const auto& x) const { return la::solve(a, x); }
};

// In the loop of a Stack and of a scan: the values and gradients of the same layers called one after the other.
TEST(Linalg, InAStackAndInAScan) {
  constexpr auto run =
      ts::compile([](const ts::Stack<Solves>& stack, const auto& matrices, const auto& layers, const auto& x) {
        const auto energy = [](const auto& y) { return ts::sum(y * y); };
        const auto of_stack =
            ts::value_and_grad([energy](const auto& net, const auto& v) { return energy(net(v)); })(stack, x);
        const auto of_scan = ts::value_and_grad([energy](const auto& all, const auto& v) {
          const auto step = [](const auto& carry, const auto& a) {
            const auto next = la::solve(a, carry);
            return std::tuple(next, ts::sum<1>(next));
          };
          return energy(std::get<0>(ts::scan(step, v, all)));
        })(matrices, x);
        const auto by_hand = ts::value_and_grad([energy](const auto& all, const auto& v) {
          const auto& [first, second] = all;
          return energy(second(first(v)));
        })(layers, x);
        return std::tuple(of_stack, of_scan, by_hand);
      });
  std::vector<double> a = random_values(90, 11);
  for (std::size_t i = 0; i < a.size(); i += 9)
    for (std::size_t d = 0; d < 9; d += 4) a[i + d] += 3;
  const std::vector<double> first(a.begin(), a.begin() + 45), second(a.begin() + 45, a.end());
  const auto b = random_values(30, 12);
  for (const ts::PartitionSpec& spec :
       {ts::PartitionSpec{}, ts::PartitionSpec{"data"}, ts::PartitionSpec{"model", "data"}}) {
    const auto layer = [&](const std::vector<double>& values) {
      return Solves{ts::shard(values, {5, 3, 3}, devices, spec)};
    };
    const std::pair layers(layer(first), layer(second));
    const ts::Stack<Solves> stack(2, [&](int i) { return i == 0 ? layers.first : layers.second; });
    const ts::PartitionSpec below{ts::none, "data"};
    const auto [of_stack, of_scan, by_hand] =
        run(stack, ts::shard(a, {2, 5, 3, 3}, devices, below), layers, ts::shard(b, {5, 3, 2}, devices, spec));
    const double want = ts::to_host(std::get<0>(by_hand)).at(0);
    EXPECT_NEAR(ts::to_host(std::get<0>(of_stack)).at(0), want, 1e-9 * want);
    EXPECT_NEAR(ts::to_host(std::get<0>(of_scan)).at(0), want, 1e-9 * want);
    const auto& by_layer = std::get<1>(by_hand);
    std::vector<double> slopes = ts::to_host(by_layer.first.a), more = ts::to_host(by_layer.second.a);
    slopes.insert(slopes.end(), more.begin(), more.end());
    std::vector<double> stacked = ts::to_host(std::get<1>(of_stack)[0].a);
    more = ts::to_host(std::get<1>(of_stack)[1].a);
    stacked.insert(stacked.end(), more.begin(), more.end());
    const std::vector<double> scanned = ts::to_host(std::get<1>(of_scan));
    for (std::size_t i = 0; i < slopes.size(); ++i) {
      EXPECT_NEAR(stacked.at(i), slopes[i], 1e-9);
      EXPECT_NEAR(scanned.at(i), slopes[i], 1e-9);
    }
  }
}

}  // namespace
