// For tests: lets a program plan its graphs with cuDNN's own engines where there is no GPU. It is loaded
// before the program's libraries (LD_PRELOAD) under the name libcuda.so.1, and stands between the program and
// them:
//   * plans are made for the device that PLANNED_SM names, such as 86, by its properties, as cuDNN offers it
//   for
//     compiling ahead of time (its frontend's sample deviceless_aot_compilation.cpp). The engines compile for
//     real, NVRTC and all; what they make is not loaded.
//   * nothing is executed, and "device" memory is ordinary memory, so the program's results mean nothing.
#include <cuda_runtime_api.h>
#include <cudnn.h>
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

namespace {

template <typename Function>
Function* cudnns_own(const char* name, Function*) {
    return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}
#define CUDNNS_OWN(function) cudnns_own(#function, function)

// What an A10 has, but for the compute capability.
std::string properties(const std::string& sm) {
    return R"({"cudaDeviceId": 0, "deviceName": "planned only", "deviceVer": )" + sm + R"(0,
        "driverVer": 13000, "isTccDriver": 0, "l2CacheSize": 6291456, "maxBlockSize": [1024, 1024, 64],
        "maxCtasPerSM": 16, "maxGridSize": [2147483647, 65535, 65535], "maxRegistersPerSM": 65536,
        "maxSharedMemoryPerBlock": 49152, "maxSharedMemoryPerBlockOptin": 101376, "maxThreadsPerBlock": 1024,
        "maxThreadsPerSM": 1536, "memClockRateKHz": 6251000, "memoryBusWidth": 384, "multiProcessorCount": 72,
        "oversizedSharedMemoryPerBlock": 0, "pciDeviceId": 0, "regsPerBlock": 65536,
        "reservedSharedMemoryPerBlock": 1024, "smClockRateKHz": 1695000, "smCountOrigin": 0,
        "supportCoopLaunch": 1, "totalGlobalMem": 23609475072, "warpSize": 32})";
}

cudnnBackendDescriptor_t device() {
    static const cudnnBackendDescriptor_t made = [] {
        const std::string told = properties(std::getenv("PLANNED_SM"));
        cudnnBackendDescriptor_t fresh = nullptr;
        cudnnBackendCreateDescriptor(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, &fresh);
        CUDNNS_OWN(cudnnBackendSetAttribute)
        (fresh, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
         static_cast<int64_t>(told.size() + 1), told.c_str());
        if (cudnnBackendFinalize(fresh) != CUDNN_STATUS_SUCCESS) std::abort();
        return fresh;
    }();
    return made;
}

// A plan as cuDNN itself writes it, engine and knobs and all; what is no plan has no such form.
void print_plan(cudnnBackendDescriptor_t descriptor) {
    const auto json = [&](int64_t room, int64_t& length, char* text) {
        return cudnnBackendGetAttribute(descriptor, CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION,
                                        CUDNN_TYPE_CHAR, room, &length, text);
    };
    int64_t length = 0;
    if (json(0, length, nullptr) != CUDNN_STATUS_SUCCESS) return;
    std::string text(length, '\0');
    if (json(length, length, text.data()) == CUDNN_STATUS_SUCCESS) std::printf("plan %s\n", text.c_str());
}

}  // namespace

