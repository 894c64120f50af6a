// Gumbo: `run` makes pages of HTML with many mistakes, parses them, walks the trees, and words the
// errors. Prints counts and hashes of each tree.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "error.h"
#include "gumbo.h"

typedef struct {
  char text[1 << 18];
  size_t size;
} Page;

typedef struct {
  int elements, texts, attributes, comments, foreign, repaired, depth;
  uint32_t hash;
} Tally;

static uint32_t seed = 31;

static unsigned next(unsigned limit) {
  seed = seed * 1664525u + 1013904223u;
  return (seed >> 8) % limit;
}

static void put(Page *page, const char *text) {
  size_t length = strlen(text);
  if (page->size + length >= sizeof page->text) {
    fprintf(stderr, "a page is too long\n");
    exit(1);
  }
  memcpy(page->text + page->size, text, length + 1);
  page->size += length;
}

static const char *const PIECES[] = {
    "<p>a paragraph that is not closed ",
    "</p>",
    "<b>bold <i>both</b> italic</i> ",
    "<br/>",
    "<ul><li>one<li>two &amp; more<li>three</ul>",
    "<div class=box id='d1' class=twice>",
    "</div>",
    "<table><tr><td>cell<td>next<tr><th>head</table>",
    "<table>lost <b>text<tr><td>in</table>",
    "<a href=\"/x?a=1&b=2&copy=3\" target>link</a> ",
    "<h2>title</h3>",
    "&eacute;&nbsp;&#8364; &bogus; ",
    "&#x1F600; &notin; &lt;&gt;&quot; &#0; ",
    "<!-- a comment -- with dashes -->",
    "<?php echo 1 ?>",
    "<select><option>a<option selected>b<optgroup label=g><option>c</select>",
    "</span></em>",
    "<svg viewBox='0 0 9 9'><path d=M0/><linearGradient id=g></linearGradient></svg>",
    "<math><mi>x</mi><mo>&plus;</mo><annotation-xml encoding=text/html><p>in</p></math>",
    "<form action=/go><input type=text disabled><form><button>send</form>",
    "<custom-tag x-y=z>",
    "<script>if (a < b && c) { '<p>' }</script>",
    "<style>p > a { color: red }</style>",
    "<textarea>\n <b>raw</b> </textarea>",
    "<nobr>1<nobr>2",
    "<dl><dt>term<dd>is<dt>other<dd>too</dl>",
    "<pre>\n  kept   space\n</pre>",
    "<img src=a.png alt='picture'>",
    "<blockquote>said <cite>who",
    "gr\xc3\xb6\xc3\x9f"
    "e \xe2\x82\xac text < less ",
    "<![CDATA[ not here ]]>",
    "<p align=left>",
};

static void make(Page *page, int pieces) {
  static const char *const starts[] = {
      "<!DOCTYPE html><html lang=en><head><title>A &amp; B</title><meta charset=utf-8><body>",
      "<!DOCTYPE HTML PUBLIC \"-//W3C//DTD HTML 4.01//EN\">\n<title>Old</title>",
      "no head at all "};
  page->size = 0;
  put(page, starts[next(3)]);
  for (int i = 0; i < pieces; i++)
    put(page, PIECES[next(sizeof PIECES / sizeof *PIECES)]);
}

static void mix(Tally *tally, const char *text) {
  for (; *text; text++)
    tally->hash = (tally->hash ^ (unsigned char)*text) * 16777619u;
}

static const char *name_of(const GumboElement *element, char *space, size_t size) {
  if (element->tag != GUMBO_TAG_UNKNOWN)
    return gumbo_normalized_tagname(element->tag);
  GumboStringPiece piece = element->original_tag;
  gumbo_tag_from_original_text(&piece);
  snprintf(space, size, "%.*s", (int)piece.length, piece.data);
  return space;
}

static void walk(const GumboNode *node, int depth, Tally *tally) {
  char space[64];
  tally->depth = depth > tally->depth ? depth : tally->depth;
  if (node->type == GUMBO_NODE_COMMENT)
    tally->comments++;
  if (node->type != GUMBO_NODE_ELEMENT) {
    tally->texts++;
    mix(tally, node->v.text.text);
    return;
  }
  const GumboElement *element = &node->v.element;
  tally->elements++;
  tally->foreign += element->tag_namespace != GUMBO_NAMESPACE_HTML;
  tally->repaired += node->parse_flags != GUMBO_INSERTION_NORMAL;
  tally->attributes += (int)element->attributes.length;
  mix(tally, name_of(element, space, sizeof space));
  for (unsigned i = 0; i < element->attributes.length; i++) {
    const GumboAttribute *attribute = element->attributes.data[i];
    mix(tally, attribute->name);
    mix(tally, attribute->value);
    if (gumbo_get_attribute(&element->attributes, attribute->name) != attribute)
      mix(tally, "?");
  }
  for (unsigned i = 0; i < element->children.length; i++)
    walk(element->children.data[i], depth + 1, tally);
  mix(tally, "/");
}

// Sums up the messages of all errors, as a page of diagnostics would show them.
static uint32_t messages(const GumboOutput *output, const char *source) {
  Tally tally = {.hash = 2166136261u};
  for (unsigned i = 0; i < output->errors.length; i++) {
    GumboStringBuffer text;
    const GumboError *error = output->errors.data[i];
    gumbo_string_buffer_init(&text);
    gumbo_error_to_string(error, &text);
    for (size_t at = 0; at < text.length; at++)
      tally.hash = (tally.hash ^ (unsigned char)text.data[at]) * 16777619u;
    gumbo_string_buffer_destroy(&text);
    tally.hash += error->position.line * 131 + error->position.column;
    if (error->original_text < source)
      mix(&tally, "?");
  }
  return tally.hash;
}

static Tally parse(const Page *page) {
  GumboOptions options = kGumboDefaultOptions;
  options.max_errors = 400;
  GumboOutput *output = gumbo_parse_with_options(&options, page->text, page->size);
  Tally tally = {.hash = 2166136261u};
  walk(output->root, 0, &tally);
  printf("%zu bytes, %u errors (%08x): ", page->size, output->errors.length,
         messages(output, page->text));
  gumbo_destroy_output(output);
  return tally;
}

int main(void) {
  static Page page;
  for (int i = 0; i < 24; i++) {
    make(&page, 40 * (i + 1));
    Tally first = parse(&page);
    printf("%d elements (%d foreign, %d repaired), %d attributes, %d texts, %d comments, depth %d, "
           "%08x\n",
           first.elements, first.foreign, first.repaired, first.attributes, first.texts,
           first.comments, first.depth, first.hash);
  }
  return 0;
}
