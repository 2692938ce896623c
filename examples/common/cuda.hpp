// The groundwork for CUDA and cuDNN: checked calls, owned handles, arrays in GPU memory. Host code only:
// every kernel that runs is one of NVIDIA's libraries', so the plain C++ compiler builds it all.
#pragma once

#include <cuda_runtime_api.h>
#include <cudnn.h>

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

// Throws std::runtime_error: `call` failed, `why`, and the line.
[[noreturn]] void fail(const std::string& call, const std::string& why, const char* file, int line);

// Throws std::runtime_error with the call's name, its status in words, and the line.
void check(cudaError_t status, const char* call, const char* file, int line);
void check(cudnnStatus_t status, const char* call, const char* file, int line);

#define CHECK(call) check((call), #call, __FILE__, __LINE__)

// A class that creates a handle or descriptor, converts to it, and destroys it in the end. A macro, so that a
// failure names `create`.
#define OWNED(Name, Handle, create, destroy)        \
    class Name {                                    \
    public:                                         \
        Name() { CHECK(create(&handle_)); }         \
        ~Name() { destroy(handle_); }               \
        Name(const Name&) = delete;                 \
        Name& operator=(const Name&) = delete;      \
        operator Handle() const { return handle_; } \
                                                    \
    private:                                        \
        Handle handle_ = nullptr;                   \
    }

OWNED(Cudnn, cudnnHandle_t, cudnnCreate, cudnnDestroy);

// The first GPU, chosen before anything else is created. Throws NoDevice where there is none.
class Device {
public:
    Device();
};

using Platform = std::vector<std::pair<std::string, std::string>>;

// Names and versions of the device, CUDA and cuDNN.
Platform platform();
// cuDNN and cuBLAS count 10000 a major version, 100 a minor one.
std::string library_version(std::size_t version);

// An array in GPU memory, filled with zero bytes at first.
template <typename T>
class Array {
public:
    explicit Array(std::size_t count) : count_(count) {
        CHECK(cudaMalloc(reinterpret_cast<void**>(&data_), bytes()));
        clear();
    }
    explicit Array(const std::vector<T>& values) : Array(values.size()) { upload(values); }
    ~Array() { cudaFree(data_); }
    Array(const Array&) = delete;
    Array& operator=(const Array&) = delete;

    T* data() { return data_; }
    const T* data() const { return data_; }
    std::size_t bytes() const { return count_ * sizeof(T); }
    int count() const { return static_cast<int>(count_); }

    void clear() {
        if (count_ > 0) CHECK(cudaMemset(data_, 0, bytes()));
    }
    void upload(const std::vector<T>& values) {
        CHECK(cudaMemcpy(data_, values.data(), bytes(), cudaMemcpyHostToDevice));
    }
    std::vector<T> download() const {
        std::vector<T> values(count_);
        CHECK(cudaMemcpy(values.data(), data_, bytes(), cudaMemcpyDeviceToHost));
        return values;
    }

private:
    std::size_t count_;
    T* data_ = nullptr;
};

using Floats = Array<float>;
