#include "graph.hpp"

#include <stdexcept>
#include <utility>

namespace {

// The name that the graph API has for a type of C++.
template <typename T>
constexpr cudnnBackendAttributeType_t kType = T::has_none;
template <>
constexpr auto kType<bool> = CUDNN_TYPE_BOOLEAN;
template <>
constexpr auto kType<std::int64_t> = CUDNN_TYPE_INT64;
template <>
constexpr auto kType<float> = CUDNN_TYPE_FLOAT;
template <>
constexpr auto kType<void*> = CUDNN_TYPE_VOID_PTR;
template <>
constexpr auto kType<cudnnHandle_t> = CUDNN_TYPE_HANDLE;
template <>
constexpr auto kType<cudnnDataType_t> = CUDNN_TYPE_DATA_TYPE;
template <>
constexpr auto kType<cudnnBackendHeurMode_t> = CUDNN_TYPE_HEUR_MODE;
template <>
constexpr auto kType<cudnnConvolutionMode_t> = CUDNN_TYPE_CONVOLUTION_MODE;
template <>
constexpr auto kType<cudnnPointwiseMode_t> = CUDNN_TYPE_POINTWISE_MODE;
template <>
constexpr auto kType<cudnnReduceTensorOp_t> = CUDNN_TYPE_REDUCTION_OPERATOR_TYPE;
template <>
constexpr auto kType<cudnnResampleMode_t> = CUDNN_TYPE_RESAMPLE_MODE;
template <>
constexpr auto kType<cudnnPaddingMode_t> = CUDNN_TYPE_PADDING_MODE;

constexpr std::int64_t kSpatial = 2;  // dimensions of an image
constexpr std::int64_t kWindow = 2;   // pixels that pooling takes, wide and high

}  // namespace

// One of the graph API's descriptors: its attributes are set, then it is finalized.
class Descriptor {
public:
    explicit Descriptor(cudnnBackendDescriptorType_t type) {
        CHECK(cudnnBackendCreateDescriptor(type, &handle_));
    }
    ~Descriptor() { cudnnBackendDestroyDescriptor(handle_); }
    Descriptor(const Descriptor&) = delete;
    Descriptor& operator=(const Descriptor&) = delete;

    template <typename T>
    void set(cudnnBackendAttributeName_t name, T value) {
        set(name, kType<T>, 1, &value);
    }
    // An attribute that is a descriptor itself, and finalized.
    void link(cudnnBackendAttributeName_t name, const Descriptor* other) {
        set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &other->handle_);
    }
    template <typename T>
    void set(cudnnBackendAttributeName_t name, const std::vector<T>& values) {
        set(name, kType<T>, values.size(), values.data());
    }
    void set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, std::size_t count,
             const void* values) {
        CHECK(cudnnBackendSetAttribute(handle_, name, type, static_cast<std::int64_t>(count), values));
    }
    // How many values there are; as many as `limit` are copied to `values`.
    std::int64_t get(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, std::size_t limit,
                     void* values) const {
        std::int64_t count = 0;
        CHECK(
            cudnnBackendGetAttribute(handle_, name, type, static_cast<std::int64_t>(limit), &count, values));
        return count;
    }

    void finalize() { CHECK(cudnnBackendFinalize(handle_)); }
    bool finalizes() { return cudnnBackendFinalize(handle_) == CUDNN_STATUS_SUCCESS; }
    cudnnBackendDescriptor_t handle() const { return handle_; }

private:
    cudnnBackendDescriptor_t handle_ = nullptr;
};

Graph::Graph(cudnnHandle_t cudnn, std::string name) : cudnn_(cudnn), name_(std::move(name)) {}

Graph::~Graph() = default;

Descriptor& Graph::part(cudnnBackendDescriptorType_t type) {
    return *parts_.emplace_back(std::make_unique<Descriptor>(type));
}

Tensor Graph::tensor(const Numbers& sizes, const Numbers& strides, cudnnDataType_t type, bool in_memory) {
    constexpr std::int64_t kAlignment = 16;  // bytes; cudaMalloc gives more
    Descriptor& made = part(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    made.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, ++tensors_);
    made.set(CUDNN_ATTR_TENSOR_DATA_TYPE, type);
    made.set(CUDNN_ATTR_TENSOR_DIMENSIONS, sizes);
    made.set(CUDNN_ATTR_TENSOR_STRIDES, strides);
    made.set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, kAlignment);
    made.set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, !in_memory);
    made.finalize();
    if (in_memory) in_memory_.push_back(tensors_);
    return &made;
}

