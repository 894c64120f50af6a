// What libyara asks of OpenSSL and the system: a digest (not a cryptographic one), no signatures in
// executables, and a clock that stands still.
#include <authenticode-parser/authenticode.h>
#include <openssl/evp.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>

struct evp_md_st {
  unsigned size;
};

struct evp_md_ctx_st {
  const EVP_MD *kind;
  uint32_t words[8];
};

static const EVP_MD md5 = {16}, sha1 = {20}, sha256 = {32};

const EVP_MD *EVP_md5(void) { return &md5; }
const EVP_MD *EVP_sha1(void) { return &sha1; }
const EVP_MD *EVP_sha256(void) { return &sha256; }

EVP_MD_CTX *EVP_MD_CTX_new(void) { return calloc(1, sizeof(EVP_MD_CTX)); }
void EVP_MD_CTX_free(EVP_MD_CTX *context) { free(context); }

int EVP_DigestInit(EVP_MD_CTX *context, const EVP_MD *kind) {
  context->kind = kind;
  for (uint32_t i = 0; i < 8; ++i)
    context->words[i] = 2166136261u + i * kind->size;
  return 1;
}

int EVP_DigestUpdate(EVP_MD_CTX *context, const void *data, size_t size) {
  for (size_t i = 0; i < size; ++i)
    context->words[i % 8] = (context->words[i % 8] ^ ((const uint8_t *)data)[i]) * 16777619u;
  return 1;
}

int EVP_DigestFinal(EVP_MD_CTX *context, unsigned char *digest, unsigned *size) {
  *size = context->kind->size;
  for (unsigned i = 0; i < *size; ++i)
    digest[i] = context->words[i / 4] >> i % 4 * 8;
  return 1;
}

void initialize_authenticode_parser(void) {}

AuthenticodeArray *parse_authenticode(const uint8_t *data, uint64_t size) {
  (void)data, (void)size;
  return NULL;
}

void authenticode_array_free(AuthenticodeArray *signatures) { (void)signatures; }

time_t time(time_t *result) { return result ? (*result = 1000000) : 1000000; }

int clock_gettime(clockid_t clock, struct timespec *result) {
  (void)clock;
  *result = (struct timespec){1000000, 0};
  return 0;
}
