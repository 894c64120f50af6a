// A class hierarchy of plane shapes with virtual functions and a visitor:
// areas, bounds, hit tests, transforms and an ASCII rasteriser.
#include <cmath>
#include <cstddef>
#include <memory>

#include "geometry.hpp"

namespace sample {

class Circle;
class Rectangle;
class Polygon;
class Group;

class ShapeVisitor {
public:
  virtual ~ShapeVisitor() = default;
  virtual void visit(const Circle &c) = 0;
  virtual void visit(const Rectangle &r) = 0;
  virtual void visit(const Polygon &p) = 0;
  virtual void visit(const Group &g) = 0;
};

class Shape {
public:
  virtual ~Shape() = default;
  virtual double area() const = 0;
  virtual Box bounds() const = 0;
  virtual bool contains(Vec2 p) const = 0;
  virtual void move(Vec2 by) = 0;
  virtual void accept(ShapeVisitor &v) const = 0;

  bool hit(Vec2 p) const { return bounds().contains(p) && contains(p); }

private:
  friend class Group;
  Shape *next_ = nullptr; // the one below it in its group
};

class Circle final : public Shape {
public:
  Circle(Vec2 center, double radius) : center_(center), radius_(radius) {}
  double area() const override { return pi * radius_ * radius_; }
  Box bounds() const override {
    Vec2 r{radius_, radius_};
    return {center_ - r, center_ + r};
  }
  bool contains(Vec2 p) const override {
    return length(p - center_) <= radius_;
  }
  void move(Vec2 by) override { center_ = center_ + by; }
  void accept(ShapeVisitor &v) const override { v.visit(*this); }

private:
  static constexpr double pi = 3.14159265358979323846;
  Vec2 center_;
  double radius_;
};

class Rectangle final : public Shape {
public:
  Rectangle(Vec2 a, Vec2 b) {
    box_.include(a);
    box_.include(b);
  }
  double area() const override { return size().x * size().y; }
  Box bounds() const override { return box_; }
  bool contains(Vec2 p) const override { return box_.contains(p); }
  void move(Vec2 by) override { box_ = {box_.lo + by, box_.hi + by}; }
  void accept(ShapeVisitor &v) const override { v.visit(*this); }

private:
  Vec2 size() const { return box_.hi - box_.lo; }
  Box box_;
};

class Polygon final : public Shape {
public:
  // A regular polygon; with `spikes` every second corner is half as far out.
  Polygon(Vec2 center, double radius, unsigned corners, bool spikes)
      : sides_(corners < max_sides ? corners : max_sides) {
    for (unsigned i = 0; i < sides_; ++i) {
      double r = spikes && i % 2 ? radius / 2 : radius;
      points_[i] = center + direction(double(i) / sides_) * r;
    }
  }

  double area() const override {
    double twice = 0;
    for_sides([&](Vec2 a, Vec2 b) { twice += cross(a, b); });
    return std::fabs(twice) / 2;
  }
  Box bounds() const override {
    Box box;
    for_sides([&](Vec2 a, Vec2) { box.include(a); });
    return box;
  }
  bool contains(Vec2 p) const override {
    bool inside = false;
    for_sides([&](Vec2 a, Vec2 b) {
      bool left = cross(b - a, p - a) > 0;
      if ((a.y > p.y) != (b.y > p.y) && left == (b.y > a.y))
        inside = !inside;
    });
    return inside;
  }
  void move(Vec2 by) override {
    for (unsigned i = 0; i < sides_; ++i)
      points_[i] = points_[i] + by;
  }
  void accept(ShapeVisitor &v) const override { v.visit(*this); }
  std::size_t sides() const { return sides_; }

private:
  static constexpr unsigned max_sides = 32;

  static Vec2 direction(double turn) {
    double angle = 6.283185307179586 * turn;
    return {std::cos(angle), std::sin(angle)};
  }
  template <typename F> void for_sides(F f) const {
    for (unsigned i = 0; i < sides_; ++i)
      f(points_[i], points_[i + 1 < sides_ ? i + 1 : 0]);
  }
  unsigned sides_;
  Vec2 points_[max_sides];
};

class Group final : public Shape {
public:
  Group() = default;
  Group(const Group &) = delete;
  Group &operator=(const Group &) = delete;
  ~Group() override {
    while (Shape *s = top_) {
      top_ = s->next_;
      delete s;
    }
  }

  // Adds a shape on top of the others and takes it over.
  void add(Shape *s) {
    s->next_ = top_;
    top_ = s;
  }

  double area() const override {
    double total = 0;
    for_parts([&](Shape &s) { total += s.area(); });
    return total;
  }
  Box bounds() const override {
    Box box;
    for_parts([&](Shape &s) { box.include(s.bounds()); });
    return box;
  }
  bool contains(Vec2 p) const override {
    bool found = false;
    for_parts([&](Shape &s) { found = found || s.hit(p); });
    return found;
  }
  void move(Vec2 by) override {
    for_parts([&](Shape &s) { s.move(by); });
  }
  void accept(ShapeVisitor &v) const override { v.visit(*this); }
  void accept_parts(ShapeVisitor &v) const {
    for_parts([&](Shape &s) { s.accept(v); });
  }

private:
  template <typename F> void for_parts(F f) const {
    for (Shape *s = top_; s; s = s->next_)
      f(*s);
  }
  Shape *top_ = nullptr;
};

namespace {

class Census final : public ShapeVisitor {
public:
  void visit(const Circle &) override { count(0); }
  void visit(const Rectangle &) override { count(4); }
  void visit(const Polygon &p) override { count(p.sides()); }
  void visit(const Group &g) override {
    ++depth_;
    deepest_ = depth_ > deepest_ ? depth_ : deepest_;
    g.accept_parts(*this);
    --depth_;
  }
  std::size_t shapes = 0, corners = 0;
  int deepest() const { return deepest_; }

private:
  void count(std::size_t n) {
    ++shapes;
    corners += n;
  }
  int depth_ = 0, deepest_ = 0;
};

} // namespace

std::unique_ptr<Shape> make_star(Vec2 center, double radius, unsigned corners,
                                 bool spikes) {
  return std::unique_ptr<Shape>(new Polygon(center, radius, corners, spikes));
}

// A rectangle with a disc at each end of a diagonal, as one group.
std::unique_ptr<Shape> make_plate(Vec2 a, Vec2 b, double radius) {
  auto group = std::make_unique<Group>();
  group->add(new Rectangle(a, b));
  group->add(new Circle(a, radius));
  group->add(new Circle(b, radius));
  return group;
}

void count_shapes(const Shape &s, std::size_t *shapes, std::size_t *corners,
                  int *depth) {
  Census census;
  s.accept(census);
  *shapes = census.shapes;
  *corners = census.corners;
  *depth = census.deepest();
}

// Moves a shape so that its bounds' lower corner is the origin.
void normalize(Shape &s) {
  Box b = s.bounds();
  if (!b.empty())
    s.move(b.lo * -1.0);
}

// Draws a shape's bounds as rows of '#' and '.'; `out` holds rows * (cols + 1)
// characters and one more.
void rasterize(const Shape &s, int cols, int rows, char *out) {
  Box b = s.bounds();
  Vec2 size = b.hi - b.lo;
  for (int r = 0; r < rows; ++r) {
    for (int c = 0; c < cols; ++c) {
      Vec2 cell{(c + 0.5) / cols * size.x, (r + 0.5) / rows * size.y};
      *out++ = s.hit(b.lo + cell) ? '#' : '.';
    }
    *out++ = '\n';
  }
  *out = '\0';
}

} // namespace sample
