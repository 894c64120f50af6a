// A pyramid, loose shapes that fall, bullets, blasts, and questions to the world.
#include "scene.h"
#include <cstdio>

namespace {

struct Nearest : b2RayCastCallback {
  float32 ReportFixture(b2Fixture *, const b2Vec2 &, const b2Vec2 &normal, float32 part) override {
    fraction = part;
    up = normal.y > 0.5f;
    return part;
  }
  float fraction = 1;
  bool up = false;
};

struct Counter : b2QueryCallback {
  bool ReportFixture(b2Fixture *fixture) override {
    inside += fixture->TestPoint(point);
    return ++found < 50;
  }
  b2Vec2 point;
  int found = 0, inside = 0;
};

void pyramid(Scene &scene, int rows) {
  for (int row = 0; row < rows; ++row)
    for (int i = row; i < rows; ++i)
      scene.box(scene.add(b2_dynamicBody, -18 + 1.1f * i - 0.55f * row, 2 + 1.05f * row), 0.5f,
                0.5f);
}

void loose(Scene &scene, int count) {
  for (int i = 0; i < count; ++i) {
    b2Body *body = scene.add(b2_dynamicBody, 30 * scene.random(), 5 + 15 * scene.random(), i);
    if (i % 3 == 0) {
      scene.circle(body, 0.3f + 0.3f * scene.random());
      continue;
    }
    b2Vec2 points[6];
    for (int j = 0; j < 6; ++j)
      points[j].Set(scene.random() - 0.5f, scene.random() + j % 2);
    b2PolygonShape shape;
    shape.Set(points, 6);
    body->CreateFixture(&shape, 2);
    if (i % 5 == 0)
      scene.circle(body, 0.4f);
  }
}

// Casts rays down and looks into boxes, all over the world.
void look(Scene &scene) {
  int up = 0, found = 0, inside = 0;
  float depth = 0;
  for (int i = 0; i < 300; ++i) {
    float x = 70 * scene.random() - 35;
    Nearest nearest;
    scene.world.RayCast(&nearest, b2Vec2(x, 40), b2Vec2(x + 1, -5));
    depth += nearest.fraction;
    up += nearest.up;
    Counter counter;
    counter.point.Set(x, 3 * scene.random());
    b2AABB area;
    area.lowerBound = counter.point - b2Vec2(1, 1);
    area.upperBound = counter.point + b2Vec2(1, 1);
    scene.world.QueryAABB(&counter, area);
    found += counter.found;
    inside += counter.inside;
  }
  std::printf("  depth %.2f up %d found %d inside %d\n", depth, up, found, inside);
}

void shoot(Scene &scene) {
  b2Body *bullet = scene.circle(scene.add(b2_dynamicBody, -38, 4), 0.25f, 20);
  bullet->SetBullet(true);
  bullet->SetLinearVelocity(b2Vec2(300, 5));
  scene.box(scene.add(b2_staticBody, 5, 4), 0.05f, 4);
}

void blast(Scene &scene, b2Vec2 centre) {
  for (b2Body *body = scene.world.GetBodyList(); body; body = body->GetNext()) {
    b2Vec2 way = body->GetWorldCenter() - centre;
    float distance = way.Normalize();
    if (body->GetType() == b2_dynamicBody && distance < 12)
      body->ApplyLinearImpulse((12 - distance) * way, body->GetWorldPoint(b2Vec2(0.1f, 0)), true);
  }
}

void remove_high(Scene &scene, float height) {
  for (b2Body *body = scene.world.GetBodyList(), *next; body; body = next) {
    next = body->GetNext();
    if (body->GetType() == b2_dynamicBody && body->GetPosition().y > height)
      scene.world.DestroyBody(body);
  }
}

} // namespace

bool run_stacks() {
  Scene scene;
  pyramid(scene, 10);
  loose(scene, 45);
  scene.step(60);
  bool fine = scene.report("fallen");
  look(scene);
  shoot(scene);
  scene.step(40);
  fine = scene.report("shot") && fine;
  blast(scene, b2Vec2(-12, 0));
  blast(scene, b2Vec2(15, 1));
  scene.step(40);
  fine = scene.report("blown up") && fine;
  look(scene);
  remove_high(scene, 4);
  scene.world.ShiftOrigin(b2Vec2(3, 1));
  scene.step(60);
  return scene.report("settled") && fine;
}
