// OSQP: `run` solves quadratic programs: portfolios with changing returns, a fit with penalties, a
// path of controls with changing starts, and one that has no solution.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "osqp.h"

enum { MOST = 220 };

// Pardiso's part is not in the corpus.
c_int lh_load_pardiso(const char *name) { return name == NULL; }
c_int lh_unload_pardiso(void) { return 1; }
c_int init_linsys_solver_pardiso(void) { return 1; }

// The solver takes its times, which we do not want to know: the clock stands still.
int clock_gettime(clockid_t clock, struct timespec *now) {
  *now = (struct timespec){(time_t)clock, 0};
  return 0;
}

static double P[MOST][MOST], A[MOST][MOST], q[MOST], l[MOST], u[MOST]; // P[row][column]
static unsigned seed = 21;

static double next(void) {
  seed = seed * 1664525u + 1013904223u;
  return (seed >> 12) / (double)(1 << 20);
}

static void require(int condition, const char *what) {
  if (!condition) {
    fprintf(stderr, "wrong: %s\n", what);
    exit(1);
  }
}

static void clear(void) {
  for (int i = 0; i < MOST; i++) {
    q[i] = l[i] = u[i] = 0;
    for (int k = 0; k < MOST; k++)
      P[i][k] = A[i][k] = 0;
  }
}

// The entries of a matrix by columns; of P the upper triangle alone.
static csc compress(double (*matrix)[MOST], int rows, int columns, int upper) {
  csc made = {.m = rows, .n = columns, .nz = -1};
  made.p = calloc((size_t)columns + 1, sizeof *made.p);
  made.i = calloc((size_t)(rows * columns), sizeof *made.i);
  made.x = calloc((size_t)(rows * columns), sizeof *made.x);
  for (int c = 0; c < columns; c++) {
    for (int r = 0; r < (upper ? c + 1 : rows); r++)
      if (matrix[r][c] != 0) {
        made.i[made.nzmax] = r;
        made.x[made.nzmax++] = matrix[r][c];
      }
    made.p[c + 1] = made.nzmax;
  }
  return made;
}

static void discard(csc *matrix) {
  free(matrix->p);
  free(matrix->i);
  free(matrix->x);
}

static OSQPWorkspace *set_up(int variables, int constraints) {
  csc cost = compress(P, variables, variables, 1), rows = compress(A, constraints, variables, 0);
  OSQPData data = {variables, constraints, &cost, &rows, q, l, u};
  OSQPSettings settings;
  osqp_set_default_settings(&settings);
  settings.verbose = 0;
  settings.adaptive_rho_interval = 50; // Otherwise it depends on the clock.
  settings.polish = 1;
  settings.eps_abs = settings.eps_rel = 1e-6;
  OSQPWorkspace *work = NULL;
  require(osqp_setup(&work, &data, &settings) == 0, "setting up");
  discard(&cost);
  discard(&rows);
  return work;
}

static void solve(const char *name, OSQPWorkspace *work, int constraints, int variables) {
  require(osqp_solve(work) == 0, "solving");
  printf("%s: %s", name, work->info->status);
  if (work->info->status_val == OSQP_SOLVED) {
    const double *x = work->solution->x;
    for (int r = 0; r < constraints; r++) {
      double value = 0;
      for (int c = 0; c < variables; c++)
        value += A[r][c] * x[c];
      require(value > l[r] - 1e-3 && value < u[r] + 1e-3, "a constraint");
    }
    printf(", %.4g", work->info->obj_val);
  }
  printf("\n");
}

// Shares of each of n values, which depend on k factors: much return, little variance.
static void portfolio(int n, int k) {
  clear();
  for (int i = 0; i < n; i++) {
    P[i][i] = 0.1 + next();
    q[i] = -next();
    A[k][i] = 1;
    A[k + 1 + i][i] = 1;
    u[k + 1 + i] = 0.3;
    for (int f = 0; f < k; f++)
      A[f][i] = next() < 0.5 ? next() - 0.3 : 0;
  }
  for (int f = 0; f < k; f++) {
    P[n + f][n + f] = 1;
    A[f][n + f] = -1;
  }
  l[k] = u[k] = 1;
  int constraints = n + k + 1;
  OSQPWorkspace *work = set_up(n + k, constraints);
  solve("portfolio", work, constraints, n + k);
  for (int day = 0; day < 10; day++) {
    for (int i = 0; i < n; i++)
      q[i] += 0.2 * (next() - 0.5);
    osqp_update_lin_cost(work, q);
    solve("  next day", work, constraints, n + k);
  }
  osqp_cleanup(work);
}

// Least squares with a penalty on the sizes of n coefficients, from m measurements: the variables
// are the coefficients, the residuals, and the bounds of the sizes.
static void lasso(int n, int m, double penalty) {
  clear();
  for (int r = 0; r < m; r++) {
    double value = 0;
    for (int c = 0; c < n; c++) {
      A[r][c] = next() - 0.5;
      value += A[r][c] * (c % 3 ? 0 : c);
    }
    A[r][n + r] = -1;
    P[n + r][n + r] = 1;
    l[r] = u[r] = value + 0.1 * next();
  }
  for (int c = 0; c < n; c++) {
    q[n + m + c] = penalty;
    A[m + c][c] = A[m + n + c][c] = 1;
    A[m + c][n + m + c] = -1;
    A[m + n + c][n + m + c] = 1;
    l[m + c] = -OSQP_INFTY;
    u[m + n + c] = OSQP_INFTY;
  }
  OSQPWorkspace *work = set_up(2 * n + m, 2 * n + m);
  solve("lasso", work, 2 * n + m, 2 * n + m);
  osqp_cleanup(work);
}

// Pushes a cart to the origin in so many steps: a place, a speed and a force at each.
static void control(int steps) {
  clear();
  int rows = 0;
  for (int t = 0; t < steps; t++) {
    P[3 * t][3 * t] = 1;
    P[3 * t + 1][3 * t + 1] = 0.2;
    P[3 * t + 2][3 * t + 2] = 0.05;
    for (int k = 0; k < 2; k++, rows++) { // How it moves; at first, where it is.
      A[rows][3 * t + k] = -1;
      if (t > 0) {
        A[rows][3 * t - 3 + k] = 1;
        A[rows][3 * t - 2 + k] = 0.2;
      }
    }
    A[rows][3 * t + 2] = 1;
    l[rows] = -1.5;
    u[rows++] = 1.5;
  }
  l[0] = u[0] = -2;
  OSQPWorkspace *work = set_up(3 * steps, rows);
  solve("control", work, rows, 3 * steps);
  for (int i = 0; i < 12; i++) {
    l[0] = u[0] = -next() * 3;
    l[1] = u[1] = next() - 0.5;
    osqp_update_bounds(work, l, u);
    solve("  from elsewhere", work, rows, 3 * steps);
  }
  osqp_cleanup(work);
}

static void impossible(void) {
  clear();
  P[0][0] = P[1][1] = A[0][0] = A[0][1] = A[1][0] = A[2][1] = 1;
  l[0] = 3;
  u[0] = 4;
  u[1] = u[2] = 1;
  OSQPWorkspace *work = set_up(2, 3);
  solve("impossible", work, 3, 2);
  osqp_cleanup(work);
}

int main(void) {
  portfolio(180, 16);
  lasso(30, 140, 0.3);
  control(70);
  impossible();
  return 0;
}
