// A recurrent network over cuDNN and cuBLAS: an LSTM reads a digit row by row, eight steps of eight pixels,
// and a dense layer names it from what the LSTM remembers in the end.
#include <algorithm>
#include <cmath>

#include "network.hpp"

namespace {

constexpr float kRate = 0.1F;
constexpr int kHidden = 64;

OWNED(RnnDescriptor, cudnnRNNDescriptor_t, cudnnCreateRNNDescriptor, cudnnDestroyRNNDescriptor);
OWNED(RnnDataDescriptor, cudnnRNNDataDescriptor_t, cudnnCreateRNNDataDescriptor,
      cudnnDestroyRNNDataDescriptor);
OWNED(DropoutDescriptor, cudnnDropoutDescriptor_t, cudnnCreateDropoutDescriptor,
      cudnnDestroyDropoutDescriptor);

// batch sequences of kSide vectors with `size` values each, in memory as batch x kSide x size.
class Sequence {
public:
    Sequence(const std::vector<int>& lengths, int size) {
        float padding = 0;
        CHECK(cudnnSetRNNDataDescriptor(descriptor_, CUDNN_DATA_FLOAT,
                                        CUDNN_RNN_DATA_LAYOUT_BATCH_MAJOR_UNPACKED, kSide,
                                        static_cast<int>(lengths.size()), size, lengths.data(), &padding));
    }
    operator cudnnRNNDataDescriptor_t() const { return descriptor_; }

private:
    RnnDataDescriptor descriptor_;
};

// One layer of LSTM. Its output is the hidden state after the last step, batch x kHidden.
class Lstm : public Layer {
public:
    Lstm(const Gpu& gpu, int batch, Random& random) : Lstm(gpu, std::vector<int>(batch, kSide), random) {}

    // Initial states that are null are zeros, and so are cell states' gradients.
    const Floats& forward(const Floats& x, Pass pass) override {
        x_ = &x;
        const bool train = pass == Pass::kTrain;
        CHECK(cudnnRNNForward(gpu_.cudnn, rnn_, train ? CUDNN_FWD_MODE_TRAINING : CUDNN_FWD_MODE_INFERENCE,
                              lengths_.data(), x_sequence_, x.data(), y_sequence_, y_.data(), state_, nullptr,
                              last_hidden_.data(), state_, nullptr, nullptr, weights_->value.bytes(),
                              weights_->value.data(), workspace_->bytes(), workspace_->data(),
                              train ? reserve_->bytes() : 0, train ? reserve_->data() : nullptr));
        return last_hidden_;
    }

    const Floats& backward(const Floats& dy) override {
        CHECK(cudnnRNNBackwardData_v8(gpu_.cudnn, rnn_, lengths_.data(), y_sequence_, y_.data(),
                                      no_gradient_.data(), x_sequence_, dx_.data(), state_, nullptr,
                                      dy.data(), nullptr, state_, nullptr, nullptr, nullptr,
                                      weights_->value.bytes(), weights_->value.data(), workspace_->bytes(),
                                      workspace_->data(), reserve_->bytes(), reserve_->data()));
        weights_->gradient.clear();  // because cuDNN only knows how to add to it
        CHECK(cudnnRNNBackwardWeights_v8(
            gpu_.cudnn, rnn_, CUDNN_WGRAD_MODE_ADD, lengths_.data(), x_sequence_, x_->data(), state_, nullptr,
            y_sequence_, y_.data(), weights_->gradient.bytes(), weights_->gradient.data(),
            workspace_->bytes(), workspace_->data(), reserve_->bytes(), reserve_->data()));
        return dx_;
    }

    std::vector<Parameter*> parameters() override { return {weights_.get()}; }

private:
    Lstm(const Gpu& gpu, const std::vector<int>& lengths, Random& random)
        : gpu_(gpu),
          lengths_(lengths),
          x_sequence_(lengths, kSide),
          y_sequence_(lengths, kHidden),
          y_(lengths.size() * kSide * kHidden),
          no_gradient_(lengths.size() * kSide * kHidden),
          last_hidden_(lengths.size() * kHidden),
          dx_(lengths.size() * kPixels) {
        const int shape[] = {1, static_cast<int>(lengths.size()), kHidden};  // layers x batch x kHidden
        const int strides[] = {shape[1] * shape[2], shape[2], 1};
        CHECK(cudnnSetTensorNdDescriptor(state_, CUDNN_DATA_FLOAT, 3, shape, strides));
        CHECK(cudnnSetDropoutDescriptor(no_dropout_, gpu_.cudnn, 0.0F, nullptr, 0, 0));
        CHECK(cudnnSetRNNDescriptor_v8(rnn_, CUDNN_RNN_ALGO_STANDARD, CUDNN_LSTM, CUDNN_RNN_DOUBLE_BIAS,
                                       CUDNN_UNIDIRECTIONAL, CUDNN_LINEAR_INPUT, CUDNN_DATA_FLOAT,
                                       CUDNN_DATA_FLOAT, CUDNN_DEFAULT_MATH, kSide, kHidden, kHidden, 1,
                                       no_dropout_, CUDNN_RNN_PADDED_IO_ENABLED));
        make_weights(random);
        make_workspace();
    }

    // All matrices and biases lie in one array whose layout is cuDNN's affair; every value starts in
    // ±1/sqrt(kHidden), so we need not know it.
    void make_weights(Random& random) {
        std::size_t bytes = 0;
        CHECK(cudnnGetRNNWeightSpaceSize(gpu_.cudnn, rnn_, &bytes));
        std::vector<float> first(bytes / sizeof(float));
        for (float& value : first) value = random.uniform(1.0F / std::sqrt(static_cast<float>(kHidden)));
        weights_ = std::make_unique<Parameter>(first);
    }

    void make_workspace() {
        std::size_t train = 0;
        std::size_t classify = 0;
        std::size_t reserve = 0;
        std::size_t no_reserve = 0;
        CHECK(cudnnGetRNNTempSpaceSizes(gpu_.cudnn, rnn_, CUDNN_FWD_MODE_INFERENCE, x_sequence_, &classify,
                                        &no_reserve));
        CHECK(cudnnGetRNNTempSpaceSizes(gpu_.cudnn, rnn_, CUDNN_FWD_MODE_TRAINING, x_sequence_, &train,
                                        &reserve));
        workspace_ = std::make_unique<Array<char>>(std::max(train, classify));
        reserve_ = std::make_unique<Array<char>>(reserve);
    }

    const Gpu& gpu_;
    Array<int> lengths_;  // kSide for each sequence of the batch
    Sequence x_sequence_, y_sequence_;
    TensorDescriptor state_;
    DropoutDescriptor no_dropout_;
    RnnDescriptor rnn_;
    Floats y_,
        no_gradient_;  // hidden states after each step, and zeros: the loss looks at the last one alone
    Floats last_hidden_, dx_;
    std::unique_ptr<Parameter> weights_;
    std::unique_ptr<Array<char>> workspace_, reserve_;  // reserve_ carries values from forward to backward
    const Floats* x_ = nullptr;
};

std::unique_ptr<Model> rnn(const Options& options) {
    auto network = std::make_unique<Network>(options, kRate);
    Random random(options.seed);
    network->add<Lstm>(options.batch, random);
    network->add<Dense>(options.batch, kHidden, kClasses, random);
    return network;
}

}  // namespace

int main(int argc, char** argv) {
    return run({"rnn", "an LSTM over cuDNN and cuBLAS that reads digits row by row", 20, rnn}, argc, argv);
}
