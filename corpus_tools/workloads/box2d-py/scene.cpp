// A Box2D world with a hilly ground, and the program that runs one of the two scenes.
#include "scene.h"
#include <cmath>
#include <cstdio>
#include <cstring>

Scene::Scene() {
  world.SetContactListener(this);
  world.SetDebugDraw(this);
  SetFlags(e_shapeBit | e_jointBit | e_aabbBit | e_centerOfMassBit);
  ground = add(b2_staticBody, 0, 0);
  b2Vec2 hills[41];
  for (int i = 0; i <= 40; ++i)
    hills[i].Set(2.0f * i - 40, i == 0 || i == 40 ? 20.0f : 0.125f * (i * i % 7));
  b2ChainShape chain;
  chain.CreateChain(hills, 41);
  ground->CreateFixture(&chain, 0);
}

float Scene::random() {
  state = state * 1664525 + 1013904223;
  return (state >> 16) / 65536.0f;
}

b2Body *Scene::add(b2BodyType type, float x, float y, float angle) {
  b2BodyDef definition;
  definition.type = type;
  definition.position.Set(x, y);
  definition.angle = angle;
  return world.CreateBody(&definition);
}

b2Body *Scene::box(b2Body *body, float width, float height, float density) {
  b2PolygonShape shape;
  shape.SetAsBox(width, height);
  body->CreateFixture(&shape, density);
  return body;
}

b2Body *Scene::circle(b2Body *body, float radius, float density) {
  b2CircleShape shape;
  shape.m_radius = radius;
  b2FixtureDef fixture;
  fixture.shape = &shape;
  fixture.density = density;
  fixture.restitution = 0.4f;
  body->CreateFixture(&fixture);
  return body;
}

void Scene::step(int count) {
  for (int i = 0; i < count; ++i)
    world.Step(1.0f / 60, 8, 3);
  world.DrawDebugData();
}

bool Scene::report(const char *title) {
  uint32_t hash = 2166136261u;
  bool fine = true;
  int awake = 0, printed = 0;
  std::printf("%s:", title);
  for (const b2Body *body = world.GetBodyList(); body; body = body->GetNext()) {
    b2Vec2 place = body->GetPosition();
    for (float value : {place.x, place.y, body->GetAngle()}) {
      fine = fine && std::isfinite(value) && std::fabs(value) < 1e5f;
      hash = (hash ^ static_cast<uint32_t>(std::lround(value * 1000))) * 16777619u;
    }
    awake += body->IsAwake();
    if (printed++ < 3)
      std::printf(" (%.3f %.3f)", place.x + 0.0, place.y + 0.0);
  }
  std::printf("\n  bodies %d awake %d contacts %d begun %d ended %d solved %d drawn %d %08x\n",
              world.GetBodyCount(), awake, world.GetContactCount(), begun, ended, solved, drawn,
              static_cast<unsigned>(hash));
  return fine;
}

int main(int argc, char **argv) {
  bool stacks = argc == 2 && std::strcmp(argv[1], "stacks") == 0;
  return (stacks ? run_stacks() : run_joints()) ? 0 : 1;
}
