/* Plain-text layout: UTF-8 decoding, display width, and word wrapping of
 * paragraphs with indents and left, right, centred or justified lines. */
#include <stdint.h>

#include "text_buffer.h"

typedef enum { ALIGN_LEFT, ALIGN_RIGHT, ALIGN_CENTER, ALIGN_JUSTIFY } alignment;

typedef struct {
  size_t width;
  size_t first_indent;
  size_t indent;
  alignment align;
} layout_options;

typedef struct {
  const char *start;
  size_t bytes;
  size_t columns;
} word;

enum { MAX_LINE_WORDS = 128 };

typedef struct {
  word words[MAX_LINE_WORDS];
  size_t count;
  size_t columns; /* of the words and one space between them */
} line;

static int is_continuation(char c) { return ((uint8_t)c & 0xc0) == 0x80; }

static int sequence_length(uint8_t lead) {
  if (lead < 0x80)
    return 1;
  if (lead >= 0xc2 && lead < 0xe0)
    return 2;
  if (lead >= 0xe0 && lead < 0xf0)
    return 3;
  if (lead >= 0xf0 && lead < 0xf5)
    return 4;
  return 0;
}

/* Decodes one code point; a malformed byte counts as U+FFFD and one byte. */
static size_t decode_utf8(const char *s, uint32_t *cp) {
  int n = sequence_length((uint8_t)*s);
  *cp = 0xfffd;
  if (n == 0)
    return 1;
  uint32_t v = n == 1 ? (uint8_t)*s : (uint8_t)*s & (0xffu >> (n + 1));
  for (int i = 1; i < n; i++) {
    if (!is_continuation(s[i]))
      return 1;
    v = v << 6 | ((uint8_t)s[i] & 0x3f);
  }
  *cp = v;
  return (size_t)n;
}

static int in_range(uint32_t cp, uint32_t lo, uint32_t hi) {
  return cp >= lo && cp <= hi;
}

static size_t column_width(uint32_t cp) {
  if (cp < 0x20 || in_range(cp, 0x7f, 0x9f))
    return 0;
  if (in_range(cp, 0x300, 0x36f) || in_range(cp, 0x200b, 0x200f))
    return 0; /* combining marks and zero-width characters */
  if (in_range(cp, 0x1100, 0x115f) || in_range(cp, 0x2e80, 0xa4cf) ||
      in_range(cp, 0xac00, 0xd7a3) || in_range(cp, 0xff00, 0xff60) ||
      in_range(cp, 0x1f300, 0x1faff))
    return 2;
  return 1;
}

static size_t span_columns(const char *s, size_t bytes) {
  size_t columns = 0;
  const char *end = s + bytes;
  while (s < end) {
    uint32_t cp;
    s += decode_utf8(s, &cp);
    columns += column_width(cp);
  }
  return columns;
}

size_t text_columns(const char *s) { return span_columns(s, strlen(s)); }

size_t text_code_points(const char *s) {
  size_t n = 0;
  for (uint32_t cp; *s; n++)
    s += decode_utf8(s, &cp);
  return n;
}

static int is_space(char c) {
  return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

static const char *skip_blanks(const char *s, int *newlines) {
  for (*newlines = 0; is_space(*s); s++)
    *newlines += *s == '\n';
  return s;
}

static word take_word(const char *s) {
  word w = {s, 0, 0};
  while (s[w.bytes] && !is_space(s[w.bytes]))
    w.bytes++;
  w.columns = span_columns(s, w.bytes);
  return w;
}

static size_t room(const layout_options *o, size_t indent) {
  return o->width > indent ? o->width - indent : 1;
}

static int line_fits(const line *l, word w, size_t columns) {
  if (l->count == 0)
    return 1;
  return l->count < MAX_LINE_WORDS && l->columns + 1 + w.columns <= columns;
}

static void line_add(line *l, word w) {
  l->columns += w.columns + (l->count > 0);
  l->words[l->count++] = w;
}

/* Spaces before word `i`: extra ones go to the leftmost gaps. */
static size_t gap_before(const line *l, size_t i, size_t slack) {
  if (i == 0)
    return 0;
  size_t gaps = l->count - 1;
  return 1 + slack / gaps + (i <= slack % gaps);
}

static void put_words(text_buffer *b, const line *l, size_t slack) {
  for (size_t i = 0; i < l->count; i++) {
    put_repeated(b, ' ', gap_before(l, i, slack));
    put_span(b, l->words[i].start, l->words[i].bytes);
  }
}

static void put_line(text_buffer *b, line *l, const layout_options *o,
                     size_t indent, int last) {
  size_t columns = room(o, indent);
  size_t slack = columns > l->columns ? columns - l->columns : 0;
  if (l->count == 0)
    return;
  put_repeated(b, ' ', indent);
  if (o->align == ALIGN_JUSTIFY && !last && l->count > 1) {
    put_words(b, l, slack);
  } else {
    if (o->align == ALIGN_RIGHT)
      put_repeated(b, ' ', slack);
    else if (o->align == ALIGN_CENTER)
      put_repeated(b, ' ', slack / 2);
    put_words(b, l, 0);
  }
  put_char(b, '\n');
  l->count = l->columns = 0;
}

static const char *put_paragraph(text_buffer *b, const char *s,
                                 const layout_options *o) {
  line l = {.count = 0, .columns = 0};
  size_t indent = o->first_indent;
  int newlines = 0;
  while (*s && newlines < 2) {
    word w = take_word(s);
    if (!line_fits(&l, w, room(o, indent))) {
      put_line(b, &l, o, indent, 0);
      indent = o->indent;
    }
    line_add(&l, w);
    s = skip_blanks(s + w.bytes, &newlines);
  }
  put_line(b, &l, o, indent, 1);
  return s;
}

/* Paragraphs are separated by blank lines. Returns a malloc'ed string. */
char *text_layout(const char *text, const layout_options *o) {
  text_buffer b = {NULL, 0, 0, 0};
  int newlines;
  text = skip_blanks(text, &newlines);
  while (*text && !b.failed) {
    if (b.len)
      put_char(&b, '\n');
    text = put_paragraph(&b, text, o);
  }
  return take_text(&b);
}

char *text_wrap(const char *text, size_t width) {
  layout_options o = {width, 0, 0, ALIGN_LEFT};
  return text_layout(text, &o);
}

char *text_justify(const char *text, size_t width, size_t indent) {
  layout_options o = {width, indent, 0, ALIGN_JUSTIFY};
  return text_layout(text, &o);
}
