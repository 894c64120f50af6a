// Dense matrices over any field: products, LU decomposition, solving, inverse
// and determinant, for doubles and for exact fractions.
#include <cmath>
#include <cstdint>
#include <numeric>

#include "small_vector.hpp"

namespace sample {

class Fraction {
public:
  Fraction(std::int64_t num = 0, std::int64_t den = 1) : num_(num), den_(den) {
    normalize();
  }
  std::int64_t num() const { return num_; }
  std::int64_t den() const { return den_; }

  Fraction operator-() const { return Fraction(-num_, den_); }
  friend Fraction operator+(const Fraction &a, const Fraction &b) {
    return Fraction(a.num_ * b.den_ + b.num_ * a.den_, a.den_ * b.den_);
  }
  friend Fraction operator-(const Fraction &a, const Fraction &b) {
    return a + -b;
  }
  friend Fraction operator*(const Fraction &a, const Fraction &b) {
    return Fraction(a.num_ * b.num_, a.den_ * b.den_);
  }
  friend Fraction operator/(const Fraction &a, const Fraction &b) {
    return Fraction(a.num_ * b.den_, a.den_ * b.num_);
  }
  friend bool operator==(const Fraction &a, const Fraction &b) {
    return a.num_ == b.num_ && a.den_ == b.den_;
  }

private:
  void normalize() {
    if (den_ < 0) {
      num_ = -num_;
      den_ = -den_;
    }
    std::int64_t g = std::gcd(num_, den_);
    if (g > 1) {
      num_ /= g;
      den_ /= g;
    }
  }
  std::int64_t num_, den_;
};

template <typename T> struct Field;

template <> struct Field<double> {
  static bool is_zero(double v) { return std::fabs(v) < 1e-12; }
  static bool better_pivot(double a, double b) {
    return std::fabs(a) > std::fabs(b);
  }
};

template <> struct Field<Fraction> {
  static bool is_zero(const Fraction &v) { return v.num() == 0; }
  static bool better_pivot(const Fraction &a, const Fraction &b) {
    return is_zero(b) && !is_zero(a);
  }
};

template <typename T> class Matrix {
public:
  Matrix(std::size_t rows, std::size_t cols)
      : rows_(rows), cols_(cols), cells_(rows * cols) {}

  static Matrix identity(std::size_t n) {
    Matrix m(n, n);
    for (std::size_t i = 0; i < n; ++i)
      m(i, i) = T(1);
    return m;
  }
  template <typename U>
  static Matrix from(const U *values, std::size_t rows, std::size_t cols) {
    Matrix m(rows, cols);
    for (std::size_t i = 0; i < rows * cols; ++i)
      m.cells_[i] = T(values[i]);
    return m;
  }

  std::size_t rows() const { return rows_; }
  std::size_t cols() const { return cols_; }
  bool square() const { return rows_ == cols_; }
  T &operator()(std::size_t r, std::size_t c) { return cells_[r * cols_ + c]; }
  const T &operator()(std::size_t r, std::size_t c) const {
    return cells_[r * cols_ + c];
  }

  void swap_rows(std::size_t a, std::size_t b) {
    if (a == b)
      return;
    for (std::size_t c = 0; c < cols_; ++c)
      std::swap((*this)(a, c), (*this)(b, c));
  }

  friend Matrix operator*(const Matrix &a, const Matrix &b) {
    Matrix m(a.rows_, b.cols_);
    for (std::size_t r = 0; r < m.rows_; ++r)
      for (std::size_t c = 0; c < m.cols_; ++c)
        for (std::size_t k = 0; k < a.cols_; ++k)
          m(r, c) = m(r, c) + a(r, k) * b(k, c);
    return m;
  }
private:
  std::size_t rows_, cols_;
  SmallVector<T, 16> cells_;
};

template <typename T> class LU {
public:
  explicit LU(const Matrix<T> &m) : lu_(m), order_(m.rows()) {
    std::iota(order_.begin(), order_.end(), std::size_t(0));
    for (std::size_t c = 0; c < lu_.cols() && !singular_; ++c)
      eliminate(c);
  }
  bool singular() const { return singular_; }

  T determinant() const {
    T det(swaps_ % 2 ? -1 : 1);
    for (std::size_t i = 0; i < lu_.rows(); ++i)
      det = det * lu_(i, i);
    return singular_ ? T(0) : det;
  }

  Matrix<T> solve(const Matrix<T> &rhs) const {
    Matrix<T> x(rhs.rows(), rhs.cols());
    for (std::size_t c = 0; c < rhs.cols(); ++c) {
      for (std::size_t r = 0; r < x.rows(); ++r)
        x(r, c) = rhs(order_[r], c) - partial(x, r, c, 0, r);
      for (std::size_t r = x.rows(); r-- > 0;)
        x(r, c) =
            (x(r, c) - partial(x, r, c, r + 1, x.rows())) / lu_(r, r);
    }
    return x;
  }

private:
  T partial(const Matrix<T> &x, std::size_t r, std::size_t c, std::size_t from,
            std::size_t to) const {
    T sum(0);
    for (std::size_t k = from; k < to; ++k)
      sum = sum + lu_(r, k) * x(k, c);
    return sum;
  }
  std::size_t pivot_row(std::size_t c) const {
    std::size_t best = c;
    for (std::size_t r = c + 1; r < lu_.rows(); ++r)
      if (Field<T>::better_pivot(lu_(r, c), lu_(best, c)))
        best = r;
    return best;
  }
  void eliminate(std::size_t c) {
    std::size_t p = pivot_row(c);
    if (Field<T>::is_zero(lu_(p, c))) {
      singular_ = true;
      return;
    }
    if (p != c) {
      lu_.swap_rows(p, c);
      std::swap(order_[p], order_[c]);
      ++swaps_;
    }
    for (std::size_t r = c + 1; r < lu_.rows(); ++r) {
      T factor = lu_(r, c) / lu_(c, c);
      lu_(r, c) = factor;
      for (std::size_t k = c + 1; k < lu_.cols(); ++k)
        lu_(r, k) = lu_(r, k) - factor * lu_(c, k);
    }
  }

  Matrix<T> lu_;
  SmallVector<std::size_t, 8> order_;
  int swaps_ = 0;
  bool singular_ = false;
};

double determinant(const double *values, std::size_t n) {
  return LU<double>(Matrix<double>::from(values, n, n)).determinant();
}

// The determinant of an integer matrix, computed without rounding.
std::int64_t exact_determinant(const int *values, std::size_t n) {
  return LU<Fraction>(Matrix<Fraction>::from(values, n, n)).determinant().num();
}

// Solves values * x = rhs; false when the matrix is singular.
bool solve(const double *values, const double *rhs, std::size_t n, double *x) {
  LU<double> lu(Matrix<double>::from(values, n, n));
  if (lu.singular())
    return false;
  Matrix<double> result = lu.solve(Matrix<double>::from(rhs, n, 1));
  for (std::size_t i = 0; i < n; ++i)
    x[i] = result(i, 0);
  return true;
}

// The largest entry of |A * inverse(A) - I|, or -1 for a singular matrix.
double inverse_error(const double *values, std::size_t n) {
  Matrix<double> a = Matrix<double>::from(values, n, n);
  LU<double> lu(a);
  if (lu.singular())
    return -1;
  Matrix<double> one = Matrix<double>::identity(n);
  Matrix<double> product = a * lu.solve(one);
  double worst = 0;
  for (std::size_t r = 0; r < n; ++r)
    for (std::size_t c = 0; c < n; ++c)
      worst = std::fmax(worst, std::fabs(product(r, c) - one(r, c)));
  return worst;
}

} // namespace sample
