/* Answers that search found for one module, given in turn, and whether LLVM asks what it asked
 * then: header, observations and answers have one digest, which is looked at behind the last of
 * them. */
#define _GNU_SOURCE
#include "traces.h"

#include <stdio.h>
#include <string.h>

static const struct mlgo_tensor INPUT = {"inlining_default", "int64_t", 8, 1, {1}};
static const struct mlgo_tensor OUTPUT = {"inlining_decision", "int64_t", 8, 1, {1}};

const struct mlgo_policy SEARCHED = {.version = MLGO_POLICY_VERSION,
                                     .inputs = &INPUT, /* LLVM is to send what it was asked for */
                                     .input_count = 1,
                                     .outputs = &OUTPUT,
                                     .output_count = 1};

static bool refuse(struct answers *answers, const char *found, struct message *message) {
  answers->is_right = false;
  snprintf(message->text, MESSAGE_BYTES, "traces: expected the questions of one search, found %s",
           found);
  return false;
}

bool begin_answers(struct answers *answers, const void *header, size_t length,
                   struct message *message) {
  if (answers->has_begun)
    return refuse(answers, "a second advisor's", message);
  answers->has_begun = true;
  begin_digest(&answers->digest);
  add_to_digest(&answers->digest, header, length);
  return true;
}

const void *next_answer(struct answers *answers, const void *observation, size_t length,
                        struct message *message) {
  uint8_t result[DIGEST_BYTES];
  uint32_t number = answers->next++;
  if (number >= answers->count) {
    refuse(answers, "more", message);
    return NULL;
  }
  uint8_t answer = answers->bits[number / 8] >> number % 8 & 1;
  answers->advice = answer;
  add_to_digest(&answers->digest, observation, length);
  add_to_digest(&answers->digest, &answer, sizeof answer);
  if (answers->next == answers->count) {
    end_digest(&answers->digest, result);
    answers->is_right = !memcmp(result, answers->expected, sizeof answers->expected);
  }
  return &answers->advice;
}