namespace {

std::vector<std::int64_t> sizes(const Shape& s) { return {s.n, s.c, s.h, s.w}; }
std::vector<std::int64_t> strides(const Shape& s) { return {s.h * s.w * s.c, 1, s.w * s.c, s.c}; }

std::vector<std::int64_t> sizes(const Matrix& m) { return {1, m.rows, m.columns}; }
std::vector<std::int64_t> strides(const Matrix& m) {
    const std::int64_t all = m.rows * m.columns;
    return m.transposed ? std::vector<std::int64_t>{all, 1, m.rows}
                        : std::vector<std::int64_t>{all, m.columns, 1};
}

}  // namespace

Tensor Graph::tensor(const Shape& shape, cudnnDataType_t type) {
    return tensor(sizes(shape), strides(shape), type, true);
}

Tensor Graph::tensor(const Matrix& matrix) {
    return tensor(sizes(matrix), strides(matrix), CUDNN_DATA_FLOAT, true);
}

Tensor Graph::passed(const Shape& shape) {
    return tensor(sizes(shape), strides(shape), CUDNN_DATA_FLOAT, false);
}

Tensor Graph::passed(const Matrix& matrix) {
    return tensor(sizes(matrix), strides(matrix), CUDNN_DATA_FLOAT, false);
}

void Graph::add(Descriptor& operation) {
    operation.finalize();
    operations_.push_back(operation.handle());
}

const Descriptor* Graph::convolution(std::int64_t padding) {
    Descriptor& made = part(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
    made.set(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_DATA_FLOAT);
    made.set(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_CROSS_CORRELATION);
    made.set(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, kSpatial);
    made.set(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, Numbers(kSpatial, padding));
    made.set(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, Numbers(kSpatial, padding));
    made.set(CUDNN_ATTR_CONVOLUTION_DILATIONS, Numbers(kSpatial, 1));
    made.set(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, Numbers(kSpatial, 1));
    made.finalize();
    return &made;
}

void Graph::convolve(Tensor x, Tensor w, Tensor y, std::int64_t padding) {
    Descriptor& made = part(CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR);
    made.link(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, convolution(padding));
    made.link(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, x);
    made.link(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, w);
    made.link(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, y);
    made.set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, 1.0F);
    made.set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA, 0.0F);
    add(made);
}

void Graph::convolve_back_to_x(Tensor dy, Tensor w, Tensor dx, std::int64_t padding) {
    Descriptor& made = part(CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR);
    made.link(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC, convolution(padding));
    made.link(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY, dy);
    made.link(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W, w);
    made.link(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX, dx);
    made.set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA, 1.0F);
    made.set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA, 0.0F);
    add(made);
}

void Graph::convolve_back_to_w(Tensor x, Tensor dy, Tensor dw, std::int64_t padding) {
    Descriptor& made = part(CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR);
    made.link(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC, convolution(padding));
    made.link(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X, x);
    made.link(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY, dy);
    made.link(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW, dw);
    made.set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA, 1.0F);
    made.set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA, 0.0F);
    add(made);
}

