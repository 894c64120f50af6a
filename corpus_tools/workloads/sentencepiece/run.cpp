// SentencePiece: `run` makes a vocabulary, normalises text (compatibility forms too), and splits it
// by unigrams, by pairs, by characters and by words, in the best and the next best ways, and back.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "builder.h"
#include "sentencepiece_model.pb.h"
#include "sentencepiece_processor.h"

using namespace sentencepiece;

static unsigned seed = 9;

static unsigned next(unsigned limit) {
  seed = seed * 1664525u + 1013904223u;
  return (seed >> 8) % limit;
}

static void require(bool condition, const std::string &what) {
  if (!condition) {
    std::fprintf(stderr, "wrong: %s\n", what.c_str());
    std::exit(1);
  }
}

static void require(const util::Status &status, const std::string &what) {
  require(status.ok(), what + ": " + status.ToString());
}

static const std::vector<std::string> SYLLABLES = {
    "ka", "ri", "on", "te", "mu", "sha", "él", "qu", "in", "ba", "das", "ö", "ver", "li", "na"};

static std::string word() {
  std::string made;
  for (unsigned i = 1 + next(4); i > 0; i--)
    made += SYLLABLES[next(unsigned(SYLLABLES.size()))];
  return made;
}

// Words, with here and there a character that has a plainer form, or none in the vocabulary.
static std::string sentence() {
  static const std::vector<std::string> odd = {"ﬁn",   "Ｋａ", "①", "　", "…",
                                               "日本", "ｶ",    "½", "  "};
  std::string made;
  for (unsigned i = 4 + next(9); i > 0; i--)
    made += (next(9) ? word() : odd[next(unsigned(odd.size()))]) + (i > 1 ? " " : ".");
  return made;
}

static std::vector<std::string> letters_of(const std::string &text) {
  std::vector<std::string> made;
  for (char byte : text)
    if ((byte & 0xc0) == 0x80)
      made.back() += byte;
    else
      made.push_back(std::string(1, byte));
  return made;
}

// All parts of up to seven letters of many words; the common and long ones first.
static std::vector<std::pair<int, std::string>> parts(size_t limit) {
  std::map<std::string, int> counts;
  for (int i = 0; i < 400; i++) {
    std::vector<std::string> letters = letters_of("\u2581" + word());
    for (size_t from = 0; from < letters.size(); from++) {
      std::string part;
      for (size_t k = from; k < letters.size() && k < from + 7; k++)
        counts[part += letters[k]] += int(k - from) + 1;
    }
  }
  std::vector<std::pair<int, std::string>> made;
  for (const auto &[part, count] : counts)
    made.emplace_back(letters_of(part).size() == 1 ? -1000000 : -count, part);
  std::sort(made.begin(), made.end());
  made.resize(std::min(made.size(), limit));
  return made;
}

static ModelProto model_of(TrainerSpec::ModelType type, const std::string &rules) {
  ModelProto model;
  auto add = [&](const std::string &text, float score, ModelProto::SentencePiece::Type kind) {
    auto *piece = model.add_pieces();
    piece->set_piece(text);
    piece->set_score(score);
    piece->set_type(kind);
  };
  add("<unk>", 0, ModelProto::SentencePiece::UNKNOWN);
  add("<s>", 0, ModelProto::SentencePiece::CONTROL);
  add("</s>", 0, ModelProto::SentencePiece::CONTROL);
  add("mu", 0, ModelProto::SentencePiece::USER_DEFINED);
  float score = -1;
  for (const auto &[rank, text] : parts(700))
    if (text != "mu")
      add(text, score -= 0.015625f, ModelProto::SentencePiece::NORMAL);
  model.mutable_trainer_spec()->set_model_type(type);
  model.mutable_normalizer_spec()->set_name(rules);
  std::string map;
  require(normalizer::Builder::GetPrecompiledCharsMap(rules, &map), rules);
  model.mutable_normalizer_spec()->set_precompiled_charsmap(map);
  return model;
}

static uint32_t mix(uint32_t hash, const std::string &text) {
  for (unsigned char byte : text)
    hash = (hash ^ byte) * 16777619u;
  return (hash ^ 31) * 16777619u;
}

static void split(const char *name, TrainerSpec::ModelType type, const std::string &rules,
                  int count) {
  SentencePieceProcessor processor;
  std::string saved;
  require(model_of(type, rules).SerializeToString(&saved), "saving");
  require(processor.LoadFromSerializedProto(saved), "loading");
  require(processor.SetEncodeExtraOptions("bos:eos"), "options");
  size_t pieces = 0, unknown = 0, ways = 0;
  uint32_t hash = 2166136261u;
  for (int i = 0; i < count; i++) {
    std::string text = sentence(), back, again;
    std::vector<std::string> found;
    std::vector<int> ids;
    require(processor.Encode(text, &found), "splitting");
    require(processor.Encode(text, &ids), "splitting into numbers");
    require(found.size() == ids.size(), "as many numbers as pieces");
    require(processor.Decode(found, &back), "joining");
    require(processor.Decode(ids, &again), "joining numbers");
    for (size_t k = 0; k < ids.size(); k++)
      unknown += processor.IsUnknown(ids[k]);
    for (const std::string &piece : found)
      hash = mix(hash, piece);
    pieces += found.size();
    hash = mix(mix(hash, back), again);
    if (type != TrainerSpec::UNIGRAM || i % 4)
      continue;
    std::vector<std::vector<std::string>> best;
    require(processor.NBestEncode(text, 5, &best), "next best");
    require(!best.empty() && best[0].size() == found.size(), "the best way");
    ways += best.size();
  }
  std::printf("%s: %d pieces known, %zu found, %zu unknown, %zu ways, %08x\n", name,
              processor.GetPieceSize(), pieces, unknown, ways, hash);
}

int main() {
  split("unigrams", TrainerSpec::UNIGRAM, "nmt_nfkc", 60);
  split("pairs", TrainerSpec::BPE, "nfkc_cf", 60);
  split("characters", TrainerSpec::CHAR, "identity", 60);
  split("words", TrainerSpec::WORD, "nmt_nfkc_cf", 60);
  return 0;
}
