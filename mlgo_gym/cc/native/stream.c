/* What LLVM writes to a host (llvm/lib/Analysis/InteractiveModelRunner.cpp), taken apart:
 *
 *   {"features":[...],"advice":{...}}\n   once for each advisor that LLVM builds
 *   {"context":"NAME"}\n
 *   {"observation":N}\n RAW TENSORS \n    answered with the raw advice
 *
 * What comes whole is read where it lies; what is cut is kept until the rest of it comes. */
#define _GNU_SOURCE
#include "traces.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FIRST_BYTES (1 << 14)
#define MOST_BYTES (1 << 24)

static bool make_room(struct stream *stream, size_t size, struct message *message) {
  size_t capacity = stream->capacity ? stream->capacity : FIRST_BYTES;
  while (capacity < size)
    capacity *= 2;
  if (capacity == stream->capacity)
    return true;
  uint8_t *larger = capacity <= MOST_BYTES ? realloc(stream->buffer, capacity) : NULL;
  if (!larger) {
    snprintf(message->text, MESSAGE_BYTES, "expected a message from clang of at most %d bytes",
             MOST_BYTES);
    return false;
  }
  stream->buffer = larger;
  stream->capacity = capacity;
  return true;
}

bool offer(struct stream *stream, const void *data, size_t size, struct message *message) {
  stream->at = data;
  stream->left = size;
  if (!stream->used)
    return true;
  if (!make_room(stream, stream->used + size, message))
    return false;
  memcpy(stream->buffer + stream->used, data, size);
  stream->used += size;
  stream->at = stream->buffer;
  stream->left = stream->used;
  return true;
}

static bool keep_rest(struct stream *stream, struct message *message) {
  if (!stream->used && stream->left && !make_room(stream, stream->left, message))
    return false;
  if (stream->left && stream->at != stream->buffer)
    memmove(stream->buffer, stream->at, stream->left);
  stream->used = stream->left;
  return true;
}

void start_over(struct stream *stream) { stream->used = stream->left = 0; }

void end_stream(struct stream *stream) {
  release_binding(stream->binding);
  free(stream->buffer);
  *stream = (struct stream){
      .problem = stream->problem, .policy = stream->policy, .answers = stream->answers};
}

static bool take_header(struct stream *stream, size_t length, struct message *message) {
  release_binding(stream->binding);
  stream->binding =
      bind_policy(stream->policy, stream->problem, (const char *)stream->at, length, message);
  return stream->binding && (!stream->answers || begin_answers(stream->answers, stream->at, length,
                                                              message));
}

static const void *advice_for(struct stream *stream, const uint8_t *observation, size_t *size_bytes,
                              struct message *message) {
  if (!stream->answers)
    return answer(stream->binding, observation, size_bytes, message);
  *size_bytes = sizeof stream->answers->advice;
  return next_answer(stream->answers, observation, observation_bytes(stream->binding), message);
}

static bool is_word(const uint8_t *line, size_t length, const char *word) {
  size_t size = strlen(word);
  return length > size && !memcmp(line, word, size);
}

bool next_word(struct stream *stream, struct word *word, struct message *message) {
  const uint8_t *line = stream->at;
  const uint8_t *end = stream->left ? memchr(line, '\n', stream->left) : NULL;
  size_t length = end ? (size_t)(end - line) + 1 : 0, taken = length;
  *word = (struct word){.kind = NO_WORD};
  if (!end)
    return keep_rest(stream, message);
  if (stream->binding && is_word(line, length, "{\"observation\":")) {
    taken += observation_bytes(stream->binding) + 1;
    if (taken > stream->left)
      return keep_rest(stream, message);
    word->kind = OBSERVATION;
    word->advice = advice_for(stream, end + 1, &word->size, message);
  } else if (stream->binding && is_word(line, length, "{\"context\":"))
    word->kind = CONTEXT;
  else if (is_word(line, length, "{\"features\":")) {
    word->kind = HEADER;
    if (!take_header(stream, length, message))
      return false;
  } else {
    snprintf(message->text, MESSAGE_BYTES, "expected a message from clang, found '%.*s'",
             length > 40 ? 40 : (int)length - 1, (const char *)line);
    return false;
  }
  stream->at += taken;
  stream->left -= taken;
  return word->kind != OBSERVATION || word->advice;
}
