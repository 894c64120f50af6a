// A vector that keeps its first N elements inline.
#ifndef SAMPLE_SMALL_VECTOR_HPP
#define SAMPLE_SMALL_VECTOR_HPP

#include <cstddef>
#include <initializer_list>
#include <new>
#include <utility>

namespace sample {

template <typename T, std::size_t N> class SmallVector {
public:
  using iterator = T *;
  using const_iterator = const T *;

  SmallVector() = default;
  SmallVector(std::initializer_list<T> items) {
    reserve(items.size());
    for (const T &item : items)
      push_back(item);
  }
  explicit SmallVector(std::size_t count, const T &value = T()) {
    resize(count, value);
  }
  SmallVector(const SmallVector &other) { append(other.begin(), other.end()); }
  SmallVector(SmallVector &&other) { take(other); }
  ~SmallVector() { reset(); }

  SmallVector &operator=(const SmallVector &other) {
    if (this != &other) {
      clear();
      append(other.begin(), other.end());
    }
    return *this;
  }
  SmallVector &operator=(SmallVector &&other) {
    if (this != &other) {
      reset();
      take(other);
    }
    return *this;
  }

  std::size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  T *begin() { return data_; }
  T *end() { return data_ + size_; }
  const T *begin() const { return data_; }
  const T *end() const { return data_ + size_; }
  T &operator[](std::size_t i) { return data_[i]; }
  const T &operator[](std::size_t i) const { return data_[i]; }
  T &back() { return data_[size_ - 1]; }
  const T &back() const { return data_[size_ - 1]; }

  void reserve(std::size_t wanted) {
    if (wanted > capacity_)
      grow(wanted);
  }
  template <typename... Args> T &emplace_back(Args &&...args) {
    if (size_ == capacity_) {
      T value(std::forward<Args>(args)...); // may refer to an element
      grow(capacity_ * 2);
      return *new (data_ + size_++) T(std::move(value));
    }
    return *new (data_ + size_++) T(std::forward<Args>(args)...);
  }
  void push_back(const T &value) { emplace_back(value); }
  void push_back(T &&value) { emplace_back(std::move(value)); }
  void pop_back() { data_[--size_].~T(); }
  void clear() { shrink(0); }
  void resize(std::size_t count, const T &value = T()) {
    shrink(count);
    reserve(count);
    while (size_ < count)
      emplace_back(value);
  }
  template <typename It> void append(It first, It last) {
    for (; first != last; ++first)
      emplace_back(*first);
  }
  void insert(std::size_t at, T value) {
    emplace_back(std::move(value));
    for (std::size_t i = size_ - 1; i > at; --i)
      std::swap(data_[i], data_[i - 1]);
  }
  void erase(std::size_t at) {
    for (std::size_t i = at + 1; i < size_; ++i)
      data_[i - 1] = std::move(data_[i]);
    pop_back();
  }

  friend bool operator==(const SmallVector &a, const SmallVector &b) {
    if (a.size() != b.size())
      return false;
    for (std::size_t i = 0; i < a.size(); ++i)
      if (!(a[i] == b[i]))
        return false;
    return true;
  }

private:
  T *inline_data() { return reinterpret_cast<T *>(storage_); }
  bool is_inline() const {
    return data_ == reinterpret_cast<const T *>(storage_);
  }
  void shrink(std::size_t count) {
    while (size_ > count)
      pop_back();
  }
  void release() {
    if (!is_inline())
      ::operator delete(data_);
  }
  void grow(std::size_t wanted) {
    T *bigger = static_cast<T *>(::operator new(wanted * sizeof(T)));
    for (std::size_t i = 0; i < size_; ++i) {
      new (bigger + i) T(std::move(data_[i]));
      data_[i].~T();
    }
    release();
    data_ = bigger;
    capacity_ = wanted;
  }
  void reset() {
    clear();
    release();
    data_ = inline_data();
    capacity_ = N;
  }
  void take(SmallVector &other) { // *this is empty and inline
    if (other.is_inline()) {
      for (T &item : other)
        emplace_back(std::move(item));
      other.clear();
      return;
    }
    data_ = std::exchange(other.data_, other.inline_data());
    size_ = std::exchange(other.size_, 0);
    capacity_ = std::exchange(other.capacity_, N);
  }

  alignas(T) unsigned char storage_[N * sizeof(T)];
  T *data_ = inline_data();
  std::size_t size_ = 0;
  std::size_t capacity_ = N;
};

} // namespace sample

#endif
