// The same small convolutional network as main.cpp, over the graph API of cuDNN alone: neither cuDNN's older
// functions nor cuBLAS. So it runs with the JIT distribution of cuDNN too, which holds only the engines that
// write their kernels when they are needed (GPUs of compute capability 8.0 and above). The softmax of the ten
// outputs is computed on the CPU. It learns by plain stochastic gradient descent.
#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "graph.hpp"
#include "learn.hpp"
#include "random.hpp"

namespace {

constexpr float kRate = 0.15F;
constexpr int kKernel = 3;       // pixels wide and high
constexpr int kPixelFloats = 4;  // channels of the input: the ink and three that are 0, for the alignment
constexpr int kOutputs = 12;     // the ten classes and two that are never true, for the same reason

// What a layer learns. A step writes the new values beside the old ones, then the two change places.
class Parameter {
public:
    // A w x h filter for each of n outputs and c inputs, or a bias for each of c channels.
    Parameter(cudnnHandle_t cudnn, const Shape& shape, const std::vector<float>& first)
        : gradient(first.size()), rate_(std::vector<float>{kRate}), descent_(cudnn, "gradient descent") {
        values_[0] = std::make_unique<Floats>(first);
        values_[1] = std::make_unique<Floats>(first.size());
        const Tensor old = descent_.tensor(shape);
        const Tensor slope = descent_.tensor(shape);
        const Tensor rate = descent_.tensor(Shape{1, 1, 1, 1});
        const Tensor changed = descent_.tensor(shape);
        const Tensor change = descent_.passed(shape);
        descent_.pointwise(CUDNN_POINTWISE_MUL, slope, rate, change);
        descent_.pointwise(CUDNN_POINTWISE_SUB, old, change, changed);
        descent_.build();
    }

    const float* value() const { return values_[0]->data(); }
    void step() {
        descent_.run({value(), gradient.data(), rate_.data(), values_[1]->data()});
        std::swap(values_[0], values_[1]);
    }

    Floats gradient;

private:
    std::unique_ptr<Floats> values_[2];
    Floats rate_;
    Graph descent_;
};

enum class After { kRelu, kNothing };

class Layer {
public:
    virtual ~Layer() = default;

    // From input to output. The caller keeps x as it is until backward() is done.
    virtual const Floats& forward(const Floats& x) = 0;
    // From d(loss)/d(output) to d(loss)/d(input), for the latest forward pass; fills its parameters'
    // gradients.
    virtual const Floats& backward(const Floats& dy) = 0;
    virtual void step() {}
};

// What convolutions and dense layers share: y = x (w) + bias, perhaps a ReLU. The graphs `forward_`, with x,
// w, bias and y in memory, `to_w_` with x, dz and dw, and `to_x_` with dz, w and dx are for them to describe;
// z is the sum before the ReLU.
class Weighted : public Layer {
public:
    const Floats& forward(const Floats& x) override {
        x_ = &x;
        forward_.run({x.data(), weights_.value(), bias_.value(), y_.data()});
        return y_;
    }

    const Floats& backward(const Floats& dy) override {
        if (after_ == After::kRelu) {
            to_bias_.run({dy.data(), y_.data(), dz_.data(), bias_.gradient.data()});
        } else {
            to_bias_.run({dy.data(), bias_.gradient.data()});
        }
        const Floats& dz = after_ == After::kRelu ? dz_ : dy;
        to_w_.run({x_->data(), dz.data(), weights_.gradient.data()});
        to_x_.run({dz.data(), weights_.value(), dx_.data()});
        return dx_;
    }

    void step() override {
        weights_.step();
        bias_.step();
    }

protected:
    // w and y as images; `inputs` is how many numbers each number of y is made of.
    Weighted(cudnnHandle_t cudnn, const std::string& name, const Shape& x, const Shape& w, const Shape& y,
             std::int64_t inputs, After after, Random& random)
        : after_(after),
          weights_(cudnn, w, random.weights(w.count(), static_cast<int>(inputs))),
          bias_(cudnn, {1, y.c, 1, 1}, std::vector<float>(static_cast<std::size_t>(y.c))),
          forward_(cudnn, name + ", forward"),
          to_bias_(cudnn, name + ", to the bias"),
          to_w_(cudnn, name + ", to the weights"),
          to_x_(cudnn, name + ", to the input"),
          y_(y.count()),
          dz_(y.count()),
          dx_(x.count()) {
        const Tensor dy = to_bias_.tensor(y);
        if (after == After::kRelu) {
            const Tensor made = to_bias_.tensor(y);
            const Tensor dz = to_bias_.tensor(y);
            to_bias_.relu_back(dy, made, dz);
            to_bias_.sum(dz, to_bias_.tensor(Shape{1, y.c, 1, 1}));
        } else {
            to_bias_.sum(dy, to_bias_.tensor(Shape{1, y.c, 1, 1}));
        }
        to_bias_.build();
    }

