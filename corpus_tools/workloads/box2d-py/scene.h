// A Box2D world with what the two programs have in common.
#ifndef SCENE_H
#define SCENE_H

#include <Box2D/Box2D.h>
#include <cstdint>

// A world with a ground, a seeded generator, and counts of what happens.
class Scene : b2ContactListener, b2Draw {
public:
  Scene();

  // Numbers in [0, 1).
  float random();
  b2Body *add(b2BodyType type, float x, float y, float angle = 0);
  // Adds a box, of half its size, or a circle to a body and returns the body.
  b2Body *box(b2Body *body, float width, float height, float density = 1);
  b2Body *circle(b2Body *body, float radius, float density = 1);
  void step(int count);
  // Prints counts, the first bodies' places, and a hash of all places; whether all are numbers.
  bool report(const char *title);

  b2World world{b2Vec2(0, -10)};
  b2Body *ground;
  int begun = 0, ended = 0, solved = 0, drawn = 0;

private:
  void BeginContact(b2Contact *) override { ++begun; }
  void EndContact(b2Contact *) override { ++ended; }
  void PostSolve(b2Contact *, const b2ContactImpulse *) override { ++solved; }
  void DrawPolygon(const b2Vec2 *, int32, const b2Color &) override { ++drawn; }
  void DrawSolidPolygon(const b2Vec2 *, int32, const b2Color &) override { ++drawn; }
  void DrawCircle(const b2Vec2 &, float32, const b2Color &) override { ++drawn; }
  void DrawSolidCircle(const b2Vec2 &, float32, const b2Vec2 &, const b2Color &) override {
    ++drawn;
  }
  void DrawSegment(const b2Vec2 &, const b2Vec2 &, const b2Color &) override { ++drawn; }
  void DrawTransform(const b2Transform &) override { ++drawn; }

  uint32_t state = 1;
};

// The two programs.
bool run_stacks();
bool run_joints();

#endif
