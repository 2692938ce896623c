// A GPU with cuDNN and cuBLAS.
#pragma once

#include <cublas_v2.h>

#include "cuda.hpp"

void check(cublasStatus_t status, const char* call, const char* file, int line);

OWNED(Cublas, cublasHandle_t, cublasCreate, cublasDestroy);
OWNED(TensorDescriptor, cudnnTensorDescriptor_t, cudnnCreateTensorDescriptor, cudnnDestroyTensorDescriptor);

struct Gpu {
    Device device;
    Cudnn cudnn;
    Cublas cublas;

    // Names and versions of device and libraries.
    Platform platform() const;
};
