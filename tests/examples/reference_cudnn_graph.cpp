// A reference implementation for tests, on the CPU, of cuDNN's graph API, as far as the examples use it. A
// graph's operations are carried out one after the other, number by number.
//
// It refuses graphs that cuDNN's runtime-compiled engines would refuse by the rules that
// examples/mnist/graph.hpp lists (guide to cuDNN's frontend 9.20, "Generic Runtime Fusion Engines", support
// surface 70).
//
// Environment: REFERENCE_FAILS=cudnnBackendExecute lets that call fail.
#include <cudnn.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <map>
#include <vector>

namespace {

using Numbers = std::vector<std::int64_t>;

// A descriptor: what was set, byte for byte.
struct Part {
    cudnnBackendDescriptorType_t type;
    bool finalized = false;
    std::map<int, std::vector<char>> attributes;

    template <typename T>
    std::vector<T> all(int name) const {
        const auto found = attributes.find(name);
        if (found == attributes.end()) return {};
        const T* first = reinterpret_cast<const T*>(found->second.data());
        return std::vector<T>(first, first + found->second.size() / sizeof(T));
    }
    template <typename T>
    T one(int name) const {
        const std::vector<T> values = all<T>(name);
        return values.size() == 1 ? values[0] : T{};
    }
    const Part* part(int name) const { return one<const Part*>(name); }
};

std::size_t size_of(cudnnBackendAttributeType_t type) {
    switch (type) {
        case CUDNN_TYPE_BOOLEAN:
            return sizeof(bool);
        case CUDNN_TYPE_INT64:
            return sizeof(std::int64_t);
        case CUDNN_TYPE_HANDLE:
        case CUDNN_TYPE_VOID_PTR:
        case CUDNN_TYPE_BACKEND_DESCRIPTOR:
            return sizeof(void*);
        default:
            return sizeof(int);  // an enumeration, or a float
    }
}

// A tensor of up to four dimensions; missing ones, in front, are of size 1.
struct Tensor {
    std::int64_t id;
    bool is_virtual;
    cudnnDataType_t type;
    std::int64_t size[4] = {1, 1, 1, 1};
    std::int64_t stride[4] = {0, 0, 0, 0};
    std::size_t rank;

    explicit Tensor(const Part* part)
        : id(part->one<std::int64_t>(CUDNN_ATTR_TENSOR_UNIQUE_ID)),
          is_virtual(part->one<bool>(CUDNN_ATTR_TENSOR_IS_VIRTUAL)),
          type(part->one<cudnnDataType_t>(CUDNN_ATTR_TENSOR_DATA_TYPE)) {
        const Numbers sizes = part->all<std::int64_t>(CUDNN_ATTR_TENSOR_DIMENSIONS);
        const Numbers strides = part->all<std::int64_t>(CUDNN_ATTR_TENSOR_STRIDES);
        rank = sizes.size();
        std::copy(sizes.begin(), sizes.end(), size + 4 - rank);
        std::copy(strides.begin(), strides.end(), stride + 4 - rank);
    }

