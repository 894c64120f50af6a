// Least-recently-used cache on an intrusive list and a hash index, with a
// memoised edit distance and a page-replacement simulation as its users.
#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace sample {

struct Link {
  Link *prev = this;
  Link *next = this;

  bool linked() const { return next != this; }
  void unlink() {
    prev->next = next;
    next->prev = prev;
    prev = next = this;
  }
  void insert_after(Link &where) {
    prev = &where;
    next = where.next;
    next->prev = this;
    where.next = this;
  }
};

template <typename K, typename V> struct Entry : Link {
  Entry(const K &k, V v) : key(k), value(std::move(v)) {}
  K key;
  V value;
  Entry *chain = nullptr;
};

template <typename K, typename V, typename Hash> class LruCache {
public:
  using Node = Entry<K, V>;

  explicit LruCache(std::size_t capacity)
      : capacity_(std::max<std::size_t>(capacity, 1)), buckets_(8) {}
  LruCache(const LruCache &) = delete;
  LruCache &operator=(const LruCache &) = delete;
  ~LruCache() { clear(); }

  std::size_t size() const { return size_; }
  std::size_t hits() const { return hits_; }
  std::size_t misses() const { return misses_; }

  V *find(const K &key) {
    Node *n = lookup(key);
    if (!n) {
      ++misses_;
      return nullptr;
    }
    ++hits_;
    touch(*n);
    return &n->value;
  }

  V &put(const K &key, V value) {
    if (Node *n = lookup(key)) {
      n->value = std::move(value);
      touch(*n);
      return n->value;
    }
    if (size_ == capacity_)
      evict();
    if (size_ >= buckets_.size())
      rehash(buckets_.size() * 2);
    Node *n = new Node(key, std::move(value));
    push_chain(*n);
    n->insert_after(recent_);
    ++size_;
    return n->value;
  }

  template <typename F> V &get_or(const K &key, F make) {
    if (V *found = find(key))
      return *found;
    return put(key, make());
  }

  void clear() {
    while (recent_.linked())
      destroy(static_cast<Node *>(recent_.next));
  }

  // Visits the entries from the most to the least recently used.
  template <typename F> void for_each(F f) const {
    for (const Link *l = recent_.next; l != &recent_; l = l->next) {
      const Node &n = *static_cast<const Node *>(l);
      f(n.key, n.value);
    }
  }

private:
  Node *&bucket(const K &key) {
    return buckets_[Hash()(key) & (buckets_.size() - 1)];
  }
  Node *lookup(const K &key) {
    Node *n = bucket(key);
    while (n && !(n->key == key))
      n = n->chain;
    return n;
  }
  void touch(Node &n) {
    n.unlink();
    n.insert_after(recent_);
  }
  void push_chain(Node &n) {
    Node *&head = bucket(n.key);
    n.chain = head;
    head = &n;
  }
  void remove_chain(Node &n) {
    Node **at = &bucket(n.key);
    while (*at != &n)
      at = &(*at)->chain;
    *at = n.chain;
  }
  void destroy(Node *n) {
    remove_chain(*n);
    n->unlink();
    delete n;
    --size_;
  }
  void evict() { destroy(static_cast<Node *>(recent_.prev)); }
  void rehash(std::size_t count) {
    std::fill(buckets_.begin(), buckets_.end(), nullptr);
    buckets_.resize(count);
    for (Link *l = recent_.next; l != &recent_; l = l->next)
      push_chain(*static_cast<Node *>(l));
  }

  std::size_t capacity_;
  std::size_t size_ = 0;
  std::size_t hits_ = 0, misses_ = 0;
  std::vector<Node *> buckets_;
  Link recent_;
};

struct Pair {
  unsigned i, j;
  bool operator==(const Pair &o) const { return i == o.i && j == o.j; }
};

struct PairHash {
  std::size_t operator()(const Pair &p) const {
    return (p.i * 2654435761u) ^ (p.j * 40503u);
  }
};

namespace {

class EditDistance {
public:
  EditDistance(const std::string &a, const std::string &b, std::size_t memory)
      : a_(a), b_(b), memo_(memory) {}
  unsigned compute() { return at(unsigned(a_.size()), unsigned(b_.size())); }

private:
  unsigned at(unsigned i, unsigned j) {
    if (i == 0 || j == 0)
      return i + j;
    return memo_.get_or({i, j}, [&] {
      unsigned change = at(i - 1, j - 1) + (a_[i - 1] != b_[j - 1]);
      unsigned remove = at(i - 1, j) + 1;
      unsigned insert = at(i, j - 1) + 1;
      return std::min({change, remove, insert});
    });
  }
  const std::string &a_, &b_;
  LruCache<Pair, unsigned, PairHash> memo_;
};

} // namespace

unsigned edit_distance(const std::string &a, const std::string &b) {
  EditDistance d(a, b, 4 * (a.size() + b.size() + 1));
  return d.compute();
}

// Hits of an LRU cache of `capacity` blocks over an access trace, where a block
// is a file number and a block number.
std::size_t count_hits(const Pair *trace, std::size_t n, std::size_t capacity) {
  LruCache<Pair, unsigned, PairHash> cache(capacity);
  for (std::size_t i = 0; i < n; ++i)
    ++cache.get_or(trace[i], [] { return 0u; });
  return cache.hits();
}

} // namespace sample