extern "C" {

// cuDNN: where a handle is asked for, the device takes its place; heuristics are asked about it.

cudnnStatus_t cudnnCreate(cudnnHandle_t* h) { return *h = nullptr, CUDNN_STATUS_SUCCESS; }
cudnnStatus_t cudnnDestroy(cudnnHandle_t) { return CUDNN_STATUS_SUCCESS; }
cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t count, const void* values) {
    auto* set = CUDNNS_OWN(cudnnBackendSetAttribute);
    const cudnnBackendDescriptor_t properties = device();
    const auto set_device = [&](cudnnBackendAttributeName_t as) {
        return set(descriptor, as, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &properties);
    };
    if (name == CUDNN_ATTR_OPERATIONGRAPH_HANDLE) return CUDNN_STATUS_SUCCESS;
    if (name == CUDNN_ATTR_EXECUTION_PLAN_HANDLE) return set_device(CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP);
    if (name == CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH) {
        const cudnnStatus_t status = set_device(CUDNN_ATTR_ENGINEHEUR_DEVICEPROP);
        if (status != CUDNN_STATUS_SUCCESS) return status;
    }
    return set(descriptor, name, type, count, values);
}
cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t descriptor) {
    const cudnnStatus_t status = CUDNNS_OWN(cudnnBackendFinalize)(descriptor);
    if (status == CUDNN_STATUS_SUCCESS) print_plan(descriptor);
    return status;
}
cudnnStatus_t cudnnBackendExecute(cudnnHandle_t, cudnnBackendDescriptor_t, cudnnBackendDescriptor_t) {
    return CUDNN_STATUS_SUCCESS;
}

// cudart, as the program calls it

cudaError_t cudaGetDeviceCount(int* n) { return *n = 1, cudaSuccess; }
cudaError_t cudaSetDevice(int) { return cudaSuccess; }
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* p, int) { return *p = cudaDeviceProp{}, cudaSuccess; }
cudaError_t cudaRuntimeGetVersion(int* v) { return *v = CUDART_VERSION, cudaSuccess; }
cudaError_t cudaDriverGetVersion(int* v) { return *v = CUDART_VERSION, cudaSuccess; }
cudaError_t cudaMalloc(void** p, size_t n) { return *p = std::malloc(n), cudaSuccess; }
cudaError_t cudaFree(void* p) { return std::free(p), cudaSuccess; }
cudaError_t cudaMemset(void* p, int value, size_t n) { return std::memset(p, value, n), cudaSuccess; }
cudaError_t cudaMemcpy(void* to, const void* from, size_t n, cudaMemcpyKind) {
    return std::memcpy(to, from, n), cudaSuccess;
}

// The driver, as cuDNN 9.10 and 9.27 look it up: it takes every module and has every kernel.

#define DRIVER(name) \
    int name() { return 0; }
#define DRIVER_MAKES(name)        \
    int name(void** made) {       \
        static int thing;         \
        return *made = &thing, 0; \
    }
DRIVER(cuCtxGetCurrent)
DRIVER(cuCtxGetLimit)
DRIVER(cuCtxPopCurrent)
DRIVER(cuCtxPushCurrent)
DRIVER(cuDeviceGet)
DRIVER(cuDeviceGetCount)
DRIVER(cuDriverGetVersion)
DRIVER(cuGetErrorName)
DRIVER(cuGetErrorString)
DRIVER(cuKernelGetAttribute)
DRIVER(cuKernelSetAttribute)
DRIVER(cuLaunchCooperativeKernel)
DRIVER(cuLaunchKernel)
DRIVER(cuLaunchKernelEx)
DRIVER(cuLibraryUnload)
DRIVER(cuLinkAddData)
DRIVER(cuLinkComplete)
DRIVER(cuLinkCreate)
DRIVER(cuLinkDestroy)
DRIVER(cuModuleUnload)
DRIVER(cuOccupancyMaxPotentialClusterSize)
DRIVER(cuStreamGetCtx)
DRIVER(cuStreamGetGreenCtx)
DRIVER(cuTensorMapEncodeIm2col)
DRIVER(cuTensorMapEncodeTiled)
DRIVER_MAKES(cuKernelGetFunction)
DRIVER_MAKES(cuLibraryGetKernel)
DRIVER_MAKES(cuLibraryLoadData)
DRIVER_MAKES(cuLibraryLoadFromFile)
DRIVER_MAKES(cuModuleGetFunction)
DRIVER_MAKES(cuModuleLoadData)
int cuInit() { return 100; }  // no device, for the CUDA runtime inside cuDNN

}  // extern "C"
