#include "cuda.hpp"

#include <stdexcept>

#include "learn.hpp"

namespace {

// CUDA counts 1000 a major version, 10 a minor one.
std::string cuda_version(int version) {
    return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

}  // namespace

void fail(const std::string& call, const std::string& why, const char* file, int line) {
    const std::string name = call.substr(0, call.find('('));
    throw std::runtime_error(name + " failed: " + why + " (" + file + ":" + std::to_string(line) + ")");
}

void check(cudaError_t status, const char* call, const char* file, int line) {
    if (status != cudaSuccess) fail(call, cudaGetErrorString(status), file, line);
}

void check(cudnnStatus_t status, const char* call, const char* file, int line) {
    if (status != CUDNN_STATUS_SUCCESS) fail(call, cudnnGetErrorString(status), file, line);
}

Device::Device() {
    int count = 0;
    const cudaError_t status = cudaGetDeviceCount(&count);
    if (status != cudaSuccess) throw NoDevice(std::string("no CUDA device: ") + cudaGetErrorString(status));
    if (count == 0) throw NoDevice("no CUDA device: the driver offers none");
    CHECK(cudaSetDevice(0));
}

std::string library_version(std::size_t version) {
    return std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
           std::to_string(version % 100);
}

Platform platform() {
    cudaDeviceProp properties;
    int runtime = 0;
    int driver = 0;
    CHECK(cudaGetDeviceProperties(&properties, 0));
    CHECK(cudaRuntimeGetVersion(&runtime));
    CHECK(cudaDriverGetVersion(&driver));
    const std::string capability = std::to_string(properties.major) + "." + std::to_string(properties.minor);
    return {
        {"device", std::string(properties.name) + ", compute capability " + capability},
        {"CUDA", "runtime " + cuda_version(runtime) + ", driver for " + cuda_version(driver)},
        {"cuDNN", library_version(cudnnGetVersion())},
    };
}
