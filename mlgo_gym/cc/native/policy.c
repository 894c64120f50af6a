/* A policy bound to what LLVM says it sends: by name, type and shape. */
#define _GNU_SOURCE
#include "driver.h"

#include <ctype.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ALIGNMENT 64
#define MOST_FEATURES 512

const struct problem_flags PROBLEMS[PROBLEM_COUNT] = {
    [INLINING] = {.name = "inlining",
                  .enable = "-enable-ml-inliner=release",
                  .channel = "-inliner-interactive-channel-base=",
                  .include_default = "-inliner-interactive-include-default",
                  .default_name = "inlining_default"},
    [REGALLOC] = {.name = "regalloc",
                  .enable = "-regalloc-enable-advisor=release",
                  .channel = "-regalloc-evict-interactive-channel-base=",
                  .mask = "mask"},
};

/* What policies of TF-Agents carry along; it means something in training only and stays 0. */
static const char *const STEP_INPUTS[] = {"discount", "reward", "step_type"};

struct feature {
  char name[128], type[16];
  size_t rank, size_bytes, offset;
  const void *elsewhere; /* where it is no part of what LLVM sends */
  int64_t shape[8];
};

struct binding {
  const struct mlgo_policy *policy;
  enum problem problem;
  struct feature *features;
  size_t feature_count, observation_bytes;
  const struct feature **sources; /* of the policy's inputs; NULL where nothing is offered */
  void **inputs, **outputs;
  const struct feature *mask;
  int64_t last_position; /* of the model, where LLVM has fewer; or 0 */
  int64_t moved;         /* an answer by LLVM's number of it */
  int64_t *derived;      /* what is known of the call besides; or NULL */
};

const struct mlgo_policy *load_library(const char *path, const char *name,
                                       struct message *message) {
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  const struct mlgo_policy *policy = library ? dlsym(library, MLGO_POLICY_SYMBOL) : NULL;
  if (!policy)
    snprintf(message->text, MESSAGE_BYTES, "policy: cannot be loaded: %s", dlerror());
  else if (policy->version != MLGO_POLICY_VERSION)
    snprintf(message->text, MESSAGE_BYTES, "policy: expected version %d, found %u in '%s'",
             MLGO_POLICY_VERSION, policy->version, name);
  return policy && policy->version == MLGO_POLICY_VERSION ? policy : NULL;
}

static const struct mlgo_tensor *tensor(const void *table, size_t number) {
  return (const struct mlgo_tensor *)table + number;
}

bool wants_input(const struct mlgo_policy *policy, const char *name) {
  for (size_t number = 0; number < policy->input_count; ++number)
    if (!strcmp(tensor(policy->inputs, number)->name, name))
      return true;
  return false;
}

static size_t element_bytes(const char *type) {
  static const struct {
    const char *name;
    size_t bytes;
  } TYPES[] = {{"float", 4},    {"double", 8},  {"int8_t", 1},   {"uint8_t", 1}, {"int16_t", 2},
               {"uint16_t", 2}, {"int32_t", 4}, {"uint32_t", 4}, {"int64_t", 8}, {"uint64_t", 8}};
  for (size_t index = 0; index < sizeof TYPES / sizeof *TYPES; ++index)
    if (!strcmp(type, TYPES[index].name))
      return TYPES[index].bytes;
  return 0;
}

/* The text of "KEY":"TEXT" behind `at`; NULL if it is not next before `end`. */
static const char *text_of(const char *at, const char *end, const char *key, char *text,
                           size_t size) {
  const char *start = memmem(at, (size_t)(end - at), key, strlen(key));
  if (!start)
    return NULL;
  start += strlen(key);
  const char *quote = memchr(start, '"', (size_t)(end - start));
  if (!quote || (size_t)(quote - start) >= size)
    return NULL;
  memcpy(text, start, (size_t)(quote - start));
  text[quote - start] = 0;
  return quote + 1;
}

/* One tensor, as llvm/lib/Analysis/TensorSpec.cpp prints it:
 * {"name":"x","type":"int64_t","port":0,"shape":[1]} */
static const char *read_feature(const char *at, const char *end, struct feature *feature) {
  static const char SHAPE[] = "\"shape\":[";
  at = text_of(at, end, "\"name\":\"", feature->name, sizeof feature->name);
  at = at ? text_of(at, end, "\"type\":\"", feature->type, sizeof feature->type) : NULL;
  at = at ? memmem(at, (size_t)(end - at), SHAPE, strlen(SHAPE)) : NULL;
  size_t count = 1;
  feature->rank = 0;
  if (!at)
    return NULL;
  for (at += strlen(SHAPE); at < end && *at != ']';) {
    char *next;
    long long size = isdigit((unsigned char)*at) ? strtoll(at, &next, 10) : 0;
    if (size < 1 || size > 1 << 20 || feature->rank == 8 || count > 1 << 20)
      return NULL;
    feature->shape[feature->rank++] = size;
    count *= (size_t)size;
    at = *next == ',' ? next + 1 : next;
  }
  feature->size_bytes = count * element_bytes(feature->type);
  return feature->size_bytes && at < end ? at + 1 : NULL;
}

