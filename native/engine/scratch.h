// A growable array of plain values that is reused from call to call: no initialisation, no shrinking but by release().
#pragma once
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <new>
#include <type_traits>
#include <utility>

namespace toktier {

template <typename T>
class Scratch {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  Scratch() = default;
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  Scratch& operator=(Scratch&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    std::swap(capacity_, other.capacity_);
    return *this;
  }
  Scratch(Scratch&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)),
        size_(std::exchange(other.size_, 0)),
        capacity_(std::exchange(other.capacity_, 0)) {}
  ~Scratch() { std::free(data_); }

  T* data() { return data_; }
  const T* data() const { return data_; }
  std::size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  T& operator[](std::size_t i) { return data_[i]; }
  const T& operator[](std::size_t i) const { return data_[i]; }
  void clear() { size_ = 0; }
  void resize(std::size_t n) {  // new elements are not initialised
    reserve(n);
    size_ = n;
  }
  void reserve(std::size_t n) {
    if (n > capacity_) grow(n);
  }
  // Room for `extra` more elements; write there, then advance().
  T* room(std::size_t extra) {
    reserve(size_ + extra);
    return data_ + size_;
  }
  void advance(std::size_t n) { size_ += n; }
  void push(T value) {
    if (size_ == capacity_) grow(size_ + 1);
    data_[size_++] = value;
  }
  void append(const T* from, std::size_t n) {
    if (n == 0) return;
    std::memcpy(room(n), from, n * sizeof(T));
    size_ += n;
  }
  std::size_t bytes() const { return capacity_ * sizeof(T); }
  void release() {
    std::free(data_);
    data_ = nullptr;
    size_ = capacity_ = 0;
  }

 private:
  void grow(std::size_t n) {
    std::size_t wanted = capacity_ + capacity_ / 2;
    if (wanted < n) wanted = n;
    if (wanted < 64) wanted = 64;
    void* moved = wanted > static_cast<std::size_t>(-1) / sizeof(T) ? nullptr : std::realloc(data_, wanted * sizeof(T));
    if (moved == nullptr) throw std::bad_alloc();
    data_ = static_cast<T*>(moved);
    capacity_ = wanted;
  }

  T* data_ = nullptr;
  std::size_t size_ = 0, capacity_ = 0;
};

}  // namespace toktier
