// Discrete-event simulation of a queue with several servers: a d-ary heap
// template, polymorphic events, a random generator and running statistics.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "small_vector.hpp"

namespace sample {

template <typename T, typename Before, unsigned D = 4> class DaryHeap {
public:
  bool empty() const { return items_.empty(); }
  std::size_t size() const { return items_.size(); }
  const T &top() const { return items_[0]; }

  void push(T item) {
    items_.push_back(std::move(item));
    std::size_t i = size() - 1;
    while (i > 0 && before(i, parent(i))) {
      std::swap(items_[i], items_[parent(i)]);
      i = parent(i);
    }
  }

  T pop() {
    std::swap(items_[0], items_.back());
    T result = std::move(items_.back());
    items_.pop_back();
    for (std::size_t i = 0, c; (c = best_child(i)) != i; i = c)
      std::swap(items_[i], items_[c]);
    return result;
  }

private:
  static std::size_t parent(std::size_t i) { return (i - 1) / D; }
  bool before(std::size_t i, std::size_t j) const {
    return Before()(items_[i], items_[j]);
  }
  std::size_t best_child(std::size_t i) const {
    std::size_t best = i, first = i * D + 1;
    for (std::size_t c = first; c < first + D && c < size(); ++c)
      if (before(c, best))
        best = c;
    return best;
  }
  SmallVector<T, 16> items_;
};

class Random {
public:
  explicit Random(std::uint64_t seed) : state_(seed * 2 + 1) {}
  std::uint32_t bits() {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    std::uint32_t x = std::uint32_t((state_ >> 18 ^ state_) >> 27);
    unsigned turn = unsigned(state_ >> 59);
    return x >> turn | x << (-turn & 31);
  }
  double unit() { return (bits() + 0.5) / 4294967296.0; }
  double exponential(double mean) { return -mean * std::log(unit()); }

private:
  std::uint64_t state_;
};

class Statistics {
public:
  void add(double v) {
    ++count_;
    double delta = v - mean_;
    mean_ += delta / double(count_);
    squares_ += delta * (v - mean_);
    max_ = count_ == 1 ? v : std::fmax(max_, v);
  }
  std::size_t count() const { return count_; }
  double mean() const { return mean_; }
  double max() const { return max_; }
  double deviation() const {
    return count_ < 2 ? 0 : std::sqrt(squares_ / double(count_ - 1));
  }

private:
  std::size_t count_ = 0;
  double mean_ = 0, squares_ = 0, max_ = 0;
};

struct QueueReport {
  std::size_t served;
  double mean_wait, max_wait, wait_deviation, mean_service;
};

namespace {

class Simulation;

class Event {
public:
  virtual ~Event() = default;
  virtual void fire(Simulation &sim) = 0;
};

struct Scheduled {
  double time;
  std::uint64_t order; // equal times fire in the order they were scheduled in
  std::unique_ptr<Event> event;
};

struct Earlier {
  bool operator()(const Scheduled &a, const Scheduled &b) const {
    return a.time != b.time ? a.time < b.time : a.order < b.order;
  }
};

class Simulation {
public:
  Simulation(unsigned servers, double arrival_mean, double service_mean,
             std::uint64_t seed)
      : idle_(servers), arrival_mean_(arrival_mean),
        service_mean_(service_mean), random_(seed) {}

  template <typename E> void after(double delay) {
    events_.push({now_ + delay, next_order_++, std::unique_ptr<Event>(new E)});
  }

  void run(std::size_t customers);

  void customer_arrived() {
    if (idle_ > 0) {
      --idle_;
      start_service(0);
    } else {
      waiting_.push_back(now_);
    }
    if (--remaining_ > 0)
      schedule_arrival();
  }

  void server_freed() {
    if (next_waiting_ < waiting_.size())
      start_service(now_ - waiting_[next_waiting_++]);
    else
      ++idle_;
  }

  QueueReport report() const {
    return {waits_.count(), waits_.mean(), waits_.max(), waits_.deviation(),
            services_.mean()};
  }

private:
  void schedule_arrival();
  void start_service(double waited);

  DaryHeap<Scheduled, Earlier> events_;
  SmallVector<double, 32> waiting_; // arrival times, in order
  std::size_t next_waiting_ = 0;
  std::size_t remaining_ = 0;
  unsigned idle_;
  double arrival_mean_, service_mean_;
  double now_ = 0;
  std::uint64_t next_order_ = 0;
  Random random_;
  Statistics waits_, services_;
};

class Arrival final : public Event {
public:
  void fire(Simulation &sim) override { sim.customer_arrived(); }
};

class Departure final : public Event {
public:
  void fire(Simulation &sim) override { sim.server_freed(); }
};

void Simulation::schedule_arrival() {
  after<Arrival>(random_.exponential(arrival_mean_));
}

void Simulation::start_service(double waited) {
  double service = random_.exponential(service_mean_);
  waits_.add(waited);
  services_.add(service);
  after<Departure>(service);
}

void Simulation::run(std::size_t customers) {
  remaining_ = customers;
  if (customers > 0)
    schedule_arrival();
  while (!events_.empty()) {
    Scheduled next = events_.pop();
    now_ = next.time;
    next.event->fire(*this);
  }
}

} // namespace

// Simulates `customers` arrivals at a queue in front of `servers` servers.
QueueReport simulate_queue(unsigned servers, double arrival_mean,
                           double service_mean, std::size_t customers,
                           std::uint64_t seed) {
  Simulation sim(servers, arrival_mean, service_mean, seed);
  sim.run(customers);
  return sim.report();
}

} // namespace sample
