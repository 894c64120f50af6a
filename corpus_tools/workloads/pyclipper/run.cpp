// Clipper: `run` cuts random polygons and stars with one another in all four ways, grows and
// shrinks them, adds them up by Minkowski's sum, and checks areas and points inside.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "clipper.hpp"

using namespace ClipperLib;

static unsigned seed = 13;

static int next(int limit) {
  seed = seed * 1664525u + 1013904223u;
  return int((seed >> 8) % unsigned(limit));
}

static void require(bool condition, const char *what) {
  if (!condition) {
    std::fprintf(stderr, "wrong: %s\n", what);
    std::exit(1);
  }
}

static void show(const std::string &name, const Paths &paths) {
  uint32_t hash = 2166136261u;
  size_t points = 0;
  double area = 0;
  for (const Path &path : paths) {
    for (const IntPoint &point : path) {
      hash = (hash ^ uint32_t(point.X)) * 16777619u;
      hash = (hash ^ uint32_t(point.Y)) * 16777619u;
    }
    points += path.size();
    area += Area(path);
  }
  std::printf("%s: %zu paths, %zu points, area %.0f, %08x\n", name.c_str(), paths.size(), points,
              area / 1000, hash);
}

// A path of random points, which may well cross itself.
static Path tangle(int count, int size) {
  Path made;
  for (int i = 0; i < count; i++)
    made << IntPoint(next(size), next(size));
  return made;
}

// Boxes in rows, some of which overlap.
static Paths boxes(int rows, int size) {
  Paths made;
  for (int i = 0; i < rows * rows; i++) {
    int x = i % rows * size, y = i / rows * size, width = size / 2 + next(size);
    made.push_back({IntPoint(x, y), IntPoint(x + width, y), IntPoint(x + width, y + width),
                    IntPoint(x, y + width)});
  }
  return made;
}

static Paths clip(ClipType how, const Paths &subject, const Paths &by, PolyFillType fill) {
  Clipper clipper;
  Paths result;
  require(clipper.AddPaths(subject, ptSubject, true), "a subject");
  require(clipper.AddPaths(by, ptClip, true), "a clip");
  clipper.StrictlySimple(how == ctUnion);
  require(clipper.Execute(how, result, fill, fill), "clipping");
  return result;
}

static double area(const Paths &paths) {
  double total = 0;
  for (const Path &path : paths)
    total += Area(path);
  return total;
}

static void all_ways(const std::string &name, const Paths &subject, const Paths &by,
                     PolyFillType fill) {
  Paths both = clip(ctIntersection, subject, by, fill), any = clip(ctUnion, subject, by, fill);
  Paths first = clip(ctDifference, subject, by, fill), one = clip(ctXor, subject, by, fill);
  show(name + " and", both);
  show(name + " or", any);
  show(name + " less", first);
  show(name + " xor", one);
  double difference = area(any) - area(both) - area(one); // But for what rounding brings.
  require(difference < area(any) / 100 && -difference < area(any) / 100, "the areas");
}

// Lines cut by polygons, and the polygons as a tree of outlines and holes.
static void lines_and_tree(const Paths &by) {
  Clipper clipper;
  PolyTree tree;
  Paths open, closed;
  for (int i = 0; i < 25; i++)
    clipper.AddPath(tangle(4, 9000), ptSubject, false);
  clipper.AddPaths(by, ptClip, true);
  require(clipper.Execute(ctIntersection, tree, pftEvenOdd, pftEvenOdd), "clipping lines");
  OpenPathsFromPolyTree(tree, open);
  show("lines", open);
  Clipper joiner;
  joiner.AddPaths(by, ptSubject, true);
  require(joiner.Execute(ctUnion, tree, pftEvenOdd, pftEvenOdd), "a tree");
  int holes = 0;
  for (PolyNode *node = tree.GetFirst(); node; node = node->GetNext())
    holes += node->IsHole();
  ClosedPathsFromPolyTree(tree, closed);
  show("tree of " + std::to_string(holes) + " holes", closed);
}

static void grow(const Paths &paths) {
  static const JoinType joins[] = {jtSquare, jtRound, jtMiter};
  for (JoinType join : joins)
    for (int delta : {150, -60}) {
      ClipperOffset offset(2.5, 3);
      Paths result;
      offset.AddPaths(paths, join, etClosedPolygon);
      offset.AddPath(tangle(5, 5000), join, delta > 0 ? etOpenRound : etClosedLine);
      offset.Execute(result, delta);
      CleanPolygons(result);
      show("grown by " + std::to_string(delta), result);
    }
}

int main() {
  Paths tangles = {tangle(34, 10000), tangle(50, 10000)}, others = {tangle(44, 10000)};
  all_ways("tangles", tangles, others, pftEvenOdd);
  all_ways("tangles, wound", tangles, others, pftNonZero);
  Paths rows = boxes(14, 700);
  all_ways("boxes", rows, {tangle(12, 10000)}, pftPositive);
  lines_and_tree(tangles);
  Paths simple, sum;
  SimplifyPolygons(tangles, simple);
  show("simple", simple);
  grow(simple);
  MinkowskiSum(tangle(6, 300), simple[0], sum, true);
  show("sum", sum);
  int inside = 0;
  for (int i = 0; i < 2000; i++) {
    IntPoint point(next(10000), next(10000));
    for (const Path &path : simple)
      inside += PointInPolygon(point, path) == 1;
  }
  std::printf("inside: %d\n", inside);
  return 0;
}
