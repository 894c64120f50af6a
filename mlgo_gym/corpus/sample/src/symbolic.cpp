// Symbolic algebra on owned expression trees: simplifying constructors,
// differentiation, evaluation and printing.
#include <cmath>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>

namespace sample {

enum class Kind { Number, Variable, Sum, Product, Power, Sine, Cosine };

struct Node;
using Expr = std::unique_ptr<const Node>;

struct Node {
  Kind kind;
  double value; // of a number, or the exponent of a power
  Expr a, b;

  Node(Kind k, double v, Expr &&left, Expr &&right)
      : kind(k), value(v), a(std::move(left)), b(std::move(right)) {}

  bool is_number(double v) const { return kind == Kind::Number && value == v; }
};

namespace {

Expr make(Kind kind, double value, Expr &&a = nullptr, Expr &&b = nullptr) {
  return Expr(new Node(kind, value, std::move(a), std::move(b)));
}

Expr number(double v) { return make(Kind::Number, v); }
Expr variable() { return make(Kind::Variable, 0); }

bool both_numbers(const Expr &a, const Expr &b) {
  return a->kind == Kind::Number && b->kind == Kind::Number;
}

Expr operator+(Expr &&a, Expr &&b) {
  if (both_numbers(a, b))
    return number(a->value + b->value);
  if (a->is_number(0))
    return std::move(b);
  if (b->is_number(0))
    return std::move(a);
  return make(Kind::Sum, 0, std::move(a), std::move(b));
}

Expr operator*(Expr &&a, Expr &&b) {
  if (both_numbers(a, b))
    return number(a->value * b->value);
  if (a->is_number(0) || b->is_number(0))
    return number(0);
  if (a->is_number(1))
    return std::move(b);
  if (b->is_number(1))
    return std::move(a);
  if (b->kind == Kind::Number)
    a.swap(b); // numbers go first
  return make(Kind::Product, 0, std::move(a), std::move(b));
}

Expr operator-(Expr &&a) { return number(-1) * std::move(a); }

Expr pow(Expr &&base, double exponent) {
  if (exponent == 0)
    return number(1);
  if (exponent == 1)
    return std::move(base);
  if (base->kind == Kind::Number)
    return number(std::pow(base->value, exponent));
  return make(Kind::Power, exponent, std::move(base));
}

double apply(Kind k, double v) {
  return k == Kind::Sine ? std::sin(v) : std::cos(v);
}

Expr wave(Kind kind, Expr &&a) {
  if (a->kind == Kind::Number)
    return number(apply(kind, a->value));
  return make(kind, 0, std::move(a));
}

Expr sine(Expr &&a) { return wave(Kind::Sine, std::move(a)); }
Expr cosine(Expr &&a) { return wave(Kind::Cosine, std::move(a)); }

Expr clone(const Node &e) {
  return make(e.kind, e.value, e.a ? clone(*e.a) : nullptr,
              e.b ? clone(*e.b) : nullptr);
}

Expr derive(const Node &e) {
  switch (e.kind) {
  case Kind::Number: return number(0);
  case Kind::Variable: return number(1);
  case Kind::Sum: return derive(*e.a) + derive(*e.b);
  case Kind::Product:
    return derive(*e.a) * clone(*e.b) + clone(*e.a) * derive(*e.b);
  case Kind::Power:
    return number(e.value) * pow(clone(*e.a), e.value - 1) * derive(*e.a);
  case Kind::Sine: return cosine(clone(*e.a)) * derive(*e.a);
  case Kind::Cosine: return -sine(clone(*e.a)) * derive(*e.a);
  }
  return number(0);
}

double eval(const Node &e, double x) {
  switch (e.kind) {
  case Kind::Number: return e.value;
  case Kind::Variable: return x;
  case Kind::Sum: return eval(*e.a, x) + eval(*e.b, x);
  case Kind::Product: return eval(*e.a, x) * eval(*e.b, x);
  case Kind::Power: return std::pow(eval(*e.a, x), e.value);
  case Kind::Sine:
  case Kind::Cosine: return apply(e.kind, eval(*e.a, x));
  }
  return 0;
}

void print_number(std::string &out, double v) {
  char digits[32];
  std::snprintf(digits, sizeof digits, "%g", v);
  out += digits;
}

int precedence(Kind k) {
  return k == Kind::Sum ? 1 : k == Kind::Product ? 2 : 3;
}

void print(std::string &out, const Node &e);

void print_wrapped(std::string &out, const Node &e, bool wrap) {
  if (wrap)
    out += '(';
  print(out, e);
  if (wrap)
    out += ')';
}

void print_infix(std::string &out, const Node &e, char op) {
  int mine = precedence(e.kind);
  print_wrapped(out, *e.a, precedence(e.a->kind) < mine);
  out += op;
  print_wrapped(out, *e.b, precedence(e.b->kind) < mine);
}

void print_call(std::string &out, const Node &e, const char *name) {
  out += name;
  print_wrapped(out, *e.a, true);
}

void print(std::string &out, const Node &e) {
  switch (e.kind) {
  case Kind::Number: print_number(out, e.value); break;
  case Kind::Variable: out += 'x'; break;
  case Kind::Sum: print_infix(out, e, '+'); break;
  case Kind::Product: print_infix(out, e, '*'); break;
  case Kind::Power:
    print_wrapped(out, *e.a, e.a->kind != Kind::Variable);
    out += '^';
    print_number(out, e.value);
    break;
  case Kind::Sine: print_call(out, e, "sin"); break;
  case Kind::Cosine: print_call(out, e, "cos"); break;
  }
}

// c0 + c1 x + c2 x^2 + ...
Expr polynomial(const double *coefficients, unsigned n) {
  Expr sum = number(0);
  for (unsigned i = 0; i < n; ++i)
    sum = std::move(sum) + number(coefficients[i]) * pow(variable(), i);
  return sum;
}

} // namespace

// The text of the derivative of p(x), or of sin(p(x)), for a polynomial p.
std::string derivative_text(const double *coefficients, unsigned n,
                            bool of_sine) {
  Expr e = polynomial(coefficients, n);
  if (of_sine)
    e = sine(std::move(e));
  std::string out;
  print(out, *derive(*e));
  return out;
}

// A root of a polynomial by Newton's method with an exact derivative.
double newton_root(const double *coefficients, unsigned n, double x) {
  Expr p = polynomial(coefficients, n);
  Expr slope = derive(*p);
  for (int i = 0; i < 60; ++i) {
    double d = eval(*slope, x);
    if (d == 0)
      break;
    x -= eval(*p, x) / d;
  }
  return x;
}

} // namespace sample
