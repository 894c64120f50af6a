// Hoedown: `run` makes Markdown documents and renders them as HTML with all extensions and with
// none, as a table of contents, with clever punctuation, and in line.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "document.h"
#include "escape.h"
#include "html.h"

static uint32_t seed = 8;

static unsigned next(unsigned limit) {
  seed = seed * 1664525u + 1013904223u;
  return (seed >> 8) % limit;
}

static const char *const SPANS[] = {
    "plain words that go on",
    "*leaning*",
    "**strong**",
    "***both at once***",
    "~~gone~~",
    "==marked==",
    "_under_score_d_",
    "`code & more`",
    "``a ` tick``",
    "[a link](http://example.org/a_b?c=d&e \"its title\")",
    "[by name][ref%d]",
    "[ref%d][]",
    "![picture](/p%d.png)",
    "<http://example.org/%d>",
    "www.example.org/page_%d.",
    "somebody@example.org",
    "x^2^ and y^(a b)",
    "\"quoted\" -- it's 1/2 of... (c)",
    "&amp; &copy; & <b class='x'>raw</b>",
    "a footnote[^n%d]",
    "\\*escaped\\* \\[brackets\\]",
    "$$a_%d + b$$",
    "*not closed **at all",
    "[not](closed",
    "two spaces  \nand a break",
};

static const char *const BLOCKS[] = {
    "# Heading %d #\n\n",
    "Heading under\n=============\n\n",
    "### Third & last\n",
    "* * *\n\n",
    "    indented(code, %d);\n    <more>\n\n",
    "```c\nint x = %d; // fenced\n```\n\n",
    "| left | right | middle |\n|:-----|------:|:------:|\n| a | `b` | *%d* |\n| c || e |\n\n",
    "<div>\n<p>html %d</p>\n</div>\n\n",
    "[ref%d]: http://example.org/ref 'A title'\n\n",
    "[^n%d]: The note itself,\n    in two lines.\n\n",
};

static void spans(hoedown_buffer *to, unsigned count) {
  for (; count > 0; count--) {
    hoedown_buffer_printf(to, SPANS[next(sizeof SPANS / sizeof *SPANS)], next(20));
    hoedown_buffer_puts(to, next(6) ? " " : "\n");
  }
}

static void block(hoedown_buffer *to) {
  static const char *const marks[] = {"* ", "12. ", "> ", "> > ", "  - ", "+   "};
  unsigned kind = next(4);
  if (kind == 0) {
    hoedown_buffer_printf(to, BLOCKS[next(sizeof BLOCKS / sizeof *BLOCKS)], next(20));
    return;
  }
  for (unsigned i = kind == 1 ? 0 : 1 + next(5); i > 0; i--) {
    hoedown_buffer_puts(to, marks[next(6)]);
    spans(to, 1 + next(6));
    hoedown_buffer_puts(to, next(3) ? "\n" : "\n\n");
  }
  spans(to, 1 + next(12));
  hoedown_buffer_puts(to, "\n\n");
}

static uint32_t hash(const hoedown_buffer *buffer) {
  uint32_t value = 2166136261u;
  for (size_t i = 0; i < buffer->size; i++)
    value = (value ^ buffer->data[i]) * 16777619u;
  return value;
}

static void show(const char *what, const hoedown_buffer *buffer) {
  printf("  %s: %zu %08x\n", what, buffer->size, hash(buffer));
}

static void render(const char *what, hoedown_renderer *renderer, unsigned extensions,
                   const hoedown_buffer *source, hoedown_buffer *to) {
  hoedown_document *document = hoedown_document_new(renderer, extensions, 16);
  hoedown_buffer_reset(to);
  hoedown_document_render(document, to, source->data, source->size);
  show(what, to);
  hoedown_document_free(document);
  hoedown_html_renderer_free(renderer);
}

static void render_in_line(const hoedown_buffer *source, hoedown_buffer *to) {
  hoedown_renderer *renderer = hoedown_html_renderer_new(HOEDOWN_HTML_USE_XHTML, 0);
  hoedown_document *document = hoedown_document_new(renderer, HOEDOWN_EXT_AUTOLINK, 16);
  hoedown_buffer_reset(to);
  hoedown_document_render_inline(document, to, source->data, source->size);
  show("in line", to);
  hoedown_document_free(document);
  hoedown_html_renderer_free(renderer);
}

int main(void) {
  const unsigned all = HOEDOWN_EXT_BLOCK | HOEDOWN_EXT_SPAN;
  hoedown_buffer *source = hoedown_buffer_new(1024), *html = hoedown_buffer_new(1024);
  hoedown_buffer *more = hoedown_buffer_new(64);
  for (int i = 0; i < 8; i++) {
    hoedown_buffer_reset(source);
    for (int k = 0; k < 60 * (i + 1); k++)
      block(source);
    printf("document %d: %zu %08x\n", i, source->size, hash(source));
    render("contents", hoedown_html_toc_renderer_new(3), all, source, html);
    render("plain", hoedown_html_renderer_new(HOEDOWN_HTML_SKIP_HTML, 0), 0, source, html);
    render("xhtml", hoedown_html_renderer_new(HOEDOWN_HTML_USE_XHTML | HOEDOWN_HTML_ESCAPE, 2),
           HOEDOWN_EXT_FLAGS | HOEDOWN_EXT_TABLES, source, html);
    render_in_line(source, html);
    hoedown_renderer *full = hoedown_html_renderer_new(HOEDOWN_HTML_HARD_WRAP, 6);
    render("full", full, all, source, html);
    hoedown_buffer_reset(more);
    hoedown_html_smartypants(more, source->data, source->size);
    show("clever", more);
    hoedown_buffer_reset(more);
    hoedown_escape_html(more, html->data, html->size, 1);
    hoedown_escape_href(more, source->data, source->size);
    show("escaped", more);
  }
  hoedown_buffer_free(source);
  hoedown_buffer_free(html);
  hoedown_buffer_free(more);
  return 0;
}
