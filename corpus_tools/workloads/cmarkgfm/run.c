// Markdown that a seeded generator writes is parsed with all of GitHub's extensions and rendered:
// "html" in several dialects of HTML, "others" in every other format.
#include "third_party/cmark/extensions/cmark-gfm-core-extensions.h"
#include <cmark-gfm-extension_api.h>
#include <cmark-gfm.h>
#include <node.h>
#include <registry.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char text[1 << 18];
static size_t length;
static uint32_t state;

static uint32_t below(uint32_t limit) {
  state = state * 1664525 + 1013904223;
  return (state >> 16) % limit;
}

static void put(const char *piece) {
  size_t size = strlen(piece);
  if (length + size >= sizeof text)
    exit(3);
  memcpy(text + length, piece, size);
  length += size;
}

static void put_words(uint32_t count) {
  static const char *const words[] = {"river",      "of",           "green",  "\xc3\xa9toile",
                                      "\"quoted\"", "it's",         "a_b_c",  "&amp;",
                                      "2 < 3",      "\\*not*",      "dash--", "&copy; &#x3b1;",
                                      "dots...",    "\xe6\xb0\xb4", "forty",  "x"};
  while (count-- > 0) {
    put(words[below(16)]);
    put(below(9) ? " " : "\n");
  }
}

static void put_inline(int depth) {
  static const char *const marks[][2] = {
      {"*", "*"},        {"**", "**"},       {"_", "_"},
      {"~~", "~~"},      {"***", "***"},     {"[", "](/u?a=1&b \"t\")"},
      {"[", "][ref-3]"}, {"![", "](i.png)"}, {"[", "]"},
      {"<b>", "</b>"},   {"<xmp>", "</xmp>"}};
  static const char *const atoms[] = {"`code ``",
                                      "`` a`b ``",
                                      "www.example.com/a_(b)",
                                      "https://example.org?q=1,",
                                      "me@example.com",
                                      "<http://a.example/%20>",
                                      "[^note]",
                                      "<!-- remark -->",
                                      "[ref-1]",
                                      "a  \nb",
                                      "**",
                                      "]("};
  put_words(1 + below(4));
  if (depth > 0 && below(4)) {
    const char *const *mark = marks[below(11)];
    put(mark[0]);
    put_inline(depth - 1);
    put(mark[1]);
  } else {
    put(atoms[below(12)]);
  }
  put(" ");
}

static void put_list(void) {
  static const char *const starts[] = {"- ", "1. ", "* [x] ", "- [ ] ", "7) "};
  const char *start = starts[below(5)];
  for (uint32_t items = 2 + below(4), i = 0; i < items; ++i) {
    put(start);
    put("item ");
    put_words(3);
    put(below(3) ? "\n" : "\n\n      deeper\n   - nested `x`\n   + other\n");
  }
}

static void put_table(void) {
  put("\n| name | left | right |\n|:----:|:-----|------:|\n");
  for (uint32_t rows = 2 + below(6), i = 0; i < rows; ++i)
    put(below(2) ? "| **a** \\| b | `c` | ~d~ |\n" : "| www.example.com | e | \n");
}

static void put_block(void) {
  switch (below(10)) {
  case 0:
    put(below(2) ? "## Heading *two* ##\n" : "Heading\n=======\n");
    break;
  case 1:
    put_list();
    break;
  case 2:
    put_table();
    break;
  case 3:
    put("> quoted\n> > twice\nlazy\n> ");
    put_inline(2);
    break;
  case 4:
    put("``` c\nint x = 1 < 2;\n\tif (x) &y;\n```\n\n    indented\n\n\tmore\n");
    break;
  case 5:
    put("<div class=\"x\">\n<script>no</script> *raw*\n</div>\n\n***\n");
    break;
  default:
    put_inline(3);
    put_inline(4);
    put_inline(3);
  }
  put("\n\n");
}

static void write_document(uint32_t seed, int blocks) {
  state = seed;
  length = 0;
  while (blocks-- > 0)
    put_block();
  put("\n[ref-1]: /one 'First'\n[ref-3]: <three four>\n[River]: /r\n[^note]: The note.\n");
}

