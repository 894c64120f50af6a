/* A little of everything that back-end options change: a switch, loops, floats, calls, threads. */
struct node { struct node *next; int key; double weight; };
typedef __builtin_va_list va_list;
int external(int);
void abort(void);
double sqrt(double);
float sinf(float);
char *strcpy(char *, const char *);
int puts(const char *);
void *memset(void *, int, unsigned long);
extern int external_data;
extern __thread int extern_tls;
static int counter;
static __thread int local_tls = 1;
int shared = 3;

static int helper(int x) { return x > 3 ? external(x) + counter++ : x * 7; }

int dispatch(int op, int a, int b) {
  switch (op) {
  case 0: return a + b;
  case 1: return a - b;
  case 2: return a * b;
  case 3: return external(a);
  case 4: return b << 3;
  case 5: return a ^ b;
  case 6: return helper(b);
  case 7: return a / (b | 1);
  default: return -1;
  }
}

double dot(const double *a, const double *b, int n) {
  double s = 0;
  for (int i = 0; i < n; i++) s += a[i] * b[i];
  return s;
}

double norm(double x, double y) { return sqrt(x * x + y * y) / (x + 1.0); }

void scale(float *restrict a, const float *restrict b, int n) {
  for (int i = 0; i < n; i++) a[i] = b[i] * 2.5f + 1;
}

void sines(float *a, int n) {
  for (int i = 0; i < n; i++) a[i] = sinf(a[i]);
}

int list_sum(struct node *n) {
  int s = 0;
  for (; n; n = n->next) s += helper(n->key) + (int)n->weight;
  return s;
}

int sum(int n, ...) {
  va_list ap;
  int s = 0;
  __builtin_va_start(ap, n);
  while (n--) s += __builtin_va_arg(ap, int);
  __builtin_va_end(ap);
  return s;
}

int copy(const char *s) {
  char buffer[64];
  strcpy(buffer, s);
  return puts(buffer);
}

int tls(void) { return ++local_tls + extern_tls; }

int twice(int (*f)(int), int x) {
  int y = f(x);
  memset(&counter, 0, sizeof counter);
  return y + f(y) + external_data;
}

int most(const int *p, int n) {
  if (!p) abort();
  int m = 0;
  for (int i = 0; i < n; i++) {
    if (p[i] > m) m = p[i];
  }
  return m;
}

int tail(int a) { return external(a + shared); }
long long wide(long long a, long long b) { return a / b + a % b; }