    std::int64_t count() const { return size[0] * size[1] * size[2] * size[3]; }
    // Where an element stands in memory; in a dimension of size 1 there is one element for all.
    std::int64_t at(std::int64_t a, std::int64_t b, std::int64_t c, std::int64_t d) const {
        const std::int64_t index[4] = {a, b, c, d};
        std::int64_t offset = 0;
        for (int i = 0; i < 4; ++i) offset += size[i] == 1 ? 0 : index[i] * stride[i];
        return offset;
    }
    bool same_size(const Tensor& other) const { return std::equal(size, size + 4, other.size); }
    bool packed_nhwc() const {
        return rank == 4 && stride[1] == 1 && stride[3] == size[1] && stride[2] == size[3] * size[1] &&
               stride[0] == size[2] * size[3] * size[1];
    }
    // Whether 128 bits at a time can be read.
    bool aligned() const { return rank == 4 ? size[1] % 4 == 0 : size[stride[3] == 1 ? 3 : 2] % 4 == 0; }
};

template <typename Visit>
void each(const Tensor& t, Visit visit) {
    for (std::int64_t a = 0; a < t.size[0]; ++a)
        for (std::int64_t b = 0; b < t.size[1]; ++b)
            for (std::int64_t c = 0; c < t.size[2]; ++c)
                for (std::int64_t d = 0; d < t.size[3]; ++d) visit(a, b, c, d);
}

struct Names {
    std::vector<int> inputs;
    int output, settings;
};

// The attributes of each operation that stand for its tensors and for the descriptor with its settings.
const std::map<cudnnBackendDescriptorType_t, Names> kOperations = {
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
     {{CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W},
      CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
      CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC}},
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
     {{CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W},
      CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
      CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC}},
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
     {{CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY},
      CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
      CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC}},
    {CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR,
     {{CUDNN_ATTR_OPERATION_MATMUL_ADESC, CUDNN_ATTR_OPERATION_MATMUL_BDESC},
      CUDNN_ATTR_OPERATION_MATMUL_CDESC,
      CUDNN_ATTR_OPERATION_MATMUL_DESC}},
    {CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR,
     {{CUDNN_ATTR_OPERATION_REDUCTION_XDESC},
      CUDNN_ATTR_OPERATION_REDUCTION_YDESC,
      CUDNN_ATTR_OPERATION_REDUCTION_DESC}},
    {CUDNN_BACKEND_OPERATION_RESAMPLE_FWD_DESCRIPTOR,
     {{CUDNN_ATTR_OPERATION_RESAMPLE_FWD_XDESC, CUDNN_ATTR_OPERATION_RESAMPLE_FWD_IDXDESC},
      CUDNN_ATTR_OPERATION_RESAMPLE_FWD_YDESC,
      CUDNN_ATTR_OPERATION_RESAMPLE_FWD_DESC}},
    {CUDNN_BACKEND_OPERATION_RESAMPLE_BWD_DESCRIPTOR,
     {{CUDNN_ATTR_OPERATION_RESAMPLE_BWD_DYDESC, CUDNN_ATTR_OPERATION_RESAMPLE_BWD_IDXDESC},
      CUDNN_ATTR_OPERATION_RESAMPLE_BWD_DXDESC,
      CUDNN_ATTR_OPERATION_RESAMPLE_BWD_DESC}},
};
const Names kBinary = {{CUDNN_ATTR_OPERATION_POINTWISE_XDESC, CUDNN_ATTR_OPERATION_POINTWISE_BDESC},
                       CUDNN_ATTR_OPERATION_POINTWISE_YDESC,
                       CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR};
const Names kRelu = {{CUDNN_ATTR_OPERATION_POINTWISE_XDESC},
                     CUDNN_ATTR_OPERATION_POINTWISE_YDESC,
                     CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR};
const Names kReluBack = {{CUDNN_ATTR_OPERATION_POINTWISE_DYDESC, CUDNN_ATTR_OPERATION_POINTWISE_XDESC},
                         CUDNN_ATTR_OPERATION_POINTWISE_DXDESC,
                         CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR};

struct Operation {
    cudnnBackendDescriptorType_t type;
    std::vector<Tensor> inputs;
    Tensor output;
    const Part* settings;

    static Operation of(const Part* part) {
        const Names& names = part->type == CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR
                                 ? pointwise_names(part)
                                 : kOperations.at(part->type);
        Operation made{part->type, {}, Tensor(part->part(names.output)), part->part(names.settings)};
        for (int name : names.inputs) made.inputs.emplace_back(part->part(name));
        return made;
    }
    static const Names& pointwise_names(const Part* part) {
        if (part->part(CUDNN_ATTR_OPERATION_POINTWISE_DXDESC) != nullptr) return kReluBack;
        return part->part(CUDNN_ATTR_OPERATION_POINTWISE_BDESC) != nullptr ? kBinary : kRelu;
    }

    bool is_pointwise() const { return type == CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR; }
    bool is_sum() const { return type == CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR; }
    bool is_pooling() const {
        return type == CUDNN_BACKEND_OPERATION_RESAMPLE_FWD_DESCRIPTOR ||
               type == CUDNN_BACKEND_OPERATION_RESAMPLE_BWD_DESCRIPTOR;
    }
    bool is_product() const { return !is_pointwise() && !is_sum() && !is_pooling(); }
};

std::vector<Operation> operations_of(const Part* graph) {
    std::vector<Operation> found;
    for (const Part* part : graph->all<const Part*>(CUDNN_ATTR_OPERATIONGRAPH_OPS))
        found.push_back(Operation::of(part));
    return found;
}

// The rules that the head of this file names.
bool supported(const std::vector<Operation>& operations) {
    for (std::size_t i = 0; i < operations.size(); ++i) {
        const Operation& o = operations[i];
        std::vector<Tensor> tensors = o.inputs;
        tensors.push_back(o.output);
        for (const Tensor& t : tensors)
            if (t.rank == 4 && !t.packed_nhwc()) return false;
        if (o.is_product() && (i != 0 || !o.inputs[0].aligned() || !o.inputs[1].aligned())) return false;
        if (o.is_sum() && (i + 1 != operations.size() || o.output.rank != 4)) return false;
        if (o.is_pooling() && operations.size() != 1) return false;
        if (o.is_pointwise() && !o.inputs[0].same_size(o.output)) return false;
    }
    return true;
}