// Parses the document, or what else is given, with the extensions, a thousand bytes at a time.
static cmark_node *parse(const char *source, size_t size, cmark_parser *parser) {
  static const char *const names[] = {"table", "strikethrough", "autolink", "tagfilter",
                                      "tasklist"};
  for (int i = 0; i < 5; ++i)
    cmark_parser_attach_syntax_extension(parser, cmark_find_syntax_extension(names[i]));
  for (size_t at = 0; at < size; at += 1000)
    cmark_parser_feed(parser, source + at, size - at < 1000 ? size - at : 1000);
  return cmark_parser_finish(parser);
}

// Prints the size and the FNV-1a hash of what was rendered, and frees it.
static void report(const char *format, char *rendered) {
  uint32_t hash = 2166136261u;
  size_t size = strlen(rendered);
  for (size_t i = 0; i < size; ++i)
    hash = (hash ^ (unsigned char)rendered[i]) * 16777619u;
  printf("%s %zu %08x\n", format, size, (unsigned)hash);
  free(rendered);
}

static void render_html(int round) {
  static const int dialects[] = {
      CMARK_OPT_DEFAULT,
      CMARK_OPT_UNSAFE | CMARK_OPT_FOOTNOTES | CMARK_OPT_SMART,
      CMARK_OPT_SOURCEPOS | CMARK_OPT_VALIDATE_UTF8 | CMARK_OPT_HARDBREAKS,
      CMARK_OPT_UNSAFE | CMARK_OPT_NOBREAKS | CMARK_OPT_GITHUB_PRE_LANG |
          CMARK_OPT_LIBERAL_HTML_TAG | CMARK_OPT_TABLE_PREFER_STYLE_ATTRIBUTES,
  };
  int options = dialects[round % 4];
  cmark_parser *parser = cmark_parser_new(options);
  cmark_node *document = parse(text, length, parser);
  report("html", cmark_render_html(document, options, cmark_parser_get_syntax_extensions(parser)));
  cmark_node_free(document);
  cmark_parser_free(parser);
}

// Upper-cases plain text and lifts every heading by a level, where there is one.
static int edit(cmark_node *document) {
  cmark_iter *iterator = cmark_iter_new(document);
  int edited = 0;
  while (cmark_iter_next(iterator) != CMARK_EVENT_DONE) {
    cmark_node *node = cmark_iter_get_node(iterator);
    if (cmark_node_get_type(node) == CMARK_NODE_TEXT) {
      char *copy = strdup(cmark_node_get_literal(node));
      for (char *c = copy; *c; ++c)
        *c -= *c >= 'a' && *c <= 'z' ? 'a' - 'A' : 0;
      edited += cmark_node_set_literal(node, copy);
      free(copy);
    } else if (cmark_node_get_type(node) == CMARK_NODE_HEADING) {
      edited += cmark_node_set_heading_level(node, cmark_node_get_heading_level(node) - 1);
    }
  }
  cmark_iter_free(iterator);
  cmark_consolidate_text_nodes(document);
  return cmark_node_check(document, stderr) ? -1 : edited;
}

static void render_others(int round) {
  int options = round % 2 ? CMARK_OPT_FOOTNOTES : CMARK_OPT_UNSAFE | CMARK_OPT_SMART;
  int width = round % 3 * 36;
  cmark_parser *parser = cmark_parser_new(options);
  cmark_node *document = parse(text, length, parser);
  report("xml", cmark_render_xml(document, options | CMARK_OPT_SOURCEPOS));
  report("latex", cmark_render_latex(document, options, width));
  report("man", cmark_render_man(document, options, width));
  report("plain", cmark_render_plaintext(document, options, width));
  char *markdown = cmark_render_commonmark(document, options, width);
  cmark_parser *again = cmark_parser_new(options);
  cmark_node *copy = parse(markdown, strlen(markdown), again);
  printf("edited %d\n", edit(copy));
  report("markdown", markdown);
  report("again", cmark_render_commonmark(copy, options, 0));
  cmark_node_free(copy);
  cmark_parser_free(again);
  cmark_node_free(document);
  cmark_parser_free(parser);
}

int main(int argc, char **argv) {
  if (argc != 2)
    return 2;
  int html = strcmp(argv[1], "html") == 0;
  cmark_gfm_core_extensions_ensure_registered();
  for (int round = 0; round < (html ? 12 : 3); ++round) {
    write_document(7 + round, 400);
    html ? render_html(round) : render_others(round);
  }
  cmark_release_plugins();
  return 0;
}
