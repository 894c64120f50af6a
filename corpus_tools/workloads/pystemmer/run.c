// Snowball: `run` stems words made of each language's syllables and endings, in each of its
// encodings; in a language with two, the stems of plain words must agree.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libstemmer.h"

typedef struct {
  const char *name, *encoding; // The other encoding, if any.
  const char *letters;         // In UTF-8: letters, or syllables, separated by spaces.
  const char *endings;
} Language;

// Languages of Latin letters are made of these; others have their own.
static const char LATIN[] = "ba ca de di fo gu la le ma mi no or pa qui re sa st ti tra u ven y ex";

static const Language LANGUAGES[] = {
    {"english", "ISO_8859_1", LATIN, "ing ings ed ly ness ational iveness ies 's ment ability ous"},
    {"porter", "ISO_8859_1", LATIN, "ing ed ization ousness fulness ical ate s eed ality able"},
    {"french", "ISO_8859_1", LATIN, "ement issement eux euse ation ions erait issons ique es ité"},
    {"german", "ISO_8859_1", LATIN, "ung ungen heit keit lich isch end ern est en äßer e"},
    {"spanish", "ISO_8859_1", LATIN, "amente aciones arían iendo imiento osa idad ó ar la"},
    {"portuguese", "ISO_8859_1", LATIN, "amente idades eza ismo ação avam eria irmos o"},
    {"italian", "ISO_8859_1", LATIN, "amente azione issimo ando ereste ivano ità osa ire glielo"},
    {"dutch", "ISO_8859_1", LATIN, "heden lijk ingen baar end en je ster isme s"},
    {"swedish", "ISO_8859_1", LATIN, "arnas heterna andet ades lig else orna ast e"},
    {"norwegian", "ISO_8859_1", LATIN, "hetene endes leg elov ede er ane ast s"},
    {"danish", "ISO_8859_1", LATIN, "erendes hederne elsk løst ende erne lig es e"},
    {"finnish", "ISO_8859_1", LATIN, "ssansa lleen mmille kaan jen imme tta ista oja in"},
    {"catalan", "ISO_8859_1", LATIN, "ament acions istes aria issin able itats es -ho"},
    {"basque", "ISO_8859_1", LATIN, "tasunaren keria etako garri tzea ren ari an"},
    {"irish", "ISO_8859_1", LATIN, "eachta fimid acht aire anna ir ta"},
    {"indonesian", "ISO_8859_1", LATIN, "kan nya lah kah an i ku"},
    {"hungarian", "ISO_8859_2", LATIN, "okkal jaitok ban hoz nak ul ebb an k"},
    {"romanian", "ISO_8859_2", LATIN, "ului iilor ative ist abil eaz easc ise or"},
    {"lithuanian", NULL, LATIN, "iuose imas amas iausias ant ink uose is"},
    {"turkish", NULL, LATIN, "lerinden lik siniz dir yken ca mis da in"},
    {"russian", "KOI8_R", "ба ве го ду жи ка ле мо ни ра ст пре по",
     "ость ами ировал ейший ющая ого еть ись ия"},
    {"greek", NULL, "βα γε δι κο λα μι νο πα ρε στ τυ", "οντας ησουμε ικα ωσεις ματων ους εται η"},
    {"arabic", NULL, "ب ت ج د ر س ع ف ق ك ل م ن و ي", "ات ون ين ها كم نا ة ي"},
    {"hindi", NULL, "क ख ग च ज त द न प म र ल व स", "ाओं ियों ाना ता ने ों ी े"},
    {"nepali", NULL, "क ख ग च ज त द न प म र ल व स", "हरू लाई बाट को ले मा एका ेछ"},
    {"tamil", NULL, "க ச த ந ப ம ய ர ல வ", "ங்கள் வில் க்கு ான் ை இடம் ும்"},
};

static uint32_t seed = 4;

static unsigned next(unsigned limit) {
  seed = seed * 1664525u + 1013904223u;
  return (seed >> 8) % limit;
}

// Appends one of the pieces of a list that is separated by spaces.
static void append(char *word, const char *list) {
  unsigned count = 1;
  for (const char *at = list; *at; at++)
    count += *at == ' ';
  for (unsigned skip = next(count); skip > 0; skip--)
    list = strchr(list, ' ') + 1;
  strncat(word, list, strcspn(list, " "));
}

static void make_word(const Language *language, char *word) {
  *word = 0;
  for (unsigned i = 1 + next(4); i > 0; i--)
    append(word, language->letters);
  for (unsigned i = next(3); i > 0; i--)
    append(word, language->endings);
}

static struct sb_stemmer *stemmer_for(const char *name, const char *encoding) {
  struct sb_stemmer *stemmer = sb_stemmer_new(name, encoding);
  if (!stemmer) {
    fprintf(stderr, "no stemmer: %s in %s\n", name, encoding);
    exit(1);
  }
  return stemmer;
}

static int is_plain(const char *word) {
  for (; *word; word++)
    if (*word & 0x80)
      return 0;
  return 1;
}

static void stem_words(const Language *language, int count) {
  struct sb_stemmer *first = stemmer_for(language->name, "UTF_8"), *second = NULL;
  if (language->encoding)
    second = stemmer_for(language->name, language->encoding);
  int before = 0, after = 0;
  uint32_t hash = 2166136261u;
  for (int i = 0; i < count; i++) {
    char word[256];
    make_word(language, word);
    int size = (int)strlen(word);
    const sb_symbol *stem = sb_stemmer_stem(first, (const sb_symbol *)word, size);
    int length = sb_stemmer_length(first);
    for (int k = 0; k < length; k++)
      hash = (hash ^ stem[k]) * 16777619u;
    before += size;
    after += length;
    if (!second)
      continue;
    const sb_symbol *same = sb_stemmer_stem(second, (const sb_symbol *)word, size);
    if (is_plain(word) &&
        (length != sb_stemmer_length(second) || memcmp(stem, same, (size_t)length) != 0)) {
      fprintf(stderr, "%s: two stems of %s\n", language->name, word);
      exit(1);
    }
  }
  sb_stemmer_delete(first);
  sb_stemmer_delete(second);
  printf("%s: %d to %d %08x\n", language->name, before, after, hash);
}

int main(void) {
  int known = 0;
  for (const char **name = sb_stemmer_list(); *name; name++)
    known++;
  printf("%d languages\n", known);
  for (size_t i = 0; i < sizeof LANGUAGES / sizeof *LANGUAGES; i++)
    stem_words(&LANGUAGES[i], 1700);
  return 0;
}
