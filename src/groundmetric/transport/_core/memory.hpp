// Views of arrays that the caller owns, and scratch buffers that this library owns.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <span>

namespace groundmetric {

using Node = std::int32_t;
using Index = std::ptrdiff_t;
using Mass = std::int64_t;

/// A matrix in C order that the caller owns.
template <class T>
struct Matrix {
    T* data;
    Index rows, cols;

    T* row(Index i) const { return data + i * cols; }
    T& operator()(Index i, Index j) const { return data[i * cols + j]; }
    Matrix rows_between(Index low, Index high) const { return {row(low), high - low, cols}; }
};

/// Scratch memory for plain numbers, aligned to cache lines. It grows when needed and is never initialised.
template <class T>
class Buffer {
public:
    std::span<T> of(Index size) {
        if (size > capacity_) {
            numbers_.reset();  // before the allocation: both at a time would double the peak
            capacity_ = 0;
            numbers_.reset(static_cast<T*>(::operator new(static_cast<std::size_t>(size) * sizeof(T), kLine)));
            capacity_ = size;
        }
        return {numbers_.get(), static_cast<std::size_t>(size)};
    }

    std::size_t bytes() const { return static_cast<std::size_t>(capacity_) * sizeof(T); }

private:
    static constexpr std::align_val_t kLine{64};
    struct Free {
        void operator()(T* numbers) const { ::operator delete(numbers, kLine); }
    };
    std::unique_ptr<T[], Free> numbers_;
    Index capacity_ = 0;
};

}  // namespace groundmetric