    // The end of the forward graph: from `product` to y.
    template <typename Form>
    void add_bias(Tensor product, Tensor bias, Tensor y, const Form& form) {
        if (after_ == After::kNothing) return forward_.pointwise(CUDNN_POINTWISE_ADD, product, bias, y);
        const Tensor z = forward_.passed(form);
        forward_.pointwise(CUDNN_POINTWISE_ADD, product, bias, z);
        forward_.relu(z, y);
    }

    After after_;
    Parameter weights_, bias_;
    Graph forward_, to_bias_, to_w_, to_x_;
    Floats y_, dz_, dx_;
    const Floats* x_ = nullptr;
};

// 3 x 3 convolution, padded so that height and width stay.
class Convolution : public Weighted {
public:
    Convolution(cudnnHandle_t cudnn, const std::string& name, const Shape& x, int channels, Random& random)
        : Convolution(cudnn, name, x, {channels, x.c, kKernel, kKernel}, {x.n, channels, x.h, x.w}, random) {}

private:
    Convolution(cudnnHandle_t cudnn, const std::string& name, const Shape& x, const Shape& w, const Shape& y,
                Random& random)
        : Weighted(cudnn, name, x, w, y, x.c * kKernel * kKernel, After::kRelu, random) {
        constexpr int kPadding = kKernel / 2;
        const Tensor x1 = forward_.tensor(x);
        const Tensor w1 = forward_.tensor(w);
        const Tensor bias = forward_.tensor(Shape{1, y.c, 1, 1});
        const Tensor product = forward_.passed(y);
        forward_.convolve(x1, w1, product, kPadding);
        add_bias(product, bias, forward_.tensor(y), y);
        forward_.build();

        const Tensor x2 = to_w_.tensor(x);
        const Tensor dz2 = to_w_.tensor(y);
        to_w_.convolve_back_to_w(x2, dz2, to_w_.tensor(w), kPadding);
        to_w_.build();

        const Tensor dz3 = to_x_.tensor(y);
        const Tensor w3 = to_x_.tensor(w);
        to_x_.convolve_back_to_x(dz3, w3, to_x_.tensor(x), kPadding);
        to_x_.build();
    }
};

// Y = X W + bias, where X is n x inputs, W inputs x outputs, Y n x outputs. To cuDNN's sums and single
// operations a matrix is n images of one pixel.
class Dense : public Weighted {
public:
    Dense(cudnnHandle_t cudnn, const std::string& name, std::int64_t n, std::int64_t inputs,
          std::int64_t outputs, After after, Random& random)
        : Weighted(cudnn, name, {n, inputs, 1, 1}, {inputs, outputs, 1, 1}, {n, outputs, 1, 1}, inputs, after,
                   random) {
        const Matrix y{n, outputs};
        const Tensor x1 = forward_.tensor(Matrix{n, inputs});
        const Tensor w1 = forward_.tensor(Matrix{inputs, outputs});
        const Tensor bias = forward_.tensor(Matrix{1, outputs});
        const Tensor product = forward_.passed(y);
        forward_.multiply(x1, w1, product);
        add_bias(product, bias, forward_.tensor(y), y);
        forward_.build();

        const Tensor x2 = to_w_.tensor(Matrix{inputs, n, true});
        const Tensor dz2 = to_w_.tensor(y);
        to_w_.multiply(x2, dz2, to_w_.tensor(Matrix{inputs, outputs}));
        to_w_.build();

        const Tensor dz3 = to_x_.tensor(y);
        const Tensor w3 = to_x_.tensor(Matrix{outputs, inputs, true});
        to_x_.multiply(dz3, w3, to_x_.tensor(Matrix{n, inputs}));
        to_x_.build();
    }
};

// The largest of each 2 x 2 pixels.
class MaxPooling : public Layer {
public:
    MaxPooling(cudnnHandle_t cudnn, const std::string& name, const Shape& x)
        : forward_(cudnn, name + ", forward"),
          to_x_(cudnn, name + ", to the input"),
          y_(x.count() / 4),
          dx_(x.count()),
          where_(x.count() / 4) {
        const Shape y{x.n, x.c, x.h / 2, x.w / 2};
        const Tensor x1 = forward_.tensor(x);
        const Tensor y1 = forward_.tensor(y);
        forward_.pool(x1, y1, forward_.tensor(y, CUDNN_DATA_INT8));
        forward_.build();

        const Tensor dy = to_x_.tensor(y);
        const Tensor where = to_x_.tensor(y, CUDNN_DATA_INT8);
        to_x_.pool_back(dy, where, to_x_.tensor(x));
        to_x_.build();
    }