using Memory = std::map<std::int64_t, void*>;

float* floats(const Memory& memory, const Tensor& t) { return static_cast<float*>(memory.at(t.id)); }

// Calls visit(place in image x, place in filter w, place in image y) for each product of a convolution.
template <typename Visit>
void convolve(const Tensor& x, const Tensor& w, const Tensor& y, const Part* settings, Visit visit) {
    const std::int64_t padding = settings->all<std::int64_t>(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS)[0];
    each(y, [&](auto n, auto k, auto p, auto q) {
        for (std::int64_t r = 0; r < w.size[2]; ++r)
            for (std::int64_t s = 0; s < w.size[3]; ++s) {
                const std::int64_t i = p + r - padding;
                const std::int64_t j = q + s - padding;
                if (i < 0 || j < 0 || i >= x.size[2] || j >= x.size[3]) continue;
                const std::int64_t pixel = x.at(n, 0, i, j);
                const std::int64_t weight = w.at(k, 0, r, s);
                const std::int64_t place = y.at(n, k, p, q);
                for (std::int64_t c = 0; c < w.size[1]; ++c)
                    visit(pixel + c * x.stride[1], weight + c * w.stride[1], place);
            }
    });
}

float elementwise(cudnnPointwiseMode_t mode, float x, float b) {
    switch (mode) {
        case CUDNN_POINTWISE_ADD:
            return x + b;
        case CUDNN_POINTWISE_SUB:
            return x - b;
        case CUDNN_POINTWISE_MUL:
            return x * b;
        case CUDNN_POINTWISE_RELU_FWD:
            return std::max(x, 0.0F);
        case CUDNN_POINTWISE_RELU_BWD:
            return b > 0 ? x : 0;
        default:
            std::abort();
    }
}

void pool(const Operation& o, const Memory& memory, bool back) {
    const Tensor& large = back ? o.output : o.inputs[0];
    const Tensor& small = back ? o.inputs[0] : o.output;
    const std::int64_t window = o.settings->all<std::int64_t>(CUDNN_ATTR_RESAMPLE_WINDOW_DIMS)[0];
    auto* where = static_cast<signed char*>(memory.at(o.inputs[1].id));
    each(small, [&](auto n, auto c, auto h, auto w) {
        signed char& best = where[o.inputs[1].at(n, c, h, w)];
        const auto at = [&](std::int64_t i) {
            return large.at(n, c, h * window + i / window, w * window + i % window);
        };
        if (!back) {
            best = 0;
            for (std::int64_t i = 1; i < window * window; ++i)
                if (floats(memory, large)[at(i)] > floats(memory, large)[at(best)])
                    best = static_cast<signed char>(i);
            floats(memory, small)[small.at(n, c, h, w)] = floats(memory, large)[at(best)];
        } else {
            for (std::int64_t i = 0; i < window * window; ++i)
                floats(memory, large)[at(i)] = i == best ? floats(memory, small)[small.at(n, c, h, w)] : 0;
        }
    });
}

void carry_out(const Operation& o, const Memory& memory) {
    if (o.is_pooling()) return pool(o, memory, o.type == CUDNN_BACKEND_OPERATION_RESAMPLE_BWD_DESCRIPTOR);
    const float* first = floats(memory, o.inputs[0]);
    const float* second = o.inputs.size() == 2 ? floats(memory, o.inputs[1]) : first;
    float* result = floats(memory, o.output);
    if (!o.is_pointwise()) std::fill(result, result + o.output.count(), 0.0F);
    switch (o.type) {
        case CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR:
            return convolve(o.inputs[0], o.inputs[1], o.output, o.settings,
                            [&](auto x, auto w, auto y) { result[y] += first[x] * second[w]; });
        case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR:
            return convolve(o.output, o.inputs[1], o.inputs[0], o.settings,
                            [&](auto dx, auto w, auto dy) { result[dx] += first[dy] * second[w]; });
        case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR:
            return convolve(o.inputs[0], o.output, o.inputs[1], o.settings,
                            [&](auto x, auto dw, auto dy) { result[dw] += first[x] * second[dy]; });
        case CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR:
            return each(o.output, [&](auto, auto, auto row, auto column) {
                for (std::int64_t i = 0; i < o.inputs[0].size[3]; ++i)
                    result[o.output.at(0, 0, row, column)] +=
                        first[o.inputs[0].at(0, 0, row, i)] * second[o.inputs[1].at(0, 0, i, column)];
            });
        case CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR:
            return each(o.inputs[0], [&](auto a, auto b, auto c, auto d) {
                result[o.output.at(a, b, c, d)] += first[o.inputs[0].at(a, b, c, d)];
            });
        default:
            return each(o.output, [&](auto a, auto b, auto c, auto d) {
                result[o.output.at(a, b, c, d)] =
                    elementwise(o.settings->one<cudnnPointwiseMode_t>(CUDNN_ATTR_POINTWISE_MODE),
                                first[o.inputs[0].at(a, b, c, d)], second[o.inputs.back().at(a, b, c, d)]);
            });
    }
}

