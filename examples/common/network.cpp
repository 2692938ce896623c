#include "network.hpp"

namespace {

constexpr float kMomentum = 0.9F;
constexpr float kOne = 1.0F;
constexpr float kZero = 0.0F;

}  // namespace

void Parameter::step(cublasHandle_t cublas, float rate, float momentum) {
    const float downhill = -rate;
    CHECK(cublasSscal(cublas, value.count(), &momentum, velocity.data(), 1));
    CHECK(cublasSaxpy(cublas, value.count(), &downhill, gradient.data(), 1, velocity.data(), 1));
    CHECK(cublasSaxpy(cublas, value.count(), &kOne, velocity.data(), 1, value.data(), 1));
}

Dense::Dense(const Gpu& gpu, int batch, int inputs, int outputs, Random& random)
    : gpu_(gpu),
      batch_(batch),
      inputs_(inputs),
      outputs_(outputs),
      weights_(random.weights(static_cast<std::size_t>(inputs) * outputs, inputs)),
      bias_(std::vector<float>(outputs)),
      ones_(std::vector<float>(batch, 1.0F)),
      y_(static_cast<std::size_t>(batch) * outputs),
      dx_(static_cast<std::size_t>(batch) * inputs) {}

// cuBLAS counts column by column, so it sees each of our row-by-row matrices transposed: y^T = W x^T + b 1^T.
const Floats& Dense::forward(const Floats& x, Pass) {
    x_ = &x;
    CHECK(cublasSgemm(gpu_.cublas, CUBLAS_OP_T, CUBLAS_OP_N, outputs_, batch_, inputs_, &kOne,
                      weights_.value.data(), inputs_, x.data(), inputs_, &kZero, y_.data(), outputs_));
    CHECK(cublasSger(gpu_.cublas, outputs_, batch_, &kOne, bias_.value.data(), 1, ones_.data(), 1, y_.data(),
                     outputs_));
    return y_;
}

const Floats& Dense::backward(const Floats& dy) {
    CHECK(cublasSgemm(gpu_.cublas, CUBLAS_OP_N, CUBLAS_OP_T, inputs_, outputs_, batch_, &kOne, x_->data(),
                      inputs_, dy.data(), outputs_, &kZero, weights_.gradient.data(), inputs_));
    CHECK(cublasSgemv(gpu_.cublas, CUBLAS_OP_N, outputs_, batch_, &kOne, dy.data(), outputs_, ones_.data(), 1,
                      &kZero, bias_.gradient.data(), 1));
    CHECK(cublasSgemm(gpu_.cublas, CUBLAS_OP_N, CUBLAS_OP_N, inputs_, batch_, outputs_, &kOne,
                      weights_.value.data(), inputs_, dy.data(), outputs_, &kZero, dx_.data(), inputs_));
    return dx_;
}

Network::Network(const Options& options, float rate)
    : rate_(rate),
      classes_(Shape{options.batch, kClasses, 1, 1}),
      pixels_(static_cast<std::size_t>(options.batch) * kPixels),
      probabilities_(static_cast<std::size_t>(options.batch) * kClasses),
      truth_(static_cast<std::size_t>(options.batch) * kClasses) {}

std::vector<float> Network::forward(const Batch& batch, Pass pass) {
    pixels_.upload(batch.pixels);
    const Floats* x = &pixels_;
    for (const auto& layer : layers_) x = &layer->forward(*x, pass);
    CHECK(cudnnSoftmaxForward(gpu_.cudnn, CUDNN_SOFTMAX_ACCURATE, CUDNN_SOFTMAX_MODE_INSTANCE, &kOne,
                              classes_, x->data(), &kZero, classes_, probabilities_.data()));
    return probabilities_.download();
}

double Network::train(const Batch& batch) {
    const std::vector<float> probabilities = forward(batch, Pass::kTrain);

    // Softmax and mean cross entropy together have a simple gradient: (probability - truth) / batch.
    std::vector<float> truth(probabilities.size());
    for (std::size_t i = 0; i < batch.size(); ++i) truth[i * kClasses + batch.labels[i]] = 1.0F;
    truth_.upload(truth);
    const float minus_one = -1.0F;
    const float share = 1.0F / static_cast<float>(batch.size());
    CHECK(cublasSaxpy(gpu_.cublas, truth_.count(), &minus_one, truth_.data(), 1, probabilities_.data(), 1));
    CHECK(cublasSscal(gpu_.cublas, truth_.count(), &share, probabilities_.data(), 1));

    const Floats* dy = &probabilities_;
    for (auto layer = layers_.rbegin(); layer != layers_.rend(); ++layer) dy = &(*layer)->backward(*dy);
    for (const auto& layer : layers_) {
        for (Parameter* parameter : layer->parameters()) parameter->step(gpu_.cublas, rate_, kMomentum);
    }
    return cross_entropy(probabilities, batch.labels);
}

std::vector<int> Network::classify(const Batch& batch) {
    return most_likely(forward(batch, Pass::kClassify));
}
