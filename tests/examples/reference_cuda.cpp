// A reference implementation for tests, on the CPU, of the few calls of cudart, cuBLAS and cuDNN that the
// examples make. It lets their tests run the real executables where there is no GPU; it is made to be read,
// not to be fast, and knows only the layouts and modes that the examples use. "Device" memory is ordinary
// memory.
//
// reference_cudnn_graph.cpp is the other half: cuDNN's graph API.
//
// Environment: REFERENCE_DEVICES=0 takes the GPU away; REFERENCE_FAILS=cudnnSoftmaxForward lets that call
// fail.
#include <cublas_v2.h>
#include <cuda_runtime_api.h>
#include <cudnn.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <vector>

struct cublasContext {};
struct cudnnContext {};
struct cudnnDropoutStruct {};
struct cudnnActivationStruct {};
struct cudnnPoolingStruct {};
struct cudnnTensorStruct {
    int n, c, h, w;
};
struct cudnnFilterStruct {
    int k, c, h, w;
};
struct cudnnConvolutionStruct {
    int padding;
};
struct cudnnRNNStruct {
    int inputs, hidden;
};
struct cudnnRNNDataStruct {
    int steps, batch, size;
};

namespace {

bool environment_is(const char* name, const char* value) {
    const char* actual = std::getenv(name);
    return actual != nullptr && std::strcmp(actual, value) == 0;
}

template <typename T>
const float* floats(const T* p) {
    return static_cast<const float*>(p);
}
float* floats(void* p) { return static_cast<float*>(p); }

int count(cudnnTensorDescriptor_t t) { return t->n * t->c * t->h * t->w; }

// cuDNN's result = alpha * value + beta * result; with beta 0 the old result, perhaps a NaN, does not count.
void blend(float& result, const void* alpha, float value, const void* beta) {
    const float keep = *floats(beta);
    result = *floats(alpha) * value + (keep == 0 ? 0 : keep * result);
}

// Calls visit(x index, w index, y index) for each product in a convolution.
template <typename Visit>
void convolve(cudnnTensorDescriptor_t x, cudnnFilterDescriptor_t w, cudnnConvolutionDescriptor_t c,
              cudnnTensorDescriptor_t y, Visit visit) {
    for (int n = 0; n < y->n; ++n)
        for (int k = 0; k < w->k; ++k)
            for (int ch = 0; ch < w->c; ++ch)
                for (int r = 0; r < w->h; ++r)
                    for (int s = 0; s < w->w; ++s)
                        for (int i = std::max(0, c->padding - r); i < std::min(y->h, x->h + c->padding - r);
                             ++i)
                            for (int j = std::max(0, c->padding - s);
                                 j < std::min(y->w, x->w + c->padding - s); ++j)
                                visit(
                                    ((n * x->c + ch) * x->h + i + r - c->padding) * x->w + j + s - c->padding,
                                    ((k * w->c + ch) * w->h + r) * w->w + s,
                                    ((n * y->c + k) * y->h + i) * y->w + j);
}

void finish(const std::vector<float>& sums, const void* alpha, const void* beta, void* result) {
    for (std::size_t i = 0; i < sums.size(); ++i) blend(floats(result)[i], alpha, sums[i], beta);
}

template <typename Candidate, typename Algorithm>
cudnnStatus_t one_candidate(int limit, int* found, Candidate* list, Algorithm algorithm) {
    if (limit < 2) return CUDNN_STATUS_BAD_PARAM;
    list[0] = Candidate{};
    list[0].status = CUDNN_STATUS_NOT_SUPPORTED;
    list[1] = Candidate{};
    list[1].algo = algorithm;
    list[1].status = CUDNN_STATUS_SUCCESS;
    list[1].determinism = CUDNN_DETERMINISTIC;
    *found = 2;
    return CUDNN_STATUS_SUCCESS;
}

float sigmoid(float x) { return 1 / (1 + std::exp(-x)); }

// LSTM weights: input matrix, recurrent matrix, two biases; the gates' rows in cuDNN's order i, f, g, o.
std::size_t weight_count(cudnnRNNDescriptor_t r) { return 4UL * r->hidden * (r->inputs + r->hidden + 2); }

template <typename T>
struct Lstm {
    Lstm(cudnnRNNDescriptor_t r, T* space)
        : inputs(space),
          recurrent(inputs + 4 * r->hidden * r->inputs),
          bias1(recurrent + 4 * r->hidden * r->hidden),
          bias2(bias1 + 4 * r->hidden) {}
    T *inputs, *recurrent, *bias1, *bias2;
};

// The reserve space keeps four gates and the cell state of each step, and later the gates' gradients.
constexpr int kKept = 5;
std::size_t reserve_bytes(cudnnRNNDescriptor_t r, cudnnRNNDataDescriptor_t x) {
    return sizeof(float) * x->steps * x->batch * kKept * r->hidden;
}

float dot(const float* a, const float* b, int n) {
    float sum = 0;
    for (int i = 0; i < n; ++i) sum += a[i] * b[i];
    return sum;
}

void add(float* result, float factor, const float* values, int n) {
    for (int i = 0; i < n; ++i) result[i] += factor * values[i];
}

}  // namespace

