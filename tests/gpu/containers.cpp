// Launches the kernels of the library of containers.py, and tells how each launch ended. Exit 0 when the one that is
// made for every GPU ran, 1 when not.
#include <cuda_runtime.h>

#include <cstdio>

extern "C" {
int everywhere(float* result);
int elsewhere_a(float* result);
int elsewhere_b(float* result);
}

namespace {

cudaError_t tell(const char* name, int (*launch)(float*)) {
    float result = -1;
    const auto status = static_cast<cudaError_t>(launch(&result));
    std::printf("%-12s %d %s, result %.6f\n", name, status, cudaGetErrorString(status), result);
    return status;
}

}  // namespace

int main() {
    tell("elsewhere_a", elsewhere_a);
    const cudaError_t status = tell("everywhere", everywhere);
    tell("elsewhere_b", elsewhere_b);
    if (status == cudaSuccess) return 0;
    std::fprintf(stderr, "everywhere failed: %s\n", cudaGetErrorString(status));
    return 1;
}