/* Of positions, fewer than the model knows fit, too (`mlgo_gym.problems._fit`). */
static bool fits(const struct feature *feature, const struct mlgo_tensor *wanted,
                 enum problem problem) {
  size_t last = wanted->rank ? wanted->rank - 1 : 0;
  bool is_narrow = PROBLEMS[problem].mask && wanted->rank == 2 && feature->rank == 2 &&
                   feature->shape[last] < wanted->shape[last];
  size_t same = is_narrow ? last : wanted->rank;
  return !strcmp(feature->type, wanted->type) && feature->rank == wanted->rank &&
         !memcmp(feature->shape, wanted->shape, same * sizeof *wanted->shape);
}

static bool is_step_input(const char *name) {
  for (size_t index = 0; index < sizeof STEP_INPUTS / sizeof *STEP_INPUTS; ++index)
    if (!strcmp(name, STEP_INPUTS[index]))
      return true;
  return false;
}

static const struct feature *find(const struct binding *binding, const char *name) {
  for (size_t index = 0; name && index < binding->feature_count; ++index)
    if (!strcmp(binding->features[index].name, name))
      return &binding->features[index];
  return NULL;
}

static void *allocate(size_t size_bytes) {
  size_t room = (size_bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
  void *memory = aligned_alloc(ALIGNMENT, room);
  return memory ? memset(memory, 0, room) : NULL;
}

static bool bind_inputs(struct binding *binding, struct message *message) {
  const struct mlgo_policy *policy = binding->policy;
  for (size_t number = 0; number < policy->input_count; ++number) {
    const struct mlgo_tensor *wanted = tensor(policy->inputs, number);
    const struct feature *source = find(binding, wanted->name);
    if (!source && !is_step_input(wanted->name)) {
      snprintf(message->text, MESSAGE_BYTES,
               "the %s model needs inputs that this clang does not offer: '%s'",
               PROBLEMS[binding->problem].name, wanted->name);
      return false;
    }
    if (source && !fits(source, wanted, binding->problem)) {
      snprintf(message->text, MESSAGE_BYTES,
               "the %s model takes '%s' as %s of %zu bytes, this clang sends %s of %zu bytes",
               PROBLEMS[binding->problem].name, wanted->name, wanted->type, wanted->size_bytes,
               source->type, source->size_bytes);
      return false;
    }
    if (source && source->size_bytes < wanted->size_bytes)
      binding->last_position = wanted->shape[1] - 1;
    binding->sources[number] = source;
    binding->inputs[number] = allocate(wanted->size_bytes);
  }
  for (size_t number = 0; number < policy->output_count; ++number)
    binding->outputs[number] = allocate(tensor(policy->outputs, number)->size_bytes);
  return true;
}

/* Offers features of the call that is asked about, where this process is LLVM's. */
static void add_derived(struct binding *binding) {
  const struct mlgo_call_site *site = binding->policy->call_site;
  if (!site || binding->problem != INLINING || !know_calls(site) ||
      binding->feature_count + site->feature_count > MOST_FEATURES)
    return;
  binding->derived = calloc(site->feature_count, sizeof *binding->derived);
  for (size_t number = 0; binding->derived && number < site->feature_count; ++number) {
    struct feature *feature = &binding->features[binding->feature_count++];
    *feature = (struct feature){.type = "int64_t",
                                .rank = 1,
                                .shape = {1},
                                .size_bytes = sizeof *binding->derived,
                                .elsewhere = &binding->derived[number]};
    snprintf(feature->name, sizeof feature->name, "%s", site->features[number]);
  }
}

static bool read_header(struct binding *binding, const char *header, const char *end,
                        struct feature *advice) {
  const char *split = memmem(header, (size_t)(end - header), "\"advice\":", 9);
  const char *at = header;
  for (const char *next;
       split && (next = read_feature(at, split, &binding->features[binding->feature_count]));
       at = next) {
    struct feature *feature = &binding->features[binding->feature_count++];
    feature->offset = binding->observation_bytes;
    binding->observation_bytes += feature->size_bytes;
    if (binding->feature_count == MOST_FEATURES)
      return false;
  }
  return split && binding->feature_count && read_feature(split, end, advice);
}

struct binding *bind_policy(const struct mlgo_policy *policy, enum problem problem,
                            const char *header, size_t length, struct message *message) {
  struct binding *binding = calloc(1, sizeof *binding);
  struct feature advice;
  binding->policy = policy;
  binding->problem = problem;
  binding->features = calloc(MOST_FEATURES, sizeof *binding->features);
  binding->sources = calloc(policy->input_count + 1, sizeof *binding->sources);
  binding->inputs = calloc(policy->input_count + 1, sizeof *binding->inputs);
  binding->outputs = calloc(policy->output_count + 1, sizeof *binding->outputs);
  const struct mlgo_tensor *decision = tensor(policy->outputs, policy->decision);
  bool is_bound = false;
  if (!read_header(binding, header, header + length, &advice))
    snprintf(message->text, MESSAGE_BYTES, "expected a header from clang, found '%.*s'",
             length > 60 ? 60 : (int)length - 1, header);
  else if (strcmp(advice.type, decision->type) || advice.size_bytes != decision->size_bytes)
    snprintf(message->text, MESSAGE_BYTES,
             "the %s model decides by %s of %zu bytes, this clang takes %s of %zu bytes",
             PROBLEMS[problem].name, decision->type, decision->size_bytes, advice.type,
             advice.size_bytes);
  else {
    add_derived(binding);
    is_bound = bind_inputs(binding, message);
  }
  binding->mask = find(binding, PROBLEMS[problem].mask);
  if (is_bound)
    return binding;
  release_binding(binding);
  return NULL;
}

size_t observation_bytes(const struct binding *binding) { return binding->observation_bytes; }

/* The last of LLVM's positions, which asks, is the model's last; those between are 0, and masked. */
static void fill(const struct binding *binding, size_t number, const uint8_t *observation) {
  const struct feature *source = binding->sources[number];
  size_t room = tensor(binding->policy->inputs, number)->size_bytes;
  uint8_t *input = binding->inputs[number];
  const uint8_t *from = source->elsewhere ? source->elsewhere : observation + source->offset;
  size_t each = source->size_bytes == room ? 0 : element_bytes(source->type);
  memcpy(input, from, source->size_bytes - each);
  memcpy(input + room - each, from + source->size_bytes - each, each);
}

static size_t position_count(const struct binding *binding) {
  return binding->mask->size_bytes / sizeof(int64_t);
}

/* An answer as LLVM numbers positions. */
static const void *as_sent(struct binding *binding, const void *advice) {
  if (!binding->last_position || !binding->mask)
    return advice;
  memcpy(&binding->moved, advice, sizeof binding->moved);
  if (binding->moved != binding->last_position)
    return advice;
  binding->moved = (int64_t)position_count(binding) - 1;
  return &binding->moved;
}

/* LLVM takes an eviction for granted: what its mask rules out must not be sent. */
static bool is_legal(const struct binding *binding, const uint8_t *observation,
                     const void *advice) {
  int64_t index, allowed;
  if (!binding->mask)
    return true;
  memcpy(&index, advice, sizeof index);
  if (index < 0 || (size_t)index >= position_count(binding))
    return false;
  memcpy(&allowed, observation + binding->mask->offset + (size_t)index * sizeof allowed,
         sizeof allowed);
  return allowed != 0;
}

const void *answer(struct binding *binding, const uint8_t *observation, size_t *size_bytes,
                   struct message *message) {
  const struct mlgo_policy *policy = binding->policy;
  if (binding->derived)
    policy->call_site->put_features(binding->derived);
  for (size_t number = 0; number < policy->input_count; ++number)
    if (binding->sources[number])
      fill(binding, number, observation);
  int32_t status = policy->evaluate((const void *const *)binding->inputs, binding->outputs);
  const void *advice = as_sent(binding, binding->outputs[policy->decision]);
  *size_bytes = tensor(policy->outputs, policy->decision)->size_bytes;
  if (status)
    snprintf(message->text, MESSAGE_BYTES, "the %s model: operator %d is not defined for its input",
             PROBLEMS[binding->problem].name, status - 1);
  else if (!is_legal(binding, observation, advice))
    snprintf(message->text, MESSAGE_BYTES,
             "the %s model: expected a choice that LLVM's mask allows",
             PROBLEMS[binding->problem].name);
  else
    return advice;
  return NULL;
}

void release_binding(struct binding *binding) {
  if (!binding)
    return;
  for (size_t number = 0; number < binding->policy->input_count; ++number)
    free(binding->inputs[number]);
  for (size_t number = 0; number < binding->policy->output_count; ++number)
    free(binding->outputs[number]);
  free(binding->derived);
  free(binding->inputs);
  free(binding->outputs);
  free(binding->sources);
  free(binding->features);
  free(binding);
}
