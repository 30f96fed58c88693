#include "runtime/memory.h"

#include <sys/mman.h>

#include <new>
#include <utility>

namespace paceline {
namespace {
constexpr size_t kHugePage = size_t{2} << 20;
}  // namespace

Mapping::Mapping(size_t bytes) : bytes_(bytes) {
  if (bytes > SIZE_MAX / 2) throw std::bad_alloc();
  mapped_bytes_ = bytes + kHugePage;
  mapped_ = mmap(nullptr, mapped_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped_ == MAP_FAILED) {
    mapped_ = nullptr;
    throw std::bad_alloc();
  }
  const auto address = reinterpret_cast<uintptr_t>(mapped_);
  data_ = reinterpret_cast<uint8_t*>((address + kHugePage - 1) / kHugePage * kHugePage);
#ifdef MADV_HUGEPAGE
  if (bytes >= kHugePage) madvise(data_, bytes, MADV_HUGEPAGE);  // advice only: refusal costs speed, nothing else
#endif
}

Mapping::~Mapping() {
  if (mapped_ != nullptr) munmap(mapped_, mapped_bytes_);
}

Mapping::Mapping(Mapping&& other) noexcept
    : mapped_(std::exchange(other.mapped_, nullptr)),
      mapped_bytes_(std::exchange(other.mapped_bytes_, 0)),
      data_(std::exchange(other.data_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)) {}

Mapping& Mapping::operator=(Mapping&& other) noexcept {
  std::swap(mapped_, other.mapped_);
  std::swap(mapped_bytes_, other.mapped_bytes_);
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

}  // namespace paceline
