// The guest of run.c: sorting, a sieve, hashing, orbits, a matrix and calls by table.
// To WebAssembly, then to hexadecimal by `xxd -p -c 48`:
//   clang --target=wasm32 -mcpu=mvp -O1 -nostdlib -ffreestanding -fno-builtin -Wl,--no-entry
//     -Wl,-z,stack-size=8192 -Wl,--strip-all guest.c
typedef unsigned int word;
typedef unsigned long long wide;

#define EXPORT(name) __attribute__((export_name(name)))
__attribute__((import_module("host"), import_name("report"))) void report(int tag, wide value);

static word seed = 12345;
static int numbers[1024];
static unsigned char bytes[4096];

static word next(word limit) {
  seed = seed * 1664525u + 1013904223u;
  return (seed >> 8) % limit;
}

static void sort(int *first, int *last) {
  while (first < last) {
    int pivot = first[(last - first) / 2], *a = first, *b = last;
    while (a <= b) {
      while (*a < pivot)
        a++;
      while (*b > pivot)
        b--;
      if (a <= b) {
        int kept = *a;
        *a++ = *b;
        *b-- = kept;
      }
    }
    sort(first, b);
    first = a;
  }
}

EXPORT("sorting") int sorting(int count) {
  for (int i = 0; i < count; i++)
    numbers[i] = (int)next(100000) - 50000;
  sort(numbers, numbers + count - 1);
  int sum = 0;
  for (int i = 1; i < count; i++) {
    if (numbers[i - 1] > numbers[i])
      __builtin_trap();
    sum = sum * 31 + numbers[i];
  }
  report(1, (wide)(word)sum);
  return sum;
}

EXPORT("sieve") int sieve(int limit) {
  int count = 0;
  for (int i = 0; i < limit; i++)
    bytes[i] = 1;
  for (int i = 2; i < limit; i++) {
    count += bytes[i];
    for (int k = i * i; bytes[i] && k < limit; k += i)
      bytes[k] = 0;
  }
  return count;
}

EXPORT("hashing") wide hashing(int size, wide value) {
  for (int i = 0; i < size; i++) {
    bytes[i & 4095] = (unsigned char)(value >> (i & 31));
    value = (value ^ bytes[i & 4095]) * 1099511628211ull;
    value = (value << 7) | (value >> 57);
    value += (wide)__builtin_popcountll(value) + (wide)__builtin_clzll(value | 1);
  }
  report(2, value % 1000003);
  return value;
}

EXPORT("orbit") double orbit(int steps, double speed) {
  double x = 1, y = 0, vx = 0, vy = speed;
  for (int i = 0; i < steps; i++) {
    double square = x * x + y * y, cube = square * __builtin_sqrt(square);
    vx -= 0.01 * x / cube;
    vy -= 0.01 * y / cube;
    x += 0.01 * vx;
    y += 0.01 * vy;
  }
  report(3, (wide)(long long)(__builtin_floor(x * 1000) + 100000));
  return x * x + y * y;
}

EXPORT("matrix") float matrix(int n) {
  static float a[16][16], b[16][16];
  float trace = 0;
  for (int i = 0; i < n; i++)
    for (int k = 0; k < n; k++) {
      a[i][k] = (float)next(9);
      b[i][k] = __builtin_fabsf((float)next(9) - 4.0f);
    }
  for (int i = 0; i < n; i++)
    for (int j = 0; j < n; j++) {
      float sum = 0;
      for (int k = 0; k < n; k++)
        sum += a[i][k] * b[k][j];
      trace += i == j ? sum : 0;
    }
  return trace;
}

static int add(int a, int b) { return a + b; }
static int subtract(int a, int b) { return a - b; }
static int multiply(int a, int b) { return a * b; }
static int divide(int a, int b) { return b ? a / b : a; }
static int rest(int a, int b) { return b ? a % b : a; }
static int (*const operations[])(int, int) = {add, subtract, multiply, divide, rest};

// A machine with a stack, whose program is random bytes.
EXPORT("machine") int machine(int steps) {
  int stack[16] = {1}, top = 0;
  for (int i = 0; i < steps; i++) {
    word code = next(12);
    switch (code) {
    case 0:
    case 1:
    case 2:
    case 3:
    case 4:
      if (top > 0) {
        top--;
        stack[top] = operations[code](stack[top], stack[top + 1]) & 0xffffff;
      }
      break;
    case 5:
      stack[top] = ~stack[top] & 0xffff;
      break;
    case 6:
      stack[top] ^= stack[top] >> 3;
      break;
    default:
      top = top < 15 ? top + 1 : 15;
      stack[top] = (int)next(1000) + 1;
    }
  }
  return stack[top];
}

EXPORT("fibonacci") int fibonacci(int n) { return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2); }

EXPORT("fault") int fault(int at) { return *(volatile int *)at; }
EXPORT("grow") int grow(int pages) {
  int before = (int)__builtin_wasm_memory_grow(0, (unsigned long)pages);
  return before * 100 + (int)__builtin_wasm_memory_size(0);
}
