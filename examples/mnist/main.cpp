// A small convolutional network over cuDNN and cuBLAS: two rounds of convolution, ReLU and pooling, then two
// dense layers. It uses cuDNN's C API for single operations, the one that frameworks grew up with.
#include <algorithm>
#include <stdexcept>

#include "network.hpp"

namespace {

constexpr float kOne = 1.0F;
constexpr float kZero = 0.0F;
constexpr float kRate = 0.02F;
constexpr int kKernel = 3;  // pixels wide and high

OWNED(FilterDescriptor, cudnnFilterDescriptor_t, cudnnCreateFilterDescriptor, cudnnDestroyFilterDescriptor);
OWNED(ConvolutionDescriptor, cudnnConvolutionDescriptor_t, cudnnCreateConvolutionDescriptor,
      cudnnDestroyConvolutionDescriptor);
OWNED(PoolingDescriptor, cudnnPoolingDescriptor_t, cudnnCreatePoolingDescriptor,
      cudnnDestroyPoolingDescriptor);
OWNED(ActivationDescriptor, cudnnActivationDescriptor_t, cudnnCreateActivationDescriptor,
      cudnnDestroyActivationDescriptor);

// Asks cuDNN's heuristics for algorithms, fastest first, and takes the first that works and always gives the
// same result. `query(limit, &found, list)` is one of the three cudnnGetConvolution…Algorithm_v7.
template <typename Candidate, typename Query>
auto choose(Query query) {
    constexpr int kLimit = 8;
    Candidate candidates[kLimit];
    int found = 0;
    query(kLimit, &found, candidates);
    for (int i = 0; i < found; ++i) {
        const bool works = candidates[i].status == CUDNN_STATUS_SUCCESS;
        if (works && candidates[i].determinism == CUDNN_DETERMINISTIC) return candidates[i].algo;
    }
    throw std::runtime_error("cuDNN offers no deterministic algorithm for this convolution");
}

// 3 x 3 convolution, padded so that height and width stay, plus a bias for each output channel.
class Convolution : public Layer {
public:
    Convolution(const Gpu& gpu, const Shape& input, int channels, Random& random)
        : gpu_(gpu),
          x_tensor_(input),
          y_tensor_({input.n, channels, input.h, input.w}),
          bias_tensor_({1, channels, 1, 1}),
          weights_(random.weights(static_cast<std::size_t>(channels) * input.c * kKernel * kKernel,
                                  input.c * kKernel * kKernel)),
          bias_(std::vector<float>(channels)),
          y_(Shape{input.n, channels, input.h, input.w}.count()),
          dx_(input.count()) {
        constexpr int kPadding = kKernel / 2;
        CHECK(cudnnSetFilter4dDescriptor(filter_, CUDNN_DATA_FLOAT, CUDNN_TENSOR_NCHW, channels, input.c,
                                         kKernel, kKernel));
        CHECK(cudnnSetConvolution2dDescriptor(convolution_, kPadding, kPadding, 1, 1, 1, 1,
                                              CUDNN_CROSS_CORRELATION, CUDNN_DATA_FLOAT));
        choose_algorithms();
        workspace_ = std::make_unique<Array<char>>(workspace_bytes());
    }

    const Floats& forward(const Floats& x, Pass) override {
        x_ = &x;
        CHECK(cudnnConvolutionForward(gpu_.cudnn, &kOne, x_tensor_, x.data(), filter_, weights_.value.data(),
                                      convolution_, forward_, workspace_->data(), workspace_->bytes(), &kZero,
                                      y_tensor_, y_.data()));
        CHECK(
            cudnnAddTensor(gpu_.cudnn, &kOne, bias_tensor_, bias_.value.data(), &kOne, y_tensor_, y_.data()));
        return y_;
    }

    const Floats& backward(const Floats& dy) override {
        CHECK(cudnnConvolutionBackwardBias(gpu_.cudnn, &kOne, y_tensor_, dy.data(), &kZero, bias_tensor_,
                                           bias_.gradient.data()));
        CHECK(cudnnConvolutionBackwardFilter(gpu_.cudnn, &kOne, x_tensor_, x_->data(), y_tensor_, dy.data(),
                                             convolution_, backward_filter_, workspace_->data(),
                                             workspace_->bytes(), &kZero, filter_, weights_.gradient.data()));
        CHECK(cudnnConvolutionBackwardData(gpu_.cudnn, &kOne, filter_, weights_.value.data(), y_tensor_,
                                           dy.data(), convolution_, backward_data_, workspace_->data(),
                                           workspace_->bytes(), &kZero, x_tensor_, dx_.data()));
        return dx_;
    }

    std::vector<Parameter*> parameters() override { return {&weights_, &bias_}; }

private:
    void choose_algorithms() {
        forward_ = choose<cudnnConvolutionFwdAlgoPerf_t>([&](int limit, int* found, auto* list) {
            CHECK(cudnnGetConvolutionForwardAlgorithm_v7(gpu_.cudnn, x_tensor_, filter_, convolution_,
                                                         y_tensor_, limit, found, list));
        });
        backward_filter_ =
            choose<cudnnConvolutionBwdFilterAlgoPerf_t>([&](int limit, int* found, auto* list) {
                CHECK(cudnnGetConvolutionBackwardFilterAlgorithm_v7(
                    gpu_.cudnn, x_tensor_, y_tensor_, convolution_, filter_, limit, found, list));
            });
        backward_data_ = choose<cudnnConvolutionBwdDataAlgoPerf_t>([&](int limit, int* found, auto* list) {
            CHECK(cudnnGetConvolutionBackwardDataAlgorithm_v7(gpu_.cudnn, filter_, y_tensor_, convolution_,
                                                              x_tensor_, limit, found, list));
        });
    }

