// Interval tree: an AVL tree augmented with subtree maxima, with insertion,
// removal and overlap queries.
#include <algorithm>
#include <cstddef>
#include <memory>

namespace sample {

struct Interval {
  long lo, hi; // half open
  int id;

  bool contains(long x) const { return lo <= x && x < hi; }
  bool overlaps(const Interval &o) const { return lo < o.hi && o.lo < hi; }
  friend bool operator<(const Interval &a, const Interval &b) {
    if (a.lo != b.lo)
      return a.lo < b.lo;
    return a.hi != b.hi ? a.hi < b.hi : a.id < b.id;
  }
};

class IntervalTree {
public:
  void insert(const Interval &i) { root_ = insert(std::move(root_), i); }

  bool erase(const Interval &i) {
    bool found = false;
    root_ = erase(std::move(root_), i, found);
    return found;
  }

  template <typename F> void for_overlaps(const Interval &query, F f) const {
    visit(root_.get(), query, f);
  }

  int height() const { return height(root_); }
  std::size_t size() const { return count(root_.get()); }

private:
  struct Node;
  using Ptr = std::unique_ptr<Node>;

  struct Node {
    explicit Node(const Interval &i) : item(i), max_hi(i.hi) {}
    Interval item;
    long max_hi;
    int height = 1;
    Ptr left, right;
  };

  static int height(const Ptr &n) { return n ? n->height : 0; }
  static int balance(const Node &n) { return height(n.left) - height(n.right); }
  static std::size_t count(const Node *n) {
    return n ? 1 + count(n->left.get()) + count(n->right.get()) : 0;
  }

  static void raise(long &max, const Ptr &child) {
    if (child)
      max = std::max(max, child->max_hi);
  }
  static void refresh(Node &n) {
    n.height = 1 + std::max(height(n.left), height(n.right));
    n.max_hi = n.item.hi;
    raise(n.max_hi, n.left);
    raise(n.max_hi, n.right);
  }

  static Ptr rotate(Ptr n, Ptr Node::*from, Ptr Node::*to) {
    Ptr top = std::move((*n).*from);
    (*n).*from = std::move((*top).*to);
    refresh(*n);
    (*top).*to = std::move(n);
    refresh(*top);
    return top;
  }
  static Ptr rotate_right(Ptr n) {
    return rotate(std::move(n), &Node::left, &Node::right);
  }
  static Ptr rotate_left(Ptr n) {
    return rotate(std::move(n), &Node::right, &Node::left);
  }

  static Ptr rebalance(Ptr n) {
    refresh(*n);
    int b = balance(*n);
    if (b > 1) {
      if (balance(*n->left) < 0)
        n->left = rotate_left(std::move(n->left));
      return rotate_right(std::move(n));
    }
    if (b < -1) {
      if (balance(*n->right) > 0)
        n->right = rotate_right(std::move(n->right));
      return rotate_left(std::move(n));
    }
    return n;
  }

  static Ptr insert(Ptr n, const Interval &i) {
    if (!n)
      return std::make_unique<Node>(i);
    Ptr &side = i < n->item ? n->left : n->right;
    side = insert(std::move(side), i);
    return rebalance(std::move(n));
  }

  static Ptr take_min(Ptr n, Ptr &min) {
    if (!n->left) {
      Ptr rest = std::move(n->right);
      min = std::move(n);
      return rest;
    }
    n->left = take_min(std::move(n->left), min);
    return rebalance(std::move(n));
  }

  static Ptr erase_top(Ptr n) {
    if (!n->left)
      return std::move(n->right);
    if (!n->right)
      return std::move(n->left);
    Ptr min;
    Ptr right = take_min(std::move(n->right), min);
    min->left = std::move(n->left);
    min->right = std::move(right);
    return rebalance(std::move(min));
  }

  static Ptr erase(Ptr n, const Interval &i, bool &found) {
    if (!n)
      return n;
    if (i < n->item) {
      n->left = erase(std::move(n->left), i, found);
    } else if (n->item < i) {
      n->right = erase(std::move(n->right), i, found);
    } else {
      found = true;
      return erase_top(std::move(n));
    }
    return rebalance(std::move(n));
  }

  template <typename F>
  static void visit(const Node *n, const Interval &query, F &f) {
    if (!n || n->max_hi <= query.lo)
      return;
    visit(n->left.get(), query, f);
    if (n->item.overlaps(query))
      f(n->item);
    if (n->item.lo < query.hi)
      visit(n->right.get(), query, f);
  }

  Ptr root_;
};

namespace {

IntervalTree build(const Interval *all, std::size_t n) {
  IntervalTree tree;
  for (std::size_t i = 0; i < n; ++i)
    tree.insert(all[i]);
  return tree;
}

} // namespace

// Stores the ids of up to `max` intervals that overlap [lo, hi), by increasing
// start; returns how many there are.
std::size_t overlapping_ids(const Interval *all, std::size_t n, long lo,
                            long hi, int *ids, std::size_t max) {
  IntervalTree tree = build(all, n);
  std::size_t found = 0;
  tree.for_overlaps({lo, hi, 0}, [&](const Interval &i) {
    if (found < max)
      ids[found] = i.id;
    ++found;
  });
  return found;
}

// The largest number of intervals that share a point.
int max_overlap(const Interval *all, std::size_t n) {
  IntervalTree tree = build(all, n);
  int best = 0;
  for (std::size_t i = 0; i < n; ++i) {
    int here = 0;
    long start = all[i].lo;
    tree.for_overlaps({start, start + 1, 0},
                      [&](const Interval &o) { here += o.contains(start); });
    best = std::max(best, here);
  }
  return best;
}

// Inserts all, then erases those with an odd id; returns the tree's height, or
// -1 when something went missing.
int churn(const Interval *all, std::size_t n) {
  IntervalTree tree = build(all, n);
  std::size_t even = 0;
  for (std::size_t i = 0; i < n; ++i) {
    if (all[i].id % 2 == 0)
      ++even;
    else if (!tree.erase(all[i]))
      return -1;
  }
  return tree.size() == even ? tree.height() : -1;
}

} // namespace sample
