// Chipmunk: `run` lets a heap of circles, boxes and polygons fall, swings a machine of every kind
// of joint, and asks a terrain traced by marching squares about points, segments and shapes.
#include <stdio.h>
#include <stdlib.h>

#include "chipmunk/chipmunk.h"
#include "chipmunk/cpMarch.h"
#include "chipmunk/cpPolyline.h"

static unsigned seed = 17;

static unsigned next(unsigned limit) {
  seed = seed * 1664525u + 1013904223u;
  return (seed >> 8) % limit;
}

// The library is compiled to have it from outside.
void cpMessage(const char *condition, const char *file, int line, int is_error, int is_hard,
               const char *message, ...) {
  (void)file, (void)is_hard, (void)message;
  fprintf(stderr, "line %d: %s\n", line, condition);
  if (is_error)
    exit(1);
}

static cpShape *add(cpSpace *space, cpShape *shape, cpCollisionType type) {
  cpShapeSetFriction(shape, 0.6);
  cpShapeSetElasticity(shape, 0.2);
  cpShapeSetCollisionType(shape, type);
  return cpSpaceAddShape(space, shape);
}

static cpBody *add_body(cpSpace *space, cpVect position, cpFloat moment) {
  cpBody *body = cpSpaceAddBody(space, cpBodyNew(1, moment));
  cpBodySetPosition(body, position);
  return body;
}

// A circle, a box or a hull of random corners.
static void add_thing(cpSpace *space, cpVect position) {
  unsigned kind = next(3);
  if (kind == 0) {
    cpBody *body = add_body(space, position, cpMomentForCircle(1, 0, 4, cpvzero));
    add(space, cpCircleShapeNew(body, 4, cpvzero), 1);
  } else if (kind == 1) {
    cpBody *body = add_body(space, position, cpMomentForBox(1, 8, 6));
    add(space, cpBoxShapeNew(body, 8, 6, 0.3), 2);
  } else {
    cpVect corners[7];
    for (int i = 0; i < 7; i++)
      corners[i] = cpv((int)next(11) - 5, (int)next(11) - 5);
    corners[0] = cpv(-5, -5), corners[1] = cpv(5, -5), corners[2] = cpv(0, 5);
    int count = cpConvexHull(7, corners, corners, NULL, 0);
    cpBody *body = add_body(space, position, cpMomentForPoly(1, count, corners, cpvzero, 0));
    add(space, cpPolyShapeNew(body, count, corners, cpTransformIdentity, 0), 2);
  }
}

static void count_contacts(cpArbiter *arbiter, cpSpace *space, void *count) {
  (void)space;
  *(int *)count += cpArbiterGetCount(arbiter);
}

static void add_position(cpBody *body, void *sum) {
  cpVect *total = sum;
  *total = cpvadd(*total, cpBodyGetPosition(body));
  total->x += cpBodyGetAngle(body);
}

static void count_shape(cpShape *shape, void *count) {
  *(int *)count += cpShapeGetCollisionType(shape) == 2 ? 100 : 1;
}

static void count_touched(cpShape *shape, cpContactPointSet *points, void *count) {
  (void)shape;
  *(int *)count += points->count;
}

static cpSpace *new_space(void) {
  cpSpace *space = cpSpaceNew();
  cpSpaceSetGravity(space, cpv(0, -100));
  cpSpaceSetSleepTimeThreshold(space, 0.5);
  return space;
}

static void finish(const char *name, cpSpace *space, int steps, const int *contacts) {
  cpVect total = cpvzero;
  for (int i = 0; i < steps; i++)
    cpSpaceStep(space, 1.0 / 60);
  cpSpaceEachBody(space, add_position, &total);
  printf("%s: %.3f %.3f, %d\n", name, total.x / 100, total.y / 100, *contacts);
}

// Things fall into a bin; some of them are taken out on the way.
static void heap(const char *name, int things, int hashed) {
  cpSpace *space = new_space();
  cpBody *ground = cpSpaceGetStaticBody(space);
  int contacts = 0;
  add(space, cpSegmentShapeNew(ground, cpv(-60, 0), cpv(60, 0), 2), 0);
  add(space, cpSegmentShapeNew(ground, cpv(-60, 0), cpv(-70, 100), 2), 0);
  add(space, cpSegmentShapeNew(ground, cpv(60, 0), cpv(70, 100), 2), 0);
  if (hashed)
    cpSpaceUseSpatialHash(space, 10, 500);
  cpCollisionHandler *handler = cpSpaceAddCollisionHandler(space, 1, 2);
  handler->postSolveFunc = count_contacts;
  handler->userData = &contacts;
  for (int i = 0; i < things; i++)
    add_thing(space, cpv((int)next(100) - 50, 10 + 3 * i));
  cpShape *blow = add(space, cpCircleShapeNew(add_body(space, cpv(0, 200), 50), 5, cpvzero), 3);
  finish(name, space, 120, &contacts);
  int seen = 0, touched = 0;
  cpSpaceBBQuery(space, cpBBNew(-30, 0, 30, 20), CP_SHAPE_FILTER_ALL, count_shape, &seen);
  cpBodySetPosition(cpShapeGetBody(blow), cpv(5, 5));
  cpSpaceShapeQuery(space, blow, count_touched, &touched);
  cpSpaceRemoveShape(space, blow);
  cpSpaceRemoveBody(space, cpShapeGetBody(blow));
  finish("  later", space, 120, &contacts);
  printf("  seen %d, touched %d\n", seen, touched);
  cpSpaceFree(space);
}

