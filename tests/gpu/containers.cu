// One object of the library of containers.py. KERNEL names it; every one is large enough that a slice frees pages.
#include <cuda_runtime.h>

namespace {

constexpr int kSteps = 2048;

__global__ void work(float* value) {
    float x = *value;
#pragma unroll
    for (int i = 0; i < kSteps; ++i) x = fmaf(x, 0.5f, static_cast<float>(i) * 0.25f);
    *value = x;
}

int launch(float* result) {
    float* value = nullptr;
    cudaError_t status = cudaMalloc(&value, sizeof *value);
    if (status == cudaSuccess) status = cudaMemset(value, 0, sizeof *value);
    if (status == cudaSuccess) {
        work<<<1, 1>>>(value);
        status = cudaGetLastError();
    }
    if (status == cudaSuccess) status = cudaMemcpy(result, value, sizeof *value, cudaMemcpyDeviceToHost);
    cudaFree(value);
    return status;
}

}  // namespace

extern "C" int KERNEL(float* result) { return launch(result); }
