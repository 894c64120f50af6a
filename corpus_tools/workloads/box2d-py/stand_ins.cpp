// What Box2D asks of Python and the system: how it fails, a clock that stands still, and sines that
// are the same on every processor.
#include <Python.h>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <sys/time.h>

extern "C" {

PyObject *PyExc_AssertionError;

void PyErr_SetString(PyObject *, const char *message) {
  std::fprintf(stderr, "assertion failed: %s\n", message);
  std::_Exit(1);
}

int gettimeofday(struct timeval *result, void *) noexcept {
  *result = {1000000, 0};
  return 0;
}

// Taylor's series around the nearest multiple of half a turn.
float sinf(float angle) noexcept {
  const double pi = 3.14159265358979323846;
  double halves = __builtin_floor(angle / pi + 0.5);
  double x = angle - halves * pi, term = x, sum = x;
  for (int i = 2; i < 16; i += 2) {
    term *= -x * x / (i * (i + 1));
    sum += term;
  }
  return static_cast<float>(static_cast<long>(halves) % 2 ? -sum : sum);
}

float cosf(float angle) noexcept { return sinf(angle + 1.57079632679f); }
}
