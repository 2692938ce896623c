// A two-layer perceptron in plain C++, without CUDA: 64 pixels, 64 hidden units with ReLU, 10 digits.
#include <algorithm>
#include <cmath>

#include "learn.hpp"
#include "random.hpp"

namespace {

constexpr int kHidden = 64;
constexpr float kRate = 0.1F;

// y = W x + b for one image after the other; gradients add up over a batch until step() uses them.
class Dense {
public:
    Dense(int inputs, int outputs, Random& random)
        : inputs_(inputs),
          outputs_(outputs),
          weights_(random.weights(static_cast<std::size_t>(inputs * outputs), inputs)),
          bias_(static_cast<std::size_t>(outputs)),
          weights_gradient_(weights_.size()),
          bias_gradient_(bias_.size()) {}

    void forward(const float* x, float* y) const {
        for (int o = 0; o < outputs_; ++o) {
            y[o] = bias_[o];
            for (int i = 0; i < inputs_; ++i) y[o] += weights_[o * inputs_ + i] * x[i];
        }
    }

    // From d(loss)/dy to d(loss)/dx, which may be null where nobody asks for it.
    void backward(const float* x, const float* dy, float* dx) {
        if (dx != nullptr) std::fill(dx, dx + inputs_, 0.0F);
        for (int o = 0; o < outputs_; ++o) {
            bias_gradient_[o] += dy[o];
            for (int i = 0; i < inputs_; ++i) {
                weights_gradient_[o * inputs_ + i] += dy[o] * x[i];
                if (dx != nullptr) dx[i] += dy[o] * weights_[o * inputs_ + i];
            }
        }
    }

    void step(float rate) {
        descend(weights_, weights_gradient_, rate);
        descend(bias_, bias_gradient_, rate);
    }

private:
    static void descend(std::vector<float>& values, std::vector<float>& gradient, float rate) {
        for (std::size_t i = 0; i < values.size(); ++i) values[i] -= rate * gradient[i];
        std::fill(gradient.begin(), gradient.end(), 0.0F);
    }

    int inputs_, outputs_;
    std::vector<float> weights_, bias_, weights_gradient_, bias_gradient_;
};

void softmax(float* values) {
    const float largest = *std::max_element(values, values + kClasses);
    float sum = 0;
    for (int i = 0; i < kClasses; ++i) sum += values[i] = std::exp(values[i] - largest);
    for (int i = 0; i < kClasses; ++i) values[i] /= sum;
}

class Perceptron : public Model {
public:
    explicit Perceptron(const Options& options)
        : random_(options.seed), first_(kPixels, kHidden, random_), second_(kHidden, kClasses, random_) {}

    std::vector<std::pair<std::string, std::string>> platform() const override {
        return {{"device", "CPU, one thread"}, {"compiler", __VERSION__}};
    }

    double train(const Batch& batch) override {
        const std::vector<float> probabilities = forward(batch);
        for (std::size_t n = 0; n < batch.size(); ++n) backward(batch, n, &probabilities[n * kClasses]);
        first_.step(kRate / static_cast<float>(batch.size()));
        second_.step(kRate / static_cast<float>(batch.size()));
        return cross_entropy(probabilities, batch.labels);
    }

    std::vector<int> classify(const Batch& batch) override { return most_likely(forward(batch)); }

private:
    std::vector<float> forward(const Batch& batch) {
        hidden_.resize(batch.size() * kHidden);
        std::vector<float> probabilities(batch.size() * kClasses);
        for (std::size_t n = 0; n < batch.size(); ++n) {
            float* hidden = &hidden_[n * kHidden];
            first_.forward(&batch.pixels[n * kPixels], hidden);
            for (int i = 0; i < kHidden; ++i) hidden[i] = std::max(hidden[i], 0.0F);
            second_.forward(hidden, &probabilities[n * kClasses]);
            softmax(&probabilities[n * kClasses]);
        }
        return probabilities;
    }

    // Image n of the batch: softmax and cross entropy together have the gradient "probability - truth".
    void backward(const Batch& batch, std::size_t n, const float* probabilities) {
        const float* hidden = &hidden_[n * kHidden];
        float output_gradient[kClasses];
        float hidden_gradient[kHidden];
        for (int i = 0; i < kClasses; ++i) {
            output_gradient[i] = probabilities[i] - (i == batch.labels[n] ? 1.0F : 0.0F);
        }
        second_.backward(hidden, output_gradient, hidden_gradient);
        for (int i = 0; i < kHidden; ++i) {
            if (hidden[i] <= 0) hidden_gradient[i] = 0;
        }
        first_.backward(&batch.pixels[n * kPixels], hidden_gradient, nullptr);
    }

    Random random_;
    Dense first_, second_;
    std::vector<float> hidden_;  // of the latest forward pass, batch x kHidden
};

}  // namespace

int main(int argc, char** argv) {
    const Example example{"cpu", "a two-layer perceptron in plain C++, without CUDA", 20,
                          [](const Options& options) { return std::make_unique<Perceptron>(options); }};
    return run(example, argc, argv);
}