// A row of bodies, each hung to the one before by the next kind of joint.
static void machine(void) {
  cpSpace *space = new_space();
  cpBody *last = cpSpaceGetStaticBody(space);
  for (int i = 0; i < 22; i++) {
    cpBody *body = add_body(space, cpv(12 * i + 12, 50), cpMomentForBox(1, 8, 4));
    add(space, cpBoxShapeNew(body, 8, 4, 0), 2);
    cpVect right = cpv(6, 0), left = cpv(-6, 0);
    cpConstraint *joints[] = {
        cpPinJointNew(last, body, right, left),
        cpSlideJointNew(last, body, right, left, 0, 4),
        cpPivotJointNew(last, body, cpv(12 * i + 6, 50)),
        cpGrooveJointNew(last, body, cpv(0, -3), cpv(0, 3), left),
        cpDampedSpringNew(last, body, right, left, 2, 40, 1),
        cpDampedRotarySpringNew(last, body, 0.3, 2000, 20),
        cpRotaryLimitJointNew(last, body, -0.4, 0.4),
        cpRatchetJointNew(last, body, 0, 0.5),
        cpGearJointNew(last, body, 0.1, 2),
        cpSimpleMotorNew(last, body, 1.5),
    };
    if (i % 10 >= 5) // These hold the angle only.
      cpSpaceAddConstraint(space, cpPivotJointNew(last, body, cpv(12 * i + 6, 50)));
    cpConstraintSetMaxForce(joints[i % 10], 5000);
    cpSpaceAddConstraint(space, joints[i % 10]);
    last = body;
  }
  finish("machine", space, 400, &(int){0});
  cpSpaceFree(space);
}

static cpFloat hills(cpVect point, void *unused) {
  (void)unused;
  int x = (int)point.x % 40 - 20, y = (int)point.y % 40 - 20;
  return (x * x + y * y) / 400.0;
}

// Terrain from the lines along which `hills` is 0.5, asked by rays and points.
static void terrain(void) {
  cpSpace *space = new_space();
  cpPolylineSet *lines = cpPolylineSetNew();
  cpMarchSoft(cpBBNew(0, 0, 200, 120), 100, 60, 0.5,
              (cpMarchSegmentFunc)cpPolylineSetCollectSegment, lines, hills, NULL);
  int segments = 0, hits = 0;
  for (int i = 0; i < lines->count; i++) {
    cpPolyline *line = cpPolylineSimplifyCurves(lines->lines[i], 0.5);
    for (int k = 0; k + 1 < line->count; k++, segments++)
      add(space,
          cpSegmentShapeNew(cpSpaceGetStaticBody(space), line->verts[k], line->verts[k + 1], 0.5),
          1);
    cpPolylineFree(line);
  }
  cpFloat reached = 0;
  for (int i = 0; i < 600; i++) {
    cpVect from = cpv(next(200), next(120)), to = cpv(next(200), next(120));
    cpSegmentQueryInfo ray;
    cpPointQueryInfo point;
    hits += cpSpaceSegmentQueryFirst(space, from, to, 0.1, CP_SHAPE_FILTER_ALL, &ray) != NULL;
    hits += cpSpacePointQueryNearest(space, from, 6, CP_SHAPE_FILTER_ALL, &point) != NULL;
    reached += ray.alpha;
  }
  printf("terrain: %d lines, %d segments, %d hits, %.3f\n", lines->count, segments, hits,
         reached / 100);
  cpPolylineSetFree(lines, cpTrue);
  for (int i = 0; i < 15; i++)
    add_thing(space, cpv(10 * i + 20, 150));
  finish("rolling", space, 200, &(int){0});
  cpSpaceFree(space);
}

int main(void) {
  heap("heap", 60, 0);
  heap("hashed heap", 40, 1);
  machine();
  terrain();
  return 0;
}
