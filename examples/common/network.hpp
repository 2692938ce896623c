// A feed-forward network on the GPU: layers in a row, a softmax at the end, SGD with momentum. It uses cuBLAS
// and cuDNN's general tensor operations only; what one kind of network needs stands in that program.
#pragma once

#include <memory>

#include "gpu.hpp"
#include "learn.hpp"
#include "random.hpp"

// A batch of n images with c channels of h rows and w columns, in that order in memory (NCHW).
struct Shape {
    int n, c, h, w;

    std::size_t count() const { return static_cast<std::size_t>(n) * c * h * w; }
};

class Tensor {
public:
    explicit Tensor(const Shape& shape) {
        CHECK(cudnnSetTensor4dDescriptor(descriptor_, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, shape.n, shape.c,
                                         shape.h, shape.w));
    }
    operator cudnnTensorDescriptor_t() const { return descriptor_; }

private:
    TensorDescriptor descriptor_;
};

// What a layer learns. A layer writes `gradient`; step() uses it.
struct Parameter {
    Floats value, gradient, velocity;

    explicit Parameter(const std::vector<float>& first)
        : value(first), gradient(first.size()), velocity(first.size()) {}
    void step(cublasHandle_t cublas, float rate, float momentum);
};

enum class Pass { kTrain, kClassify };

class Layer {
public:
    virtual ~Layer() = default;

    // From input to output. The caller keeps x as it is until backward() is done.
    virtual const Floats& forward(const Floats& x, Pass pass) = 0;
    // From d(loss)/d(output) to d(loss)/d(input), for the latest forward pass; fills its parameters'
    // gradients.
    virtual const Floats& backward(const Floats& dy) = 0;
    virtual std::vector<Parameter*> parameters() { return {}; }
};

// Y = X W^T + b. All matrices are row by row: X is batch x inputs, W outputs x inputs, Y batch x outputs.
class Dense : public Layer {
public:
    Dense(const Gpu& gpu, int batch, int inputs, int outputs, Random& random);

    const Floats& forward(const Floats& x, Pass pass) override;
    const Floats& backward(const Floats& dy) override;
    std::vector<Parameter*> parameters() override { return {&weights_, &bias_}; }

private:
    const Gpu& gpu_;
    int batch_, inputs_, outputs_;
    Parameter weights_, bias_;
    Floats ones_, y_, dx_;
    const Floats* x_ = nullptr;
};

class Network : public Model {
public:
    Network(const Options& options, float rate);

    // Appends an L that is made from the GPU and the arguments.
    template <typename L, typename... Arguments>
    void add(Arguments&&... arguments) {
        layers_.push_back(std::make_unique<L>(gpu_, std::forward<Arguments>(arguments)...));
    }

    std::vector<std::pair<std::string, std::string>> platform() const override { return gpu_.platform(); }
    double train(const Batch& batch) override;
    std::vector<int> classify(const Batch& batch) override;

private:
    std::vector<float> forward(const Batch& batch, Pass pass);

    Gpu gpu_;  // first in, last out: everything below needs it
    float rate_;
    Tensor classes_;
    Floats pixels_, probabilities_, truth_;
    std::vector<std::unique_ptr<Layer>> layers_;
};