extern "C" {

// cudart

cudaError_t cudaGetDeviceCount(int* n) {
    *n = environment_is("REFERENCE_DEVICES", "0") ? 0 : 1;
    return *n == 0 ? cudaErrorNoDevice : cudaSuccess;
}
cudaError_t cudaSetDevice(int) { return cudaSuccess; }
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* p, int) {
    *p = cudaDeviceProp{};
    std::strcpy(p->name, "reference implementation on the CPU");
    return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* v) { return *v = CUDART_VERSION, cudaSuccess; }
cudaError_t cudaDriverGetVersion(int* v) { return *v = CUDART_VERSION, cudaSuccess; }
const char* cudaGetErrorString(cudaError_t e) {
    return e == cudaErrorNoDevice ? "no CUDA-capable device is detected" : "reference error";
}
cudaError_t cudaMalloc(void** p, size_t n) {
    *p = std::malloc(n);
    std::memset(*p, 0xff, n);  // NaNs, as a reminder to write before reading
    return cudaSuccess;
}
cudaError_t cudaFree(void* p) { return std::free(p), cudaSuccess; }
cudaError_t cudaMemset(void* p, int value, size_t n) { return std::memset(p, value, n), cudaSuccess; }
cudaError_t cudaMemcpy(void* to, const void* from, size_t n, cudaMemcpyKind) {
    return std::memcpy(to, from, n), cudaSuccess;
}

// cuBLAS: matrices are column by column

