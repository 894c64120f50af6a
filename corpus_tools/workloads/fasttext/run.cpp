// fastText: `run` makes sentences on a few subjects, trains a classifier and word vectors on them
// in one thread, saves, loads and quantises the classifier, and sees how well all of them do.
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "args.h"
#include "fasttext.h"
#include "meter.h"

using namespace fasttext;

// With one thread fastText leaves most of a new matrix as it comes from here; let that be zeros.
extern "C" int posix_memalign(void **made, size_t alignment, size_t size) {
  size_t whole = (size + alignment - 1) / alignment * alignment;
  *made = std::aligned_alloc(alignment, whole);
  if (*made)
    std::memset(*made, 0, whole);
  return *made ? 0 : ENOMEM;
}

static unsigned seed = 6;

static unsigned next(unsigned limit) {
  seed = seed * 1664525u + 1013904223u;
  return (seed >> 8) % limit;
}

static void require(bool condition, const char *what) {
  if (!condition) {
    std::fprintf(stderr, "wrong: %s\n", what);
    std::exit(1);
  }
}

static const std::vector<std::vector<std::string>> SUBJECTS = {
    {"flour", "oven", "butter", "baked", "bread", "sugar", "recipe", "cooking", "dough"},
    {"goal", "match", "player", "kicked", "referee", "league", "trainer", "playing", "won"},
    {"engine", "wheel", "brake", "driver", "driving", "fuel", "road", "gear", "parked"},
    {"planet", "orbit", "comet", "telescope", "orbiting", "moon", "star", "galaxy", "night"},
};
static const std::vector<std::string> COMMON = {"the", "a", "and", "then", "was", "with", "very"};

static std::string sentence(unsigned subject) {
  std::string made;
  for (unsigned i = 0, count = 5 + next(8); i < count; i++) {
    const auto &words = next(3) == 0 ? COMMON : SUBJECTS[next(8) ? subject : next(4)];
    made += words[next(unsigned(words.size()))] + (next(12) ? " " : "s ");
  }
  return made;
}

static std::string lines(unsigned count) {
  std::string made;
  for (unsigned i = 0; i < count; i++) {
    unsigned subject = next(4);
    made += "__label__s" + std::to_string(subject) + " " + sentence(subject) + "\n";
  }
  return made;
}

// The share of lines whose subject is found, in hundredths.
static int hundredths(FastText &model, const std::string &text) {
  std::istringstream in(text);
  Meter meter(false);
  model.test(in, 2, 0.3, meter);
  return int(meter.recall() * 100 + 0.5);
}

static void train(FastText &model) {
  Args args;
  args.input = "sentences.txt";
  args.model = model_name::sup;
  args.loss = loss_name::softmax;
  args.thread = 1;
  args.verbose = 0;
  args.dim = 6;
  args.epoch = 6;
  args.lr = 0.9;
  args.bucket = 200;
  args.minCount = 2;
  args.minn = 2;
  args.maxn = 4;
  args.wordNgrams = 2;
  model.train(args);
}

// The first of the subjects found in each line.
static std::string guesses(FastText &model, const std::string &text) {
  std::istringstream in(text);
  std::string made;
  std::vector<std::pair<real, std::string>> found;
  while (model.predictLine(in, found, 2, 0) && !found.empty())
    made += found[0].second.substr(9) + " ";
  return made;
}

static void quantise(FastText &model) {
  Args args;
  args.dsub = 3;
  args.verbose = 0;
  args.thread = 1;
  model.quantize(args);
  require(model.isQuant(), "quantising");
}

int main() {
  std::ofstream("sentences.txt") << lines(500);
  std::string test = lines(150), few = lines(12);
  FastText model; // No second one: each fills a table of 30 million words.
  train(model);
  int found = hundredths(model, test);
  std::printf("%d of 100 found\n%s\n", found, guesses(model, few).c_str());
  std::printf("%d words, %zu grams of 'telescope'; near 'driver':", model.getDictionary()->nwords(),
              model.getNgramVectors("telescope").size());
  for (const auto &neighbour : model.getNN("driver", 1))
    std::printf(" %s\n", neighbour.second.c_str());
  quantise(model);
  int still_found = hundredths(model, test);
  std::printf("quantised: %d of 100\n%s\n", still_found, guesses(model, few).c_str());
  require(found > 90 && still_found > 80, "the subjects");
  return 0;
}
