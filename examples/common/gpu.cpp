#include "gpu.hpp"

void check(cublasStatus_t status, const char* call, const char* file, int line) {
    if (status != CUBLAS_STATUS_SUCCESS) fail(call, cublasGetStatusString(status), file, line);
}

Platform Gpu::platform() const {
    int version = 0;
    CHECK(cublasGetVersion(cublas, &version));
    Platform found = ::platform();
    found.emplace_back("cuBLAS", library_version(static_cast<std::size_t>(version)));
    return found;
}