    const Floats& forward(const Floats& x) override {
        forward_.run({x.data(), y_.data(), where_.data()});
        return y_;
    }

    const Floats& backward(const Floats& dy) override {
        to_x_.run({dy.data(), where_.data(), dx_.data()});
        return dx_;
    }

private:
    Graph forward_, to_x_;
    Floats y_, dx_;
    Array<char> where_;
};

// From kOutputs numbers an image to the probabilities of its kClasses classes.
std::vector<float> softmax(const std::vector<float>& outputs) {
    std::vector<float> probabilities;
    for (std::size_t at = 0; at < outputs.size(); at += kOutputs) {
        float largest = outputs[at];
        for (int i = 1; i < kClasses; ++i) largest = std::max(largest, outputs[at + i]);
        float sum = 0;
        for (int i = 0; i < kClasses; ++i) sum += std::exp(outputs[at + i] - largest);
        for (int i = 0; i < kClasses; ++i) probabilities.push_back(std::exp(outputs[at + i] - largest) / sum);
    }
    return probabilities;
}

class Cnn : public Model {
public:
    explicit Cnn(const Options& options)
        : pixels_(static_cast<std::size_t>(options.batch) * kPixels * kPixelFloats),
          slopes_(static_cast<std::size_t>(options.batch) * kOutputs) {
        Random random(options.seed);
        const int n = options.batch;
        add<Convolution>("first convolution", Shape{n, kPixelFloats, 8, 8}, 16, random);
        add<MaxPooling>("first pooling", Shape{n, 16, 8, 8});
        add<Convolution>("second convolution", Shape{n, 16, 4, 4}, 32, random);
        add<MaxPooling>("second pooling", Shape{n, 32, 4, 4});
        add<Dense>("first dense layer", n, 2 * 2 * 32, 64, After::kRelu, random);
        add<Dense>("second dense layer", n, 64, kOutputs, After::kNothing, random);
    }

    std::vector<std::pair<std::string, std::string>> platform() const override { return ::platform(); }

    double train(const Batch& batch) override {
        const std::vector<float> probabilities = forward(batch);

        // Softmax and mean cross entropy together have a simple gradient: (probability - truth) / batch.
        std::vector<float> slopes(batch.size() * kOutputs);
        for (std::size_t n = 0; n < batch.size(); ++n) {
            for (int i = 0; i < kClasses; ++i) {
                const float truth = i == batch.labels[n] ? 1.0F : 0.0F;
                slopes[n * kOutputs + i] =
                    (probabilities[n * kClasses + i] - truth) / static_cast<float>(batch.size());
            }
        }
        slopes_.upload(slopes);
        const Floats* dy = &slopes_;
        for (auto layer = layers_.rbegin(); layer != layers_.rend(); ++layer) dy = &(*layer)->backward(*dy);
        for (const auto& layer : layers_) layer->step();
        return cross_entropy(probabilities, batch.labels);
    }

    std::vector<int> classify(const Batch& batch) override { return most_likely(forward(batch)); }

private:
    template <typename L, typename... Arguments>
    void add(Arguments&&... arguments) {
        layers_.push_back(std::make_unique<L>(cudnn_, std::forward<Arguments>(arguments)...));
    }

    std::vector<float> forward(const Batch& batch) {
        std::vector<float> pixels(batch.pixels.size() * kPixelFloats);
        for (std::size_t i = 0; i < batch.pixels.size(); ++i) pixels[i * kPixelFloats] = batch.pixels[i];
        pixels_.upload(pixels);
        const Floats* x = &pixels_;
        for (const auto& layer : layers_) x = &layer->forward(*x);
        return softmax(x->download());
    }

    Device device_;  // first in, last out: everything below needs it
    Cudnn cudnn_;
    Floats pixels_, slopes_;
    std::vector<std::unique_ptr<Layer>> layers_;
};

}  // namespace

int main(int argc, char** argv) {
    const Example example{"mnist-graph", "a convolutional network over cuDNN's graph API alone", 10,
                          [](const Options& options) { return std::make_unique<Cnn>(options); }};
    return run(example, argc, argv);
}