    // The three operations run one after the other and share the largest workspace that any of them wants.
    std::size_t workspace_bytes() const {
        std::size_t forward = 0;
        std::size_t filter = 0;
        std::size_t data = 0;
        CHECK(cudnnGetConvolutionForwardWorkspaceSize(gpu_.cudnn, x_tensor_, filter_, convolution_, y_tensor_,
                                                      forward_, &forward));
        CHECK(cudnnGetConvolutionBackwardFilterWorkspaceSize(gpu_.cudnn, x_tensor_, y_tensor_, convolution_,
                                                             filter_, backward_filter_, &filter));
        CHECK(cudnnGetConvolutionBackwardDataWorkspaceSize(gpu_.cudnn, filter_, y_tensor_, convolution_,
                                                           x_tensor_, backward_data_, &data));
        return std::max({forward, filter, data});
    }

    const Gpu& gpu_;
    Tensor x_tensor_, y_tensor_, bias_tensor_;
    FilterDescriptor filter_;
    ConvolutionDescriptor convolution_;
    cudnnConvolutionFwdAlgo_t forward_{};
    cudnnConvolutionBwdFilterAlgo_t backward_filter_{};
    cudnnConvolutionBwdDataAlgo_t backward_data_{};
    Parameter weights_, bias_;
    Floats y_, dx_;
    std::unique_ptr<Array<char>> workspace_;
    const Floats* x_ = nullptr;
};

class Relu : public Layer {
public:
    Relu(const Gpu& gpu, const Shape& shape)
        : gpu_(gpu), tensor_(shape), y_(shape.count()), dx_(shape.count()) {
        CHECK(cudnnSetActivationDescriptor(relu_, CUDNN_ACTIVATION_RELU, CUDNN_NOT_PROPAGATE_NAN, 0.0));
    }

    const Floats& forward(const Floats& x, Pass) override {
        x_ = &x;
        CHECK(
            cudnnActivationForward(gpu_.cudnn, relu_, &kOne, tensor_, x.data(), &kZero, tensor_, y_.data()));
        return y_;
    }

    const Floats& backward(const Floats& dy) override {
        CHECK(cudnnActivationBackward(gpu_.cudnn, relu_, &kOne, tensor_, y_.data(), tensor_, dy.data(),
                                      tensor_, x_->data(), &kZero, tensor_, dx_.data()));
        return dx_;
    }

private:
    const Gpu& gpu_;
    Tensor tensor_;
    ActivationDescriptor relu_;
    Floats y_, dx_;
    const Floats* x_ = nullptr;
};

// The largest of each 2 x 2 pixels.
class MaxPooling : public Layer {
public:
    MaxPooling(const Gpu& gpu, const Shape& input)
        : gpu_(gpu),
          x_tensor_(input),
          y_tensor_({input.n, input.c, input.h / 2, input.w / 2}),
          y_(input.count() / 4),
          dx_(input.count()) {
        CHECK(cudnnSetPooling2dDescriptor(pooling_, CUDNN_POOLING_MAX_DETERMINISTIC, CUDNN_NOT_PROPAGATE_NAN,
                                          2, 2, 0, 0, 2, 2));
    }

    const Floats& forward(const Floats& x, Pass) override {
        x_ = &x;
        CHECK(cudnnPoolingForward(gpu_.cudnn, pooling_, &kOne, x_tensor_, x.data(), &kZero, y_tensor_,
                                  y_.data()));
        return y_;
    }

    const Floats& backward(const Floats& dy) override {
        CHECK(cudnnPoolingBackward(gpu_.cudnn, pooling_, &kOne, y_tensor_, y_.data(), y_tensor_, dy.data(),
                                   x_tensor_, x_->data(), &kZero, x_tensor_, dx_.data()));
        return dx_;
    }

private:
    const Gpu& gpu_;
    Tensor x_tensor_, y_tensor_;
    PoolingDescriptor pooling_;
    Floats y_, dx_;
    const Floats* x_ = nullptr;
};

std::unique_ptr<Model> cnn(const Options& options) {
    auto network = std::make_unique<Network>(options, kRate);
    Random random(options.seed);
    const int n = options.batch;
    network->add<Convolution>(Shape{n, 1, 8, 8}, 16, random);
    network->add<Relu>(Shape{n, 16, 8, 8});
    network->add<MaxPooling>(Shape{n, 16, 8, 8});
    network->add<Convolution>(Shape{n, 16, 4, 4}, 32, random);
    network->add<Relu>(Shape{n, 32, 4, 4});
    network->add<MaxPooling>(Shape{n, 32, 4, 4});
    network->add<Dense>(n, 32 * 2 * 2, 64, random);
    network->add<Relu>(Shape{n, 64, 1, 1});
    network->add<Dense>(n, 64, kClasses, random);
    return network;
}

}  // namespace

int main(int argc, char** argv) {
    return run({"mnist", "a convolutional network over cuDNN and cuBLAS", 10, cnn}, argc, argv);
}
