// Weighted graphs in compressed adjacency form: shortest paths with an indexed
// binary heap, minimum spanning tree and topological order.
#include <cstddef>
#include <limits>
#include <utility>
#include <vector>

namespace sample {

struct Edge {
  int from, to;
  long weight;
};

constexpr long unreachable = std::numeric_limits<long>::max();

// Nodes ordered by a key that may be lowered while they are queued.
class NodeHeap {
public:
  explicit NodeHeap(int nodes)
      : place_(std::size_t(nodes), -1), key_(std::size_t(nodes), unreachable) {}

  bool empty() const { return order_.empty(); }
  long key(int node) const { return key_[std::size_t(node)]; }

  // Queues a node or lowers its key; false if the key is no improvement.
  bool lower(int node, long key) {
    if (key >= this->key(node))
      return false;
    key_[std::size_t(node)] = key;
    if (place(node) < 0) {
      place(node) = int(order_.size());
      order_.push_back(node);
    }
    sift_up(place(node));
    return true;
  }

  int pop() {
    int top = order_[0];
    put(0, order_.back());
    order_.pop_back();
    place(top) = -1;
    if (!empty())
      sift_down(0);
    return top;
  }

private:
  int &place(int node) { return place_[std::size_t(node)]; }
  int at(int i) const { return order_[std::size_t(i)]; }
  bool before(int i, int j) const { return key(at(i)) < key(at(j)); }

  void put(int i, int node) {
    order_[std::size_t(i)] = node;
    place(node) = i;
  }
  void exchange(int i, int j) {
    int a = at(i), b = at(j);
    put(i, b);
    put(j, a);
  }
  void sift_up(int i) {
    while (i > 0 && before(i, (i - 1) / 2)) {
      exchange(i, (i - 1) / 2);
      i = (i - 1) / 2;
    }
  }
  int smallest_child(int i) const {
    int size = int(order_.size()), child = 2 * i + 1;
    if (child >= size)
      return -1;
    return child + 1 < size && before(child + 1, child) ? child + 1 : child;
  }
  void sift_down(int i) {
    for (int c = smallest_child(i); c >= 0 && before(c, i);
         c = smallest_child(i)) {
      exchange(i, c);
      i = c;
    }
  }

  std::vector<int> order_, place_;
  std::vector<long> key_;
};

class Graph {
public:
  // Edges with an unknown end are left out.
  Graph(int nodes, const Edge *edges, std::size_t n)
      : first_(std::size_t(nodes) + 1), edges_(n) {
    for_valid(nodes, edges, n, [&](const Edge &e) { ++slot(e.from); });
    int sum = 0;
    for (int &f : first_)
      f = sum += f;
    for_valid(nodes, edges, n, [&](const Edge &e) {
      edges_[std::size_t(--slot(e.from))] = e;
    });
  }

  int nodes() const { return int(first_.size()) - 1; }
  bool has(int node) const { return in_range(node, nodes()); }

  template <typename F> void for_out(int node, F f) const {
    int end = first_[std::size_t(node) + 1];
    for (int i = first_[std::size_t(node)]; i < end; ++i)
      f(edges_[std::size_t(i)]);
  }

private:
  static bool in_range(int node, int nodes) {
    return node >= 0 && node < nodes;
  }

  template <typename F>
  static void for_valid(int nodes, const Edge *edges, std::size_t n, F f) {
    for (std::size_t i = 0; i < n; ++i)
      if (in_range(edges[i].from, nodes) && in_range(edges[i].to, nodes))
        f(edges[i]);
  }
  int &slot(int node) { return first_[std::size_t(node)]; }

  std::vector<int> first_;
  std::vector<Edge> edges_;
};

namespace {

using KeyRule = long (*)(long key, const Edge &e);

long along_path(long key, const Edge &e) { return key + e.weight; }
long edge_only(long, const Edge &e) { return e.weight; }

// Grows a tree from `source`, always through the queued node of the smallest
// key; `rule` gives the key a node gets through an edge from one with a key.
// The heap that is returned knows the final keys.
NodeHeap best_first(const Graph &g, int source, int *via, KeyRule rule) {
  NodeHeap heap(g.nodes());
  std::vector<int> done(std::size_t(g.nodes()), 0);
  if (g.has(source))
    heap.lower(source, 0);
  while (!heap.empty()) {
    int node = heap.pop();
    done[std::size_t(node)] = 1;
    g.for_out(node, [&](const Edge &e) {
      if (!done[std::size_t(e.to)] && heap.lower(e.to, rule(heap.key(node), e)))
        via[e.to] = node;
    });
  }
  return heap;
}

bool finish(const Graph &g, int node, std::vector<int> &state,
            std::vector<int> &order) {
  int &mine = state[std::size_t(node)];
  if (mine != 0)
    return mine == 2; // 1 is a node that is still being visited
  mine = 1;
  bool acyclic = true;
  g.for_out(node, [&](const Edge &e) {
    acyclic = acyclic && finish(g, e.to, state, order);
  });
  mine = 2;
  order.push_back(node);
  return acyclic;
}

} // namespace

// Distances from `source` over edges of non-negative weight, into dist[nodes],
// and each node's predecessor on a shortest path (-1: none), into via[nodes].
void shortest_paths(const Graph &g, int source, long *dist, int *via) {
  for (int n = 0; n < g.nodes(); ++n)
    via[n] = -1;
  NodeHeap heap = best_first(g, source, via, along_path);
  for (int n = 0; n < g.nodes(); ++n)
    dist[n] = heap.key(n);
}

// Minimum spanning tree of the nodes of a symmetric graph that node 0 reaches:
// stores each node's parent and returns the total weight.
long spanning_tree(const Graph &g, int *parent) {
  long total = 0;
  for (int n = 0; n < g.nodes(); ++n)
    parent[n] = -1;
  NodeHeap heap = best_first(g, 0, parent, edge_only);
  for (int n = 0; n < g.nodes(); ++n)
    if (parent[n] >= 0)
      total += heap.key(n);
  return total;
}

// Nodes in an order that respects the edges; empty if there is a cycle.
std::vector<int> topological_order(const Graph &g) {
  std::vector<int> state(std::size_t(g.nodes()), 0), order;
  bool acyclic = true;
  for (int n = 0; n < g.nodes() && acyclic; ++n)
    acyclic = finish(g, n, state, order);
  if (!acyclic)
    order.clear();
  for (std::size_t i = 0, j = order.size(); i + 1 < j; ++i, --j)
    std::swap(order[i], order[j - 1]);
  return order;
}

} // namespace sample
