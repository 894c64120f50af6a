/* Fixed-capacity unsigned big integers: arithmetic, decimal text, modular
 * exponentiation and a Fermat primality test. */
#include "bignum.h"

#include <string.h>

static void big_trim(bignum *a) {
  while (a->len > 0 && a->limb[a->len - 1] == 0)
    a->len--;
}

static void big_zero(bignum *a) { memset(a, 0, sizeof *a); }
static int big_is_zero(const bignum *a) { return a->len == 0; }
static int big_is_odd(const bignum *a) { return a->len && (a->limb[0] & 1); }

static uint32_t big_limb(const bignum *a, int i) {
  return i < a->len ? a->limb[i] : 0;
}

static int big_bit(const bignum *a, int i) {
  return big_limb(a, i / 32) >> (i % 32) & 1;
}

static int big_bits(const bignum *a) {
  if (big_is_zero(a))
    return 0;
  int bits = (a->len - 1) * 32;
  for (uint32_t top = a->limb[a->len - 1]; top; top >>= 1)
    bits++;
  return bits;
}

void big_from_u64(bignum *a, uint64_t v) {
  big_zero(a);
  a->limb[0] = (uint32_t)v;
  a->limb[1] = (uint32_t)(v >> 32);
  a->len = 2;
  big_trim(a);
}

int big_compare(const bignum *a, const bignum *b) {
  if (a->len != b->len)
    return a->len < b->len ? -1 : 1;
  for (int i = a->len - 1; i >= 0; i--)
    if (a->limb[i] != b->limb[i])
      return a->limb[i] < b->limb[i] ? -1 : 1;
  return 0;
}

/* Appends a limb; the number has overflowed when this returns zero. */
static int big_push(bignum *a, uint32_t limb) {
  if (limb == 0)
    return 1;
  if (a->len == BIG_LIMBS)
    return 0;
  a->limb[a->len++] = limb;
  return 1;
}

/* a = a * m + add, the core of decimal input. */
static int big_muladd_small(bignum *a, uint32_t m, uint32_t add) {
  uint64_t carry = add;
  for (int i = 0; i < a->len; i++) {
    carry += (uint64_t)a->limb[i] * m;
    a->limb[i] = (uint32_t)carry;
    carry >>= 32;
  }
  return big_push(a, (uint32_t)carry);
}

/* a = a / d; returns the remainder. */
static uint32_t big_divmod_small(bignum *a, uint32_t d) {
  uint64_t rem = 0;
  for (int i = a->len - 1; i >= 0; i--) {
    rem = rem << 32 | a->limb[i];
    a->limb[i] = (uint32_t)(rem / d);
    rem %= d;
  }
  big_trim(a);
  return (uint32_t)rem;
}

int big_add(bignum *out, const bignum *a, const bignum *b) {
  bignum sum;
  uint64_t carry = 0;
  big_zero(&sum);
  sum.len = a->len > b->len ? a->len : b->len;
  for (int i = 0; i < sum.len; i++) {
    carry += (uint64_t)big_limb(a, i) + big_limb(b, i);
    sum.limb[i] = (uint32_t)carry;
    carry >>= 32;
  }
  int ok = big_push(&sum, (uint32_t)carry);
  *out = sum;
  return ok;
}

/* out = a - b, which needs a >= b. */
int big_sub(bignum *out, const bignum *a, const bignum *b) {
  bignum diff = *a;
  int64_t borrow = 0;
  if (big_compare(a, b) < 0)
    return 0;
  for (int i = 0; i < a->len; i++) {
    int64_t d = (int64_t)a->limb[i] - big_limb(b, i) + borrow;
    diff.limb[i] = (uint32_t)d;
    borrow = d < 0 ? -1 : 0;
  }
  big_trim(&diff);
  *out = diff;
  return 1;
}

