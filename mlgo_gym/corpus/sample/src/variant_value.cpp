// A tagged union with an overload-set visitor, and on it a dynamically typed
// stack calculator that runs lines such as "3 4 + 2 *" and "'ab 1 +".
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string>
#include <type_traits>
#include <utility>

namespace sample {

template <typename... Fs> struct Overloaded : Fs... {
  using Fs::operator()...;
};
template <typename... Fs> Overloaded(Fs...) -> Overloaded<Fs...>;

class Value {
public:
  Value() : kind_(Kind::Nothing), number_(0) {}
  Value(double v) : kind_(Kind::Number), number_(v) {}
  Value(bool v) : kind_(Kind::Truth), truth_(v) {}
  Value(std::string s) : kind_(Kind::Text) {
    new (&text_) std::string(std::move(s));
  }
  Value(const Value &o);
  Value(Value &&o) noexcept : Value() { swap_in(o); }
  ~Value() { destroy(); }
  Value &operator=(Value o) {
    destroy();
    kind_ = Kind::Nothing;
    swap_in(o);
    return *this;
  }

  template <typename F> decltype(auto) visit(F &&f) const {
    switch (kind_) {
    case Kind::Number: return f(number_);
    case Kind::Truth: return f(truth_);
    case Kind::Text: return f(text_);
    default: return f(nullptr);
    }
  }

private:
  enum class Kind : unsigned char { Nothing, Number, Truth, Text };

  struct Assign {
    Value &to;
    void operator()(std::nullptr_t) const {}
    void operator()(double v) const {
      to.kind_ = Kind::Number;
      to.number_ = v;
    }
    void operator()(bool v) const {
      to.kind_ = Kind::Truth;
      to.truth_ = v;
    }
    void operator()(const std::string &s) const {
      new (&to.text_) std::string(s);
      to.kind_ = Kind::Text;
    }
  };

  void swap_in(Value &o) { // *this holds nothing
    switch (o.kind_) {
    case Kind::Number: number_ = o.number_; break;
    case Kind::Truth: truth_ = o.truth_; break;
    case Kind::Text: new (&text_) std::string(std::move(o.text_)); break;
    default: break;
    }
    kind_ = o.kind_;
  }
  void destroy() {
    if (kind_ == Kind::Text)
      text_.~basic_string();
  }

  Kind kind_;
  union {
    double number_;
    bool truth_;
    std::string text_;
  };
};

inline Value::Value(const Value &o) : Value() { o.visit(Assign{*this}); }

namespace {

double to_number(const Value &v) {
  return v.visit(Overloaded{
      [](std::nullptr_t) { return 0.0; },
      [](double d) { return d; },
      [](bool b) { return b ? 1.0 : 0.0; },
      [](const std::string &s) { return std::strtod(s.c_str(), nullptr); },
  });
}

bool to_truth(const Value &v) {
  return v.visit(Overloaded{
      [](std::nullptr_t) { return false; },
      [](double d) { return d != 0; },
      [](bool b) { return b; },
      [](const std::string &s) { return !s.empty(); },
  });
}

std::string to_text(const Value &v) {
  return v.visit(Overloaded{
      [](std::nullptr_t) { return std::string("nothing"); },
      [](double d) {
        char digits[32];
        std::snprintf(digits, sizeof digits, "%.10g", d);
        return std::string(digits);
      },
      [](bool b) { return std::string(b ? "true" : "false"); },
      [](const std::string &s) { return s; },
  });
}

bool is_text(const Value &v) {
  return v.visit([](const auto &x) {
    return std::is_same_v<std::decay_t<decltype(x)>, std::string>;
  });
}

class Calculator {
public:
  // Runs one word; false if it is unknown or the stack is too short.
  bool run(const std::string &word) {
    for (const Operation *op = operations; op->name; ++op)
      if (word == op->name)
        return apply(*op);
    char *end;
    double v = std::strtod(word.c_str(), &end);
    if (end != word.c_str() && *end == '\0')
      return push(v);
    return word[0] == '\'' && push(word.substr(1));
  }

  Value result() const { return depth_ ? stack_[depth_ - 1] : Value(); }

private:
  struct Operation {
    const char *name;
    unsigned operands;
    Value (*fn)(const Value *args);
  };
  static const Operation operations[];

  bool push(Value v) {
    if (depth_ == sizeof stack_ / sizeof *stack_)
      return false;
    stack_[depth_++] = std::move(v);
    return true;
  }

  bool apply(const Operation &op) {
    if (depth_ < op.operands)
      return false;
    depth_ -= op.operands;
    return push(op.fn(stack_ + depth_));
  }

  struct Minus {
    static double on(double a, double b) { return a - b; }
  };
  struct Times {
    static double on(double a, double b) { return a * b; }
  };
  struct Less {
    static bool on(double a, double b) { return a < b; }
  };
  template <typename Op> static Value on_numbers(const Value *a) {
    return Op::on(to_number(a[0]), to_number(a[1]));
  }
  static bool same(const Value &a, const Value &b) {
    return to_text(a) == to_text(b);
  }
  static Value add(const Value *a) {
    if (is_text(a[0]) || is_text(a[1]))
      return to_text(a[0]) + to_text(a[1]);
    return to_number(a[0]) + to_number(a[1]);
  }

  Value stack_[32];
  unsigned depth_ = 0;
};

const Calculator::Operation Calculator::operations[] = {
    {"+", 2, add},
    {"-", 2, on_numbers<Minus>},
    {"*", 2, on_numbers<Times>},
    {"<", 2, on_numbers<Less>},
    {"=", 2, [](const Value *a) { return Value(same(a[0], a[1])); }},
    {"and", 2, [](const Value *a) { return to_truth(a[0]) ? a[1] : a[0]; }},
    {"or", 2, [](const Value *a) { return to_truth(a[0]) ? a[0] : a[1]; }},
    {"not", 1, [](const Value *a) { return Value(!to_truth(a[0])); }},
    {"true", 0, [](const Value *) { return Value(true); }},
    {"false", 0, [](const Value *) { return Value(false); }},
    {"if", 3, [](const Value *a) { return to_truth(a[0]) ? a[1] : a[2]; }},
    {nullptr, 0, nullptr},
};

} // namespace

// Evaluates a line of words; the top of the stack as text, "error" if a word
// could not be run.
std::string calculate(const char *line) {
  Calculator calc;
  while (*line) {
    std::size_t n = std::strcspn(line, " ");
    if (n > 0 && !calc.run(std::string(line, n)))
      return "error";
    line += n + (line[n] == ' ');
  }
  return to_text(calc.result());
}

} // namespace sample
