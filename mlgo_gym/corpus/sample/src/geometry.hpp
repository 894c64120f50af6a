// Points of the plane and axis-aligned boxes.
#ifndef SAMPLE_GEOMETRY_HPP
#define SAMPLE_GEOMETRY_HPP

#include <cmath>

namespace sample {

struct Vec2 {
  double x = 0, y = 0;

  friend Vec2 operator+(Vec2 a, Vec2 b) { return {a.x + b.x, a.y + b.y}; }
  friend Vec2 operator-(Vec2 a, Vec2 b) { return {a.x - b.x, a.y - b.y}; }
  friend Vec2 operator*(Vec2 a, double k) { return {a.x * k, a.y * k}; }
  friend double dot(Vec2 a, Vec2 b) { return a.x * b.x + a.y * b.y; }
  friend double cross(Vec2 a, Vec2 b) { return a.x * b.y - a.y * b.x; }
  friend double length(Vec2 a) { return std::sqrt(dot(a, a)); }
};

struct Box {
  Vec2 lo{1e300, 1e300}, hi{-1e300, -1e300};

  bool empty() const { return lo.x > hi.x || lo.y > hi.y; }
  void include(Vec2 p) {
    lo = {std::fmin(lo.x, p.x), std::fmin(lo.y, p.y)};
    hi = {std::fmax(hi.x, p.x), std::fmax(hi.y, p.y)};
  }
  void include(const Box &b) {
    if (b.empty())
      return;
    include(b.lo);
    include(b.hi);
  }
  bool contains(Vec2 p) const {
    return p.x >= lo.x && p.x <= hi.x && p.y >= lo.y && p.y <= hi.y;
  }
};

} // namespace sample

#endif