int big_mul(bignum *out, const bignum *a, const bignum *b) {
  bignum prod;
  big_zero(&prod);
  if (a->len + b->len > BIG_LIMBS)
    return 0;
  for (int i = 0; i < a->len; i++) {
    uint64_t carry = 0;
    for (int j = 0; j < b->len; j++) {
      carry += (uint64_t)a->limb[i] * b->limb[j] + prod.limb[i + j];
      prod.limb[i + j] = (uint32_t)carry;
      carry >>= 32;
    }
    prod.limb[i + b->len] = (uint32_t)carry;
  }
  prod.len = a->len + b->len;
  big_trim(&prod);
  *out = prod;
  return 1;
}

static int big_shift_in(bignum *a, int bit) {
  return big_muladd_small(a, 2, (uint32_t)bit);
}

static void big_set_bit(bignum *a, int i) {
  a->limb[i / 32] |= (uint32_t)1 << (i % 32);
  if (a->len <= i / 32)
    a->len = i / 32 + 1;
}

/* Schoolbook binary long division; zero is returned for a zero divisor. */
int big_divmod(bignum *quot, bignum *rem, const bignum *a, const bignum *b) {
  bignum q, r;
  if (big_is_zero(b))
    return 0;
  big_zero(&q);
  big_zero(&r);
  for (int i = big_bits(a) - 1; i >= 0; i--) {
    if (!big_shift_in(&r, big_bit(a, i)))
      return 0;
    if (big_compare(&r, b) >= 0) {
      big_sub(&r, &r, b);
      big_set_bit(&q, i);
    }
  }
  if (quot)
    *quot = q;
  if (rem)
    *rem = r;
  return 1;
}

static int big_mod(bignum *out, const bignum *a, const bignum *m) {
  return big_divmod(NULL, out, a, m);
}

static int big_mulmod(bignum *out, const bignum *a, const bignum *b,
                      const bignum *m) {
  bignum wide;
  return big_mul(&wide, a, b) && big_mod(out, &wide, m);
}

int big_powmod(bignum *out, const bignum *base, const bignum *exp,
               const bignum *m) {
  bignum acc, square;
  big_from_u64(&acc, 1);
  if (!big_mod(&square, base, m) || !big_mod(&acc, &acc, m))
    return 0;
  int bits = big_bits(exp);
  for (int i = 0; i < bits; i++) {
    if (big_bit(exp, i) && !big_mulmod(&acc, &acc, &square, m))
      return 0;
    if (i + 1 < bits && !big_mulmod(&square, &square, &square, m))
      return 0;
  }
  *out = acc;
  return 1;
}

static int fermat_witness(const bignum *n, uint64_t base) {
  bignum b, e, one, r;
  big_from_u64(&b, base);
  big_from_u64(&one, 1);
  big_sub(&e, n, &one);
  return !big_powmod(&r, &b, &e, n) || big_compare(&r, &one) != 0;
}

/* Whether `n` passes Fermat's test to a few small bases. */
int big_probable_prime(const bignum *n) {
  static const uint8_t bases[] = {2, 3, 5, 7, 11, 13};
  bignum small;
  for (size_t i = 0; i < sizeof bases; i++) {
    big_from_u64(&small, bases[i]);
    if (big_compare(n, &small) == 0)
      return 1;
  }
  if (!big_is_odd(n) || (n->len == 1 && n->limb[0] == 1))
    return 0;
  for (size_t i = 0; i < sizeof bases; i++)
    if (fermat_witness(n, bases[i]))
      return 0;
  return 1;
}

int big_from_text(bignum *a, const char *digits) {
  big_zero(a);
  if (!*digits)
    return 0;
  for (; *digits; digits++) {
    if (*digits < '0' || *digits > '9')
      return 0;
    if (!big_muladd_small(a, 10, (uint32_t)(*digits - '0')))
      return 0;
  }
  return 1;
}

/* Writes decimal digits; returns their number, or zero if they do not fit. */
size_t big_to_text(const bignum *a, char *out, size_t cap) {
  bignum rest = *a;
  size_t n = 0;
  do {
    if (n + 1 >= cap)
      return 0;
    out[n++] = (char)('0' + big_divmod_small(&rest, 10));
  } while (!big_is_zero(&rest));
  for (size_t i = 0; i < n / 2; i++) {
    char t = out[i];
    out[i] = out[n - 1 - i];
    out[n - 1 - i] = t;
  }
  out[n] = '\0';
  return n;
}
