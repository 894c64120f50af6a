// A bridge, rag dolls, a car, gears, pulleys and springs: every kind of joint.
#include "scene.h"

namespace {

void hinge(Scene &scene, b2Body *a, b2Body *b, float x, float y, float limit = 0) {
  b2RevoluteJointDef joint;
  joint.Initialize(a, b, b2Vec2(x, y));
  joint.enableLimit = limit > 0;
  joint.lowerAngle = -limit;
  joint.upperAngle = limit;
  scene.world.CreateJoint(&joint);
}

void bridge(Scene &scene, float x, float y, int planks) {
  b2Body *last = scene.ground;
  for (int i = 0; i < planks; ++i) {
    b2Body *plank = scene.box(scene.add(b2_dynamicBody, x + i, y), 0.5f, 0.125f, 20);
    hinge(scene, last, plank, x + i - 0.5f, y);
    last = plank;
  }
  hinge(scene, last, scene.ground, x + planks - 0.5f, y);
  b2RopeJointDef rope;
  rope.bodyA = scene.ground;
  rope.bodyB = last;
  rope.localAnchorA.Set(x + planks, y + 2);
  rope.maxLength = 2.5f;
  scene.world.CreateJoint(&rope);
}

void doll(Scene &scene, float x, float y) {
  b2Body *chest = scene.box(scene.add(b2_dynamicBody, x, y), 0.3f, 0.5f);
  b2Body *head = scene.circle(scene.add(b2_dynamicBody, x, y + 0.8f), 0.25f);
  hinge(scene, chest, head, x, y + 0.55f, 0.5f);
  b2Body *hips = scene.box(scene.add(b2_dynamicBody, x, y - 0.7f), 0.3f, 0.2f);
  b2WeldJointDef spine;
  spine.Initialize(chest, hips, b2Vec2(x, y - 0.5f));
  spine.frequencyHz = 8;
  spine.dampingRatio = 0.5f;
  scene.world.CreateJoint(&spine);
  for (float side : {-1.0f, 1.0f}) {
    b2Body *arm = scene.box(scene.add(b2_dynamicBody, x + side * 0.7f, y + 0.3f), 0.4f, 0.1f);
    hinge(scene, chest, arm, x + side * 0.35f, y + 0.3f, 1.2f);
    b2Body *leg = scene.box(scene.add(b2_dynamicBody, x + side * 0.2f, y - 1.3f), 0.1f, 0.4f);
    hinge(scene, hips, leg, x + side * 0.2f, y - 0.9f, 0.8f);
  }
}

void car(Scene &scene, float x, float y) {
  b2Body *chassis = scene.box(scene.add(b2_dynamicBody, x, y), 1.5f, 0.3f);
  for (float side : {-1.0f, 1.0f}) {
    b2Body *wheel = scene.circle(scene.add(b2_dynamicBody, x + side, y - 0.5f), 0.4f);
    b2WheelJointDef joint;
    joint.Initialize(chassis, wheel, wheel->GetPosition(), b2Vec2(0, 1));
    joint.enableMotor = side < 0;
    joint.motorSpeed = -20;
    joint.maxMotorTorque = 30;
    joint.frequencyHz = 4;
    scene.world.CreateJoint(&joint);
  }
}

void gears(Scene &scene, float x, float y) {
  b2Body *wheel = scene.circle(scene.add(b2_dynamicBody, x, y), 1);
  b2RevoluteJointDef turning;
  turning.Initialize(scene.ground, wheel, wheel->GetPosition());
  turning.enableMotor = true;
  turning.motorSpeed = 3;
  turning.maxMotorTorque = 200;
  b2Body *rack = scene.box(scene.add(b2_dynamicBody, x + 2, y), 0.2f, 2);
  b2PrismaticJointDef sliding;
  sliding.Initialize(scene.ground, rack, rack->GetPosition(), b2Vec2(0, 1));
  sliding.enableLimit = true;
  sliding.lowerTranslation = -3;
  sliding.upperTranslation = 3;
  b2GearJointDef gear;
  gear.bodyA = wheel;
  gear.bodyB = rack;
  gear.joint1 = scene.world.CreateJoint(&turning);
  gear.joint2 = scene.world.CreateJoint(&sliding);
  gear.ratio = -1;
  scene.world.CreateJoint(&gear);
}

void pulley(Scene &scene, float x, float y) {
  b2Body *light = scene.box(scene.add(b2_dynamicBody, x, y), 0.4f, 0.4f);
  b2Body *heavy = scene.box(scene.add(b2_dynamicBody, x + 4, y), 0.4f, 0.4f, 3);
  b2PulleyJointDef joint;
  joint.Initialize(light, heavy, b2Vec2(x, y + 6), b2Vec2(x + 4, y + 6), b2Vec2(x, y + 0.4f),
                   b2Vec2(x + 4, y + 0.4f), 1.5f);
  scene.world.CreateJoint(&joint);
}

// A net of springs, whose corner a mouse drags; returns what moves the mouse.
b2MouseJoint *net(Scene &scene, float x, float y, int size) {
  b2Body *nodes[8][8];
  for (int i = 0; i < size; ++i)
    for (int j = 0; j < size; ++j) {
      nodes[i][j] = scene.circle(scene.add(b2_dynamicBody, x + i, y + j), 0.2f);
      b2DistanceJointDef spring;
      spring.frequencyHz = 5;
      spring.dampingRatio = 0.3f;
      for (b2Body *other : {i ? nodes[i - 1][j] : nullptr, j ? nodes[i][j - 1] : nullptr}) {
        if (!other)
          continue;
        spring.Initialize(other, nodes[i][j], other->GetPosition(), nodes[i][j]->GetPosition());
        scene.world.CreateJoint(&spring);
      }
    }
  b2FrictionJointDef drag;
  drag.Initialize(scene.ground, nodes[0][0], nodes[0][0]->GetPosition());
  drag.maxForce = 20;
  drag.maxTorque = 5;
  scene.world.CreateJoint(&drag);
  b2MouseJointDef mouse;
  mouse.bodyA = scene.ground;
  mouse.bodyB = nodes[size - 1][size - 1];
  mouse.target = mouse.bodyB->GetPosition();
  mouse.maxForce = 2000;
  return static_cast<b2MouseJoint *>(scene.world.CreateJoint(&mouse));
}

b2MotorJoint *crane(Scene &scene, float x, float y) {
  b2MotorJointDef joint;
  joint.Initialize(scene.ground, scene.box(scene.add(b2_dynamicBody, x, y), 1, 0.2f));
  joint.maxForce = 500;
  joint.maxTorque = 500;
  return static_cast<b2MotorJoint *>(scene.world.CreateJoint(&joint));
}

} // namespace

bool run_joints() {
  Scene scene;
  bridge(scene, -30, 8, 20);
  for (int i = 0; i < 8; ++i)
    doll(scene, -28 + 2.2f * i, 12 + i % 3);
  car(scene, -5, 4);
  gears(scene, 4, 8);
  pulley(scene, 10, 6);
  b2MouseJoint *mouse = net(scene, 18, 10, 6);
  b2MotorJoint *motor = crane(scene, 34, 8);
  bool fine = true;
  for (int round = 0; round < 4; ++round) {
    mouse->SetTarget(b2Vec2(24 + 2 * scene.random(), 12 + 5 * scene.random()));
    motor->SetLinearOffset(b2Vec2(32 + scene.random(), 7 + 2 * scene.random()));
    motor->SetAngularOffset(scene.random());
    scene.step(60);
    fine = scene.report("joints") && fine;
  }
  scene.world.DestroyJoint(mouse);
  scene.step(60);
  fine = scene.report("let go") && fine;
  return fine;
}