void Graph::multiply(Tensor a, Tensor b, Tensor c) {
    Descriptor& product = part(CUDNN_BACKEND_MATMUL_DESCRIPTOR);
    product.set(CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_DATA_FLOAT);
    product.finalize();
    Descriptor& made = part(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
    made.link(CUDNN_ATTR_OPERATION_MATMUL_DESC, &product);
    made.link(CUDNN_ATTR_OPERATION_MATMUL_ADESC, a);
    made.link(CUDNN_ATTR_OPERATION_MATMUL_BDESC, b);
    made.link(CUDNN_ATTR_OPERATION_MATMUL_CDESC, c);
    add(made);
}

const Descriptor* Graph::elementwise(cudnnPointwiseMode_t mode) {
    Descriptor& made = part(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    made.set(CUDNN_ATTR_POINTWISE_MODE, mode);
    made.set(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_DATA_FLOAT);
    made.finalize();
    return &made;
}

void Graph::pointwise(cudnnPointwiseMode_t mode, Tensor x, Tensor b, Tensor y) {
    Descriptor& made = part(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    made.link(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, elementwise(mode));
    made.link(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x);
    made.link(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, b);
    made.link(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
    add(made);
}

void Graph::relu(Tensor x, Tensor y) {
    Descriptor& made = part(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    made.link(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, elementwise(CUDNN_POINTWISE_RELU_FWD));
    made.link(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x);
    made.link(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
    add(made);
}

// cuDNN asks for what relu() read; what it made is above 0 in the same places.
void Graph::relu_back(Tensor dy, Tensor y, Tensor dx) {
    Descriptor& made = part(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    made.link(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, elementwise(CUDNN_POINTWISE_RELU_BWD));
    made.link(CUDNN_ATTR_OPERATION_POINTWISE_DYDESC, dy);
    made.link(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, y);
    made.link(CUDNN_ATTR_OPERATION_POINTWISE_DXDESC, dx);
    add(made);
}

void Graph::sum(Tensor x, Tensor y) {
    Descriptor& reduction = part(CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
    reduction.set(CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_REDUCE_TENSOR_ADD);
    reduction.set(CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_DATA_FLOAT);
    reduction.finalize();
    Descriptor& made = part(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
    made.link(CUDNN_ATTR_OPERATION_REDUCTION_DESC, &reduction);
    made.link(CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x);
    made.link(CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y);
    add(made);
}

const Descriptor* Graph::pooling() {
    Descriptor& made = part(CUDNN_BACKEND_RESAMPLE_DESCRIPTOR);
    made.set(CUDNN_ATTR_RESAMPLE_MODE, CUDNN_RESAMPLE_MAXPOOL);
    made.set(CUDNN_ATTR_RESAMPLE_COMP_TYPE, CUDNN_DATA_FLOAT);
    made.set(CUDNN_ATTR_RESAMPLE_PADDING_MODE, CUDNN_NEG_INF_PAD);
    made.set(CUDNN_ATTR_RESAMPLE_SPATIAL_DIMS, kSpatial);
    made.set(CUDNN_ATTR_RESAMPLE_WINDOW_DIMS, Numbers(kSpatial, kWindow));
    made.set(CUDNN_ATTR_RESAMPLE_STRIDES, Numbers(kSpatial, kWindow));
    made.set(CUDNN_ATTR_RESAMPLE_PRE_PADDINGS, Numbers(kSpatial, 0));
    made.set(CUDNN_ATTR_RESAMPLE_POST_PADDINGS, Numbers(kSpatial, 0));
    made.finalize();
    return &made;
}

void Graph::pool(Tensor x, Tensor y, Tensor where) {
    Descriptor& made = part(CUDNN_BACKEND_OPERATION_RESAMPLE_FWD_DESCRIPTOR);
    made.link(CUDNN_ATTR_OPERATION_RESAMPLE_FWD_DESC, pooling());
    made.link(CUDNN_ATTR_OPERATION_RESAMPLE_FWD_XDESC, x);
    made.link(CUDNN_ATTR_OPERATION_RESAMPLE_FWD_YDESC, y);
    made.link(CUDNN_ATTR_OPERATION_RESAMPLE_FWD_IDXDESC, where);
    add(made);
}

void Graph::pool_back(Tensor dy, Tensor where, Tensor dx) {
    Descriptor& made = part(CUDNN_BACKEND_OPERATION_RESAMPLE_BWD_DESCRIPTOR);
    made.link(CUDNN_ATTR_OPERATION_RESAMPLE_BWD_DESC, pooling());
    made.link(CUDNN_ATTR_OPERATION_RESAMPLE_BWD_DYDESC, dy);
    made.link(CUDNN_ATTR_OPERATION_RESAMPLE_BWD_IDXDESC, where);
    made.link(CUDNN_ATTR_OPERATION_RESAMPLE_BWD_DXDESC, dx);
    add(made);
}

void Graph::build() {
    Descriptor& graph = part(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    graph.set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, cudnn_);
    graph.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, operations_.size(),
              operations_.data());
    graph.finalize();
    if (!plan_with(CUDNN_HEUR_MODE_A, graph) && !plan_with(CUDNN_HEUR_MODE_FALLBACK, graph)) {
        throw std::runtime_error("cuDNN has no engine for the graph \"" + name_ + "\" on this GPU");
    }
    std::int64_t bytes = 0;
    plan_->get(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &bytes);
    workspace_ = std::make_unique<Array<char>>(static_cast<std::size_t>(bytes));
}

// Takes the first engine that cuDNN suggests and that works.
bool Graph::plan_with(cudnnBackendHeurMode_t mode, const Descriptor& graph) {
    constexpr std::size_t kLimit = 16;
    Descriptor heuristics(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    heuristics.link(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, &graph);
    heuristics.set(CUDNN_ATTR_ENGINEHEUR_MODE, mode);
    if (!heuristics.finalizes()) return false;
    std::vector<Descriptor*> engines;
    std::vector<void*> handles;
    for (std::size_t i = 0; i < kLimit; ++i) {
        engines.push_back(&part(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR));
        handles.push_back(engines.back()->handle());
    }
    engines.resize(
        heuristics.get(CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, kLimit, handles.data()));
    for (const Descriptor* engine : engines) {
        Descriptor& plan = part(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
        plan.set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, cudnn_);
        plan.link(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, engine);
        plan_ = &plan;
        if (plan.finalizes()) return true;
    }
    return false;
}

void Graph::run(std::initializer_list<const void*> pointers) {
    std::vector<void*> writable;
    for (const void* pointer : pointers) writable.push_back(const_cast<void*>(pointer));
    Descriptor pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, in_memory_);
    pack.set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, writable);
    pack.set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, static_cast<void*>(workspace_->data()));
    pack.finalize();
    CHECK(cudnnBackendExecute(cudnn_, plan_->handle(), pack.handle()));
}
