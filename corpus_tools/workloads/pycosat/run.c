// PicoSAT: `run` decides random 3-SAT, pigeonholes, colourings and parity, with assumptions
// and contexts; each model is checked against its clauses.
#include <stdio.h>
#include <stdlib.h>

#include "picosat.h"

static int clauses[40000]; // Literals; each clause ends with a zero.
static int length;
static unsigned seed = 3;

static int next(int limit) {
  seed = seed * 1664525u + 1013904223u;
  return (int)((seed >> 8) % (unsigned)limit);
}

static void require(int condition, const char *what) {
  if (!condition) {
    fprintf(stderr, "wrong: %s\n", what);
    exit(1);
  }
}

static void put(int literal) {
  require(length < 40000, "the space for clauses");
  clauses[length++] = literal;
}

static PicoSAT *load(void) {
  PicoSAT *solver = picosat_init();
  picosat_set_seed(solver, 7);
  for (int i = 0; i < length; i++)
    picosat_add(solver, clauses[i]);
  return solver;
}

static void check_model(PicoSAT *solver) {
  for (int i = 0, satisfied = 0; i < length; i++) {
    if (clauses[i] == 0) {
      require(satisfied, "a model");
      satisfied = 0;
    } else {
      satisfied |= picosat_deref(solver, clauses[i]) == 1;
    }
  }
}

static int solve(PicoSAT *solver) {
  int result = picosat_sat(solver, -1);
  require(result == PICOSAT_SATISFIABLE || result == PICOSAT_UNSATISFIABLE, "undecided");
  if (result == PICOSAT_SATISFIABLE)
    check_model(solver);
  return result == PICOSAT_SATISFIABLE;
}

static void random_3sat(int variables, int count) {
  length = 0;
  for (int i = 0; i < count; i++, put(0))
    for (int k = 0; k < 3; k++)
      put((1 + next(variables)) * (next(2) ? 1 : -1));
  PicoSAT *solver = load();
  int first = solve(solver), flips = 0;
  int model[13] = {0};
  for (int i = 1; first && i <= 12; i++)
    model[i] = picosat_deref(solver, i);
  for (int i = 1; first && i <= 12; i++) { // Which variables may have the other value?
    picosat_assume(solver, model[i] > 0 ? -i : i);
    flips += solve(solver);
  }
  printf("random %d/%d: %d, %d flips, %llu decisions\n", variables, count, first, flips,
         picosat_decisions(solver));
  picosat_reset(solver);
}

// Each of the pigeons sits in a hole, and no two in one.
static void pigeonholes(int pigeons, int holes) {
  length = 0;
  for (int p = 0; p < pigeons; p++, put(0))
    for (int h = 1; h <= holes; h++)
      put(p * holes + h);
  for (int h = 1; h <= holes; h++)
    for (int p = 0; p < pigeons; p++)
      for (int q = 0; q < p; q++, put(0))
        put(-p * holes - h), put(-q * holes - h);
  PicoSAT *solver = load();
  int result = solve(solver);
  require(result == (pigeons <= holes), "pigeons");
  printf("pigeons %d/%d: %d, %llu propagations\n", pigeons, holes, result,
         picosat_propagations(solver));
  picosat_reset(solver);
}

// Colours a random graph; the colours of more and more nodes are given, in contexts.
static void colouring(int nodes, int edges, int colours) {
  length = 0;
  for (int node = 0; node < nodes; node++, put(0))
    for (int c = 1; c <= colours; c++)
      put(node * colours + c);
  for (int i = 0; i < edges; i++) {
    int a = next(nodes), b = next(nodes);
    for (int c = 1; a != b && c <= colours; c++, put(0))
      put(-a * colours - c), put(-b * colours - c);
  }
  PicoSAT *solver = load();
  int result = solve(solver), depth = 0;
  while (result && depth < nodes) {
    int context = picosat_push(solver);
    require(context > 0, "a context");
    picosat_add(solver, depth * colours + 1 + next(colours));
    picosat_add(solver, 0);
    result = solve(solver);
    depth++;
  }
  for (int i = 0; i < depth; i++)
    picosat_pop(solver);
  printf("colours %d/%d: %d nodes given, then %d\n", nodes, edges, depth, solve(solver));
  picosat_reset(solver);
}

// A chain of exclusive ors whose parities contradict, but for the assumptions.
static void parity(int bits) {
  static const int signs[4][3] = {{1, 1, -1}, {1, -1, 1}, {-1, 1, 1}, {-1, -1, -1}};
  length = 0;
  for (int i = 1; i + 2 <= bits; i++)
    for (int row = 0; row < 4; row++, put(0))
      for (int k = 0; k < 3; k++)
        put((i + k) * signs[row][k]);
  PicoSAT *solver = load();
  int possible = 0, failed = 0;
  for (int i = 0; i < 30; i++) {
    int given[6];
    for (int k = 0; k < 6; k++) {
      given[k] = (1 + next(bits)) * (next(2) ? 1 : -1);
      picosat_assume(solver, given[k]);
    }
    if (solve(solver))
      possible++;
    else
      for (int k = 0; k < 6; k++)
        failed += picosat_failed_assumption(solver, given[k]);
  }
  printf("parity %d: %d possible, %d failed assumptions\n", bits, possible, failed);
  picosat_reset(solver);
}

int main(void) {
  random_3sat(120, 505);
  random_3sat(160, 672);
  random_3sat(110, 490);
  pigeonholes(7, 6);
  pigeonholes(8, 8);
  colouring(60, 115, 3);
  colouring(40, 180, 5);
  parity(90);
  return 0;
}
