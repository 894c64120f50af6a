/* The interface between a frozen policy in a shared library and the driver that asks it. */
#ifndef MLGO_POLICY_H
#define MLGO_POLICY_H

#include <stddef.h>
#include <stdint.h>

#define MLGO_POLICY_VERSION 4
#define MLGO_POLICY_SYMBOL "mlgo_policy"

/* Laid out as the tables in the header that `mlgo-gym freeze` writes. */
struct mlgo_tensor {
  const char *name;
  const char *type; /* float, int32_t, int64_t or uint8_t */
  size_t size_bytes;
  size_t rank;
  int64_t shape[8];
};

/* Features of the call that LLVM asks about, which it does not send (`mlgo_gym.llvm.inside._call_site`). */
struct mlgo_call_site {
  const char *const *features; /* int64_t, one each */
  size_t feature_count;
  const char *const *symbols; /* the advisor's table, what asks in it, and LLVM's functions */
  size_t symbol_count;
  unsigned llvm_major;                   /* whose objects it looks into; 0 for none */
  void **functions;                      /* are put here */
  void **asks;                           /* and what asks here, */
  void *take_call;                       /* in whose place this comes. */
  int32_t (*put_features)(void *values); /* whether a call is asked about */
};

struct mlgo_policy {
  uint32_t version;   /* MLGO_POLICY_VERSION */
  const void *inputs; /* struct mlgo_tensor[input_count] */
  size_t input_count;
  const void *outputs;
  size_t output_count;
  size_t decision;    /* the number of the output that is the advice */
  const char *sha256; /* of the graph that it was compiled from, and of the vocabulary */
  const char *vocabulary; /* of IR2Vec, as LLVM reads it */
  size_t vocabulary_bytes;
  const struct mlgo_call_site *call_site; /* or NULL */
  int32_t (*evaluate)(const void *const *inputs, void *const *outputs);
};

#endif
