// Anonymous memory: big, zeroed, committed on first touch, huge pages where the system gives them.
#pragma once
#include <cstddef>
#include <cstdint>

namespace paceline {

// Owns one anonymous mapping; `data` is aligned to 2 MiB. Throws std::bad_alloc when the system refuses.
class Mapping {
 public:
  Mapping() = default;
  explicit Mapping(size_t bytes);
  ~Mapping();
  Mapping(Mapping&& other) noexcept;
  Mapping& operator=(Mapping&& other) noexcept;
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  uint8_t* data() const { return data_; }
  size_t bytes() const { return bytes_; }

 private:
  void* mapped_ = nullptr;
  size_t mapped_bytes_ = 0;
  uint8_t* data_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace paceline