Part* part_of(cudnnBackendDescriptor_t descriptor) { return static_cast<Part*>(descriptor); }

}  // namespace

extern "C" {

cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type,
                                           cudnnBackendDescriptor_t* made) {
    return *made = new Part{type, false, {}}, CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t descriptor) {
    return delete part_of(descriptor), CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t count, const void* values) {
    if (part_of(descriptor)->finalized) return CUDNN_STATUS_BAD_PARAM;
    const auto* first = static_cast<const char*>(values);
    if (type == CUDNN_TYPE_BACKEND_DESCRIPTOR) {
        for (int64_t i = 0; i < count; ++i)
            if (!static_cast<Part* const*>(values)[i]->finalized) return CUDNN_STATUS_BAD_PARAM;
    }
    part_of(descriptor)
        ->attributes[name]
        .assign(first, first + static_cast<std::size_t>(count) * size_of(type));
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t descriptor) {
    Part* part = part_of(descriptor);
    if (part->type == CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR && !supported(operations_of(part)))
        return CUDNN_STATUS_NOT_SUPPORTED;
    // As on a machine where the first way of asking for engines finds none.
    if (part->type == CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR &&
        part->one<cudnnBackendHeurMode_t>(CUDNN_ATTR_ENGINEHEUR_MODE) != CUDNN_HEUR_MODE_FALLBACK)
        return CUDNN_STATUS_NOT_SUPPORTED;
    if (part->type == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR &&
        part->part(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG)->part(CUDNN_ATTR_ENGINE_OPERATION_GRAPH) ==
            nullptr)
        return CUDNN_STATUS_NOT_SUPPORTED;
    return part->finalized = true, CUDNN_STATUS_SUCCESS;
}

// Engines: two, the first of which knows no graph and makes no plan.
cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t const descriptor,
                                       cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t,
                                       int64_t limit, int64_t* count, void* values) {
    const Part* part = part_of(descriptor);
    if (!part->finalized) return CUDNN_STATUS_BAD_PARAM;
    if (name == CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE) {
        *static_cast<int64_t*>(values) = 0;
        return *count = 1, CUDNN_STATUS_SUCCESS;
    }
    if (name != CUDNN_ATTR_ENGINEHEUR_RESULTS || limit < 2) return CUDNN_STATUS_BAD_PARAM;
    Part* engine = static_cast<Part**>(values)[1];
    static_cast<Part**>(values)[0]->finalized = engine->finalized = true;
    engine->attributes[CUDNN_ATTR_ENGINE_OPERATION_GRAPH] =
        part->attributes.at(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH);
    return *count = 2, CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendExecute(cudnnHandle_t, cudnnBackendDescriptor_t plan,
                                  cudnnBackendDescriptor_t pack) {
    const char* fails = std::getenv("REFERENCE_FAILS");
    if (fails != nullptr && std::strcmp(fails, "cudnnBackendExecute") == 0)
        return CUDNN_STATUS_EXECUTION_FAILED;
    const Numbers ids = part_of(pack)->all<std::int64_t>(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
    const std::vector<void*> pointers = part_of(pack)->all<void*>(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
    if (ids.size() != pointers.size()) return CUDNN_STATUS_BAD_PARAM;
    Memory memory;
    for (std::size_t i = 0; i < ids.size(); ++i) memory[ids[i]] = pointers[i];
    std::vector<std::vector<float>> passed;
    const Part* engine = part_of(plan)->part(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
    for (const Operation& o : operations_of(engine->part(CUDNN_ATTR_ENGINE_OPERATION_GRAPH))) {
        if (o.output.is_virtual)
            memory[o.output.id] = passed.emplace_back(static_cast<std::size_t>(o.output.count())).data();
        carry_out(o, memory);
    }
    return CUDNN_STATUS_SUCCESS;
}

}  // extern "C"
