/* Fixed-capacity unsigned big integers. */
#ifndef SAMPLE_BIGNUM_H
#define SAMPLE_BIGNUM_H

#include <stddef.h>
#include <stdint.h>

enum { BIG_LIMBS = 64 };

typedef struct {
  uint32_t limb[BIG_LIMBS];
  int len; /* limbs in use; zero is represented by no limbs */
} bignum;

void big_from_u64(bignum *a, uint64_t v);
int big_from_text(bignum *a, const char *digits);
size_t big_to_text(const bignum *a, char *out, size_t cap);
int big_compare(const bignum *a, const bignum *b);
int big_add(bignum *out, const bignum *a, const bignum *b);
int big_sub(bignum *out, const bignum *a, const bignum *b);
int big_mul(bignum *out, const bignum *a, const bignum *b);
int big_divmod(bignum *quot, bignum *rem, const bignum *a, const bignum *b);
int big_powmod(bignum *out, const bignum *base, const bignum *exp,
               const bignum *m);
int big_probable_prime(const bignum *n);

#endif