cublasStatus_t cublasCreate(cublasHandle_t* h) { return *h = new cublasContext, CUBLAS_STATUS_SUCCESS; }
cublasStatus_t cublasDestroy(cublasHandle_t h) { return delete h, CUBLAS_STATUS_SUCCESS; }
cublasStatus_t cublasGetVersion(cublasHandle_t, int* v) { return *v = CUBLAS_VERSION, CUBLAS_STATUS_SUCCESS; }
const char* cublasGetStatusString(cublasStatus_t) { return "reference error"; }
cublasStatus_t cublasSscal(cublasHandle_t, int n, const float* a, float* x, int) {
    for (int i = 0; i < n; ++i) x[i] *= *a;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSaxpy(cublasHandle_t, int n, const float* a, const float* x, int, float* y, int) {
    return add(y, *a, x, n), CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSger(cublasHandle_t, int m, int n, const float* alpha, const float* x, int,
                          const float* y, int, float* a, int lda) {
    for (int j = 0; j < n; ++j) add(a + j * lda, *alpha * y[j], x, m);
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSgemm(cublasHandle_t, cublasOperation_t ta, cublasOperation_t tb, int m, int n, int k,
                           const float* alpha, const float* a, int lda, const float* b, int ldb,
                           const float* beta, float* c, int ldc) {
    for (int j = 0; j < n; ++j)
        for (int i = 0; i < m; ++i) {
            float sum = 0;
            for (int l = 0; l < k; ++l)
                sum += a[ta == CUBLAS_OP_N ? i + l * lda : l + i * lda] *
                       b[tb == CUBLAS_OP_N ? l + j * ldb : j + l * ldb];
            blend(c[i + j * ldc], alpha, sum, beta);
        }
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSgemv(cublasHandle_t h, cublasOperation_t t, int m, int n, const float* alpha,
                           const float* a, int lda, const float* x, int, const float* beta, float* y, int) {
    const bool plain = t == CUBLAS_OP_N;
    return cublasSgemm(h, t, CUBLAS_OP_N, plain ? m : n, 1, plain ? n : m, alpha, a, lda, x, plain ? n : m,
                       beta, y, plain ? m : n);
}

// cuDNN: handles and descriptors

size_t cudnnGetVersion() { return CUDNN_VERSION; }
const char* cudnnGetErrorString(cudnnStatus_t status) {
    return status == CUDNN_STATUS_EXECUTION_FAILED ? "CUDNN_STATUS_EXECUTION_FAILED"
                                                   : "CUDNN_STATUS_BAD_PARAM";
}
#define REFERENCE_LIFE(create, destroy, Struct)                                          \
    cudnnStatus_t create(Struct** p) { return *p = new Struct{}, CUDNN_STATUS_SUCCESS; } \
    cudnnStatus_t destroy(Struct* p) { return delete p, CUDNN_STATUS_SUCCESS; }
REFERENCE_LIFE(cudnnCreate, cudnnDestroy, cudnnContext)
REFERENCE_LIFE(cudnnCreateTensorDescriptor, cudnnDestroyTensorDescriptor, cudnnTensorStruct)
REFERENCE_LIFE(cudnnCreateFilterDescriptor, cudnnDestroyFilterDescriptor, cudnnFilterStruct)
REFERENCE_LIFE(cudnnCreateConvolutionDescriptor, cudnnDestroyConvolutionDescriptor, cudnnConvolutionStruct)
REFERENCE_LIFE(cudnnCreatePoolingDescriptor, cudnnDestroyPoolingDescriptor, cudnnPoolingStruct)
REFERENCE_LIFE(cudnnCreateActivationDescriptor, cudnnDestroyActivationDescriptor, cudnnActivationStruct)
REFERENCE_LIFE(cudnnCreateDropoutDescriptor, cudnnDestroyDropoutDescriptor, cudnnDropoutStruct)
REFERENCE_LIFE(cudnnCreateRNNDescriptor, cudnnDestroyRNNDescriptor, cudnnRNNStruct)
REFERENCE_LIFE(cudnnCreateRNNDataDescriptor, cudnnDestroyRNNDataDescriptor, cudnnRNNDataStruct)

cudnnStatus_t cudnnSetTensor4dDescriptor(cudnnTensorDescriptor_t t, cudnnTensorFormat_t, cudnnDataType_t,
                                         int n, int c, int h, int w) {
    return *t = {n, c, h, w}, CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetTensorNdDescriptor(cudnnTensorDescriptor_t t, cudnnDataType_t, int rank,
                                         const int size[], const int[]) {
    if (rank != 3) return CUDNN_STATUS_BAD_PARAM;
    return *t = {size[0], size[1], size[2], 1}, CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetFilter4dDescriptor(cudnnFilterDescriptor_t f, cudnnDataType_t, cudnnTensorFormat_t,
                                         int k, int c, int h, int w) {
    return *f = {k, c, h, w}, CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetConvolution2dDescriptor(cudnnConvolutionDescriptor_t c, int padding, int, int, int, int,
                                              int, cudnnConvolutionMode_t mode, cudnnDataType_t) {
    if (mode != CUDNN_CROSS_CORRELATION) return CUDNN_STATUS_BAD_PARAM;
    return *c = {padding}, CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetPooling2dDescriptor(cudnnPoolingDescriptor_t, cudnnPoolingMode_t, cudnnNanPropagation_t,
                                          int, int, int, int, int, int) {
    return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetActivationDescriptor(cudnnActivationDescriptor_t, cudnnActivationMode_t mode,
                                           cudnnNanPropagation_t, double) {
    return mode == CUDNN_ACTIVATION_RELU ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_BAD_PARAM;
}
cudnnStatus_t cudnnSetDropoutDescriptor(cudnnDropoutDescriptor_t, cudnnHandle_t, float rate, void*, size_t,
                                        unsigned long long) {
    return rate == 0 ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_BAD_PARAM;
}

// cuDNN: one operation after the other

cudnnStatus_t cudnnAddTensor(cudnnHandle_t, const void* alpha, cudnnTensorDescriptor_t a, const void* bias,
                             const void* beta, cudnnTensorDescriptor_t y, void* result) {
    for (int i = 0; i < count(y); ++i) {
        float& value = floats(result)[i];
        value = *floats(alpha) * floats(bias)[i / (y->h * y->w) % a->c] + *floats(beta) * value;
    }
    return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSoftmaxForward(cudnnHandle_t, cudnnSoftmaxAlgorithm_t, cudnnSoftmaxMode_t,
                                  const void* alpha, cudnnTensorDescriptor_t t, const void* x,
                                  const void* beta, cudnnTensorDescriptor_t, void* y) {
    if (environment_is("REFERENCE_FAILS", "cudnnSoftmaxForward")) return CUDNN_STATUS_EXECUTION_FAILED;
    for (const float* row = floats(x); row < floats(x) + count(t); row += t->c) {
        const float largest = *std::max_element(row, row + t->c);
        float sum = 0;
        for (int i = 0; i < t->c; ++i) sum += std::exp(row[i] - largest);
        for (int i = 0; i < t->c; ++i)
            blend(floats(y)[row - floats(x) + i], alpha, std::exp(row[i] - largest) / sum, beta);
    }
    return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnActivationForward(cudnnHandle_t, cudnnActivationDescriptor_t, const void* alpha,
                                     cudnnTensorDescriptor_t t, const void* x, const void* beta,
                                     cudnnTensorDescriptor_t, void* y) {
    for (int i = 0; i < count(t); ++i) blend(floats(y)[i], alpha, std::max(floats(x)[i], 0.0F), beta);
    return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnActivationBackward(cudnnHandle_t, cudnnActivationDescriptor_t, const void* alpha,
                                      cudnnTensorDescriptor_t, const void*, cudnnTensorDescriptor_t,
                                      const void* dy, cudnnTensorDescriptor_t t, const void* x,
                                      const void* beta, cudnnTensorDescriptor_t, void* dx) {
    for (int i = 0; i < count(t); ++i)
        blend(floats(dx)[i], alpha, floats(x)[i] > 0 ? floats(dy)[i] : 0.0F, beta);
    return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnPoolingForward(cudnnHandle_t, cudnnPoolingDescriptor_t, const void* alpha,
                                  cudnnTensorDescriptor_t t, const void* x, const void* beta,
                                  cudnnTensorDescriptor_t u, void* y) {
    for (int i = 0; i < count(u); ++i) {
        const float* corner = floats(x) + i / u->w * 2 * t->w + i % u->w * 2;  // plane and row: i / u->w
        const float largest = std::max({corner[0], corner[1], corner[t->w], corner[t->w + 1]});
        blend(floats(y)[i], alpha, largest, beta);
    }
    return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnPoolingBackward(cudnnHandle_t, cudnnPoolingDescriptor_t, const void* alpha,
                                   cudnnTensorDescriptor_t u, const void* y, cudnnTensorDescriptor_t,
                                   const void* dy, cudnnTensorDescriptor_t t, const void* x, const void* beta,
                                   cudnnTensorDescriptor_t, void* dx) {
    std::vector<float> sums(count(t));
    for (int i = 0; i < count(u); ++i) {
        const int corner = i / u->w * 2 * t->w + i % u->w * 2;
        for (const int place : {corner, corner + 1, corner + t->w, corner + t->w + 1}) {
            if (floats(x)[place] != floats(y)[i]) continue;
            sums[place] = floats(dy)[i];
            break;
        }
    }
    return finish(sums, alpha, beta, dx), CUDNN_STATUS_SUCCESS;
}

// cuDNN: convolution

cudnnStatus_t cudnnGetConvolutionForwardAlgorithm_v7(cudnnHandle_t, cudnnTensorDescriptor_t,
                                                     cudnnFilterDescriptor_t, cudnnConvolutionDescriptor_t,
                                                     cudnnTensorDescriptor_t, int limit, int* found,
                                                     cudnnConvolutionFwdAlgoPerf_t* list) {
    return one_candidate(limit, found, list, CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM);
}
cudnnStatus_t cudnnGetConvolutionBackwardFilterAlgorithm_v7(cudnnHandle_t, cudnnTensorDescriptor_t,
                                                            cudnnTensorDescriptor_t,
                                                            cudnnConvolutionDescriptor_t,
                                                            cudnnFilterDescriptor_t, int limit, int* found,
                                                            cudnnConvolutionBwdFilterAlgoPerf_t* list) {
    return one_candidate(limit, found, list, CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1);
}
cudnnStatus_t cudnnGetConvolutionBackwardDataAlgorithm_v7(cudnnHandle_t, cudnnFilterDescriptor_t,
                                                          cudnnTensorDescriptor_t,
                                                          cudnnConvolutionDescriptor_t,
                                                          cudnnTensorDescriptor_t, int limit, int* found,
                                                          cudnnConvolutionBwdDataAlgoPerf_t* list) {
    return one_candidate(limit, found, list, CUDNN_CONVOLUTION_BWD_DATA_ALGO_1);
}
cudnnStatus_t cudnnGetConvolutionForwardWorkspaceSize(cudnnHandle_t, cudnnTensorDescriptor_t,
                                                      cudnnFilterDescriptor_t, cudnnConvolutionDescriptor_t,
                                                      cudnnTensorDescriptor_t, cudnnConvolutionFwdAlgo_t,
                                                      size_t* n) {
    return *n = 0, CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnGetConvolutionBackwardFilterWorkspaceSize(cudnnHandle_t, cudnnTensorDescriptor_t,
                                                             cudnnTensorDescriptor_t,
                                                             cudnnConvolutionDescriptor_t,
                                                             cudnnFilterDescriptor_t,
                                                             cudnnConvolutionBwdFilterAlgo_t, size_t* n) {
    return *n = 64, CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnGetConvolutionBackwardDataWorkspaceSize(cudnnHandle_t, cudnnFilterDescriptor_t,
                                                           cudnnTensorDescriptor_t,
                                                           cudnnConvolutionDescriptor_t,
                                                           cudnnTensorDescriptor_t,
                                                           cudnnConvolutionBwdDataAlgo_t, size_t* n) {
    return *n = 16, CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnConvolutionForward(cudnnHandle_t, const void* alpha, cudnnTensorDescriptor_t xt,
                                      const void* x, cudnnFilterDescriptor_t wf, const void* w,
                                      cudnnConvolutionDescriptor_t c, cudnnConvolutionFwdAlgo_t algorithm,
                                      void*, size_t, const void* beta, cudnnTensorDescriptor_t yt, void* y) {
    if (algorithm != CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM) return CUDNN_STATUS_BAD_PARAM;
    std::vector<float> sums(count(yt));
    convolve(xt, wf, c, yt, [&](int i, int j, int k) { sums[k] += floats(x)[i] * floats(w)[j]; });
    return finish(sums, alpha, beta, y), CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnConvolutionBackwardFilter(cudnnHandle_t, const void* alpha, cudnnTensorDescriptor_t xt,
                                             const void* x, cudnnTensorDescriptor_t yt, const void* dy,
                                             cudnnConvolutionDescriptor_t c,
                                             cudnnConvolutionBwdFilterAlgo_t algorithm, void*, size_t space,
                                             const void* beta, cudnnFilterDescriptor_t wf, void* dw) {
    if (algorithm != CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1 || space < 64) return CUDNN_STATUS_BAD_PARAM;
    std::vector<float> sums(wf->k * wf->c * wf->h * wf->w);
    convolve(xt, wf, c, yt, [&](int i, int j, int k) { sums[j] += floats(x)[i] * floats(dy)[k]; });
    return finish(sums, alpha, beta, dw), CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnConvolutionBackwardData(cudnnHandle_t, const void* alpha, cudnnFilterDescriptor_t wf,
                                           const void* w, cudnnTensorDescriptor_t yt, const void* dy,
                                           cudnnConvolutionDescriptor_t c,
                                           cudnnConvolutionBwdDataAlgo_t algorithm, void*, size_t space,
                                           const void* beta, cudnnTensorDescriptor_t xt, void* dx) {
    if (algorithm != CUDNN_CONVOLUTION_BWD_DATA_ALGO_1 || space < 16) return CUDNN_STATUS_BAD_PARAM;
    std::vector<float> sums(count(xt));
    convolve(xt, wf, c, yt, [&](int i, int j, int k) { sums[i] += floats(w)[j] * floats(dy)[k]; });
    return finish(sums, alpha, beta, dx), CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnConvolutionBackwardBias(cudnnHandle_t, const void* alpha, cudnnTensorDescriptor_t yt,
                                           const void* dy, const void* beta, cudnnTensorDescriptor_t bt,
                                           void* db) {
    std::vector<float> sums(bt->c);
    for (int i = 0; i < count(yt); ++i) sums[i / (yt->h * yt->w) % yt->c] += floats(dy)[i];
    return finish(sums, alpha, beta, db), CUDNN_STATUS_SUCCESS;
}

// cuDNN: LSTM, batch x steps x size; states begin at zero

cudnnStatus_t cudnnSetRNNDescriptor_v8(cudnnRNNDescriptor_t r, cudnnRNNAlgo_t, cudnnRNNMode_t mode,
                                       cudnnRNNBiasMode_t bias, cudnnDirectionMode_t, cudnnRNNInputMode_t,
                                       cudnnDataType_t, cudnnDataType_t, cudnnMathType_t, int32_t inputs,
                                       int32_t hidden, int32_t projection, int32_t layers,
                                       cudnnDropoutDescriptor_t, uint32_t flags) {
    const bool known = mode == CUDNN_LSTM && bias == CUDNN_RNN_DOUBLE_BIAS && layers == 1 &&
                       projection == hidden && flags == CUDNN_RNN_PADDED_IO_ENABLED;
    return *r = {inputs, hidden}, known ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_BAD_PARAM;
}
cudnnStatus_t cudnnSetRNNDataDescriptor(cudnnRNNDataDescriptor_t d, cudnnDataType_t,
                                        cudnnRNNDataLayout_t layout, int steps, int batch, int size,
                                        const int lengths[], void*) {
    const bool known = layout == CUDNN_RNN_DATA_LAYOUT_BATCH_MAJOR_UNPACKED &&
                       std::all_of(lengths, lengths + batch, [&](int length) { return length == steps; });
    return *d = {steps, batch, size}, known ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_BAD_PARAM;
}
cudnnStatus_t cudnnGetRNNWeightSpaceSize(cudnnHandle_t, cudnnRNNDescriptor_t r, size_t* n) {
    return *n = sizeof(float) * weight_count(r), CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnGetRNNTempSpaceSizes(cudnnHandle_t, cudnnRNNDescriptor_t r, cudnnForwardMode_t mode,
                                        cudnnRNNDataDescriptor_t x, size_t* work, size_t* reserve) {
    *work = 16;
    *reserve = mode == CUDNN_FWD_MODE_TRAINING ? reserve_bytes(r, x) : 0;
    return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnRNNForward(cudnnHandle_t, cudnnRNNDescriptor_t r, cudnnForwardMode_t mode, const int32_t[],
                              cudnnRNNDataDescriptor_t xd, const void* x, cudnnRNNDataDescriptor_t, void* y,
                              cudnnTensorDescriptor_t, const void* hx, void* hy, cudnnTensorDescriptor_t,
                              const void* cx, void*, size_t weights_bytes, const void* weights, size_t work,
                              void*, size_t kept_bytes, void* kept) {
    const bool train = mode == CUDNN_FWD_MODE_TRAINING;
    if (hx != nullptr || cx != nullptr || work < 16 || weights_bytes != sizeof(float) * weight_count(r) ||
        kept_bytes != (train ? reserve_bytes(r, xd) : 0))
        return CUDNN_STATUS_BAD_PARAM;
    const int H = r->hidden;
    const Lstm<const float> w(r, floats(weights));
    std::vector<float> spare(kKept * H);
    std::vector<float> h(H), c(H);
    for (int b = 0; b < xd->batch; ++b) {
        std::fill(h.begin(), h.end(), 0.0F);
        std::fill(c.begin(), c.end(), 0.0F);
        for (int t = 0; t < xd->steps; ++t) {
            const int place = b * xd->steps + t;
            const float* input = floats(x) + place * r->inputs;
            float* gates = train ? floats(kept) + place * kKept * H : spare.data();
            for (int g = 0; g < 4 * H; ++g) {
                const float sum = dot(w.inputs + g * r->inputs, input, r->inputs) +
                                  dot(w.recurrent + g * H, h.data(), H) + w.bias1[g] + w.bias2[g];
                gates[g] = g / H == 2 ? std::tanh(sum) : sigmoid(sum);
            }
            for (int i = 0; i < H; ++i) {
                c[i] = gates[H + i] * c[i] + gates[i] * gates[2 * H + i];
                gates[4 * H + i] = c[i];
                h[i] = gates[3 * H + i] * std::tanh(c[i]);
            }
            std::copy(h.begin(), h.end(), floats(y) + place * H);
        }
        std::copy(h.begin(), h.end(), floats(hy) + b * H);
    }
    return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnRNNBackwardData_v8(cudnnHandle_t, cudnnRNNDescriptor_t r, const int32_t[],
                                      cudnnRNNDataDescriptor_t, const void*, const void* dy,
                                      cudnnRNNDataDescriptor_t xd, void* dx, cudnnTensorDescriptor_t,
                                      const void*, const void* dhy, void*, cudnnTensorDescriptor_t,
                                      const void*, const void* dcy, void*, size_t, const void* weights,
                                      size_t work, void*, size_t kept_bytes, void* kept) {
    if (dcy != nullptr || work < 16 || kept_bytes != reserve_bytes(r, xd)) return CUDNN_STATUS_BAD_PARAM;
    const int H = r->hidden;
    const Lstm<const float> w(r, floats(weights));
    for (int b = 0; b < xd->batch; ++b) {
        std::vector<float> dh(floats(dhy) + b * H, floats(dhy) + (b + 1) * H), dc(H);
        for (int t = xd->steps - 1; t >= 0; --t) {
            const int place = b * xd->steps + t;
            float* gates = floats(kept) + place * kKept * H;
            add(dh.data(), 1, floats(dy) + place * H, H);
            for (int n = 0; n < H; ++n) {
                float &i = gates[n], &f = gates[H + n], &g = gates[2 * H + n], &o = gates[3 * H + n];
                const float squashed = std::tanh(gates[4 * H + n]);
                const float before = t == 0 ? 0 : gates[4 * H + n - kKept * H];
                const float d = dc[n] + dh[n] * o * (1 - squashed * squashed);
                dc[n] = d * f;
                const float di = d * g * i * (1 - i), dg = d * i * (1 - g * g);
                f = d * before * f * (1 - f);
                o = dh[n] * squashed * o * (1 - o);
                i = di;
                g = dg;
            }
            std::fill(dh.begin(), dh.end(), 0.0F);
            float* dinput = floats(dx) + place * r->inputs;
            std::fill(dinput, dinput + r->inputs, 0.0F);
            for (int g = 0; g < 4 * H; ++g) {
                add(dh.data(), gates[g], w.recurrent + g * H, H);
                add(dinput, gates[g], w.inputs + g * r->inputs, r->inputs);
            }
        }
    }
    return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnRNNBackwardWeights_v8(cudnnHandle_t, cudnnRNNDescriptor_t r, cudnnWgradMode_t mode,
                                         const int32_t[], cudnnRNNDataDescriptor_t xd, const void* x,
                                         cudnnTensorDescriptor_t, const void*, cudnnRNNDataDescriptor_t,
                                         const void* y, size_t, void* gradient, size_t, void*,
                                         size_t kept_bytes, void* kept) {
    if (mode != CUDNN_WGRAD_MODE_ADD || kept_bytes != reserve_bytes(r, xd)) return CUDNN_STATUS_BAD_PARAM;
    const int H = r->hidden;
    const Lstm<float> dw(r, floats(gradient));
    for (int place = 0; place < xd->batch * xd->steps; ++place) {
        const float* gates = floats(kept) + place * kKept * H;
        for (int g = 0; g < 4 * H; ++g) {
            add(dw.inputs + g * r->inputs, gates[g], floats(x) + place * r->inputs, r->inputs);
            if (place % xd->steps > 0) add(dw.recurrent + g * H, gates[g], floats(y) + (place - 1) * H, H);
            dw.bias1[g] += gates[g];
            dw.bias2[g] += gates[g];
        }
    }
    return CUDNN_STATUS_SUCCESS;
}

}  // extern "C"
