#include "learn.hpp"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>
#include <numeric>
#include <system_error>

#include "random.hpp"

namespace {

constexpr double kThreshold = 0.90;  // less than this on the test images is "did not learn"
constexpr int kClassifyPasses = 10;  // 256 images are too few to time once
constexpr int kMaxBatch = 512;

class UsageError : public std::runtime_error {
    using std::runtime_error::runtime_error;
};

void print_help(const Example& example) {
    std::printf("Usage: %s [--epochs N] [--batch N] [--seed N]\n\n%s\n\n", example.name.c_str(),
                example.about.c_str());
    std::printf("  --epochs N  passes over the training images (default %d)\n", example.epochs);
    std::printf("  --batch N   images in one step, 1 to %d (default %d)\n", kMaxBatch, Options{0}.batch);
    std::printf("  --seed N    first weights and order of images (default %u)\n", Options{0}.seed);
    std::printf("  --help      this text\n\n");
    std::printf(
        "Exit: 0 learned, 1 did not learn or a library call failed, 2 wrong usage, 3 no CUDA device.\n");
}

template <typename Number>
Number number(const std::string& flag, const char* text, Number lowest, Number highest) {
    Number value{};
    const char* end = text + std::strlen(text);
    const auto [stop, error] = std::from_chars(text, end, value);
    if (error != std::errc{} || stop != end || value < lowest || value > highest) {
        throw UsageError(flag + " takes a whole number from " + std::to_string(lowest) + " to " +
                         std::to_string(highest) + ", not '" + text + "'");
    }
    return value;
}

Options parse(const Example& example, int argc, char** argv) {
    Options options{example.epochs};
    for (int i = 1; i < argc; i += 2) {
        const std::string flag = argv[i];
        if (flag != "--epochs" && flag != "--batch" && flag != "--seed") {
            throw UsageError("unknown argument '" + flag + "'");
        }
        if (i + 1 == argc) throw UsageError(flag + " needs a number");
        if (flag == "--epochs") options.epochs = number(flag, argv[i + 1], 0, 10000);
        if (flag == "--batch") options.batch = number(flag, argv[i + 1], 1, kMaxBatch);
        if (flag == "--seed")
            options.seed = number(flag, argv[i + 1], 0U, std::numeric_limits<unsigned>::max());
    }
    return options;
}

class Stopwatch {
public:
    double seconds() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }

private:
    using Clock = std::chrono::steady_clock;
    Clock::time_point start_ = Clock::now();
};

double median(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    return values.empty() ? 0.0 : values[values.size() / 2];
}

// Trains and returns each epoch's speed in images a second.
std::vector<double> train(Model& model, std::vector<Image> images, const Options& options) {
    Random random(options.seed);
    std::vector<double> speeds;
    const std::size_t batch_size = static_cast<std::size_t>(options.batch);
    const std::size_t steps = images.size() / batch_size;  // the rest, another one each time, sits out
    for (int epoch = 1; epoch <= options.epochs; ++epoch) {
        random.shuffle(images);
        const Stopwatch watch;
        double loss = 0;
        for (std::size_t step = 0; step < steps; ++step) {
            Batch batch;
            for (std::size_t i = 0; i < batch_size; ++i) batch.add(images[step * batch_size + i]);
            loss += model.train(batch);
        }
        speeds.push_back(static_cast<double>(steps * batch_size) / watch.seconds());
        loss /= static_cast<double>(steps);
        std::printf("epoch %3d  loss %.6f  %.0f samples/s\n", epoch, loss, speeds.back());
        std::fflush(stdout);
    }
    return speeds;
}

// How many images the model names rightly. The last batch is filled up with blank images that do not count.
int count_right(Model& model, const std::vector<Image>& images, const Options& options) {
    int right = 0;
    for (std::size_t start = 0; start < images.size(); start += static_cast<std::size_t>(options.batch)) {
        Batch batch;
        for (std::size_t i = start; batch.size() < static_cast<std::size_t>(options.batch); ++i) {
            batch.add(i < images.size() ? images[i] : Image{{}, -1});
        }
        const std::vector<int> answers = model.classify(batch);
        for (std::size_t i = 0; i < batch.size(); ++i) right += answers[i] == batch.labels[i];
    }
    return right;
}

Exit learn(const Example& example, const Options& options) {
    const Digits digits = load_digits();
    const std::unique_ptr<Model> model = example.model(options);
    std::printf("%s: %s\n", example.name.c_str(), example.about.c_str());
    for (const auto& [name, value] : model->platform())
        std::printf("%-14s %s\n", name.c_str(), value.c_str());
    std::printf("%-14s %zu to train, %zu to test\n", "digits", digits.train.size(), digits.test.size());

    const std::vector<double> speeds = train(*model, digits.train, options);
    const int right = count_right(*model, digits.test, options);
    const Stopwatch watch;
    for (int pass = 0; pass < kClassifyPasses; ++pass) count_right(*model, digits.test, options);
    const double classified = static_cast<double>(digits.test.size()) * kClassifyPasses / watch.seconds();

    const double accuracy = static_cast<double>(right) / static_cast<double>(digits.test.size());
    std::printf("%-14s %.4f (%d of %zu test images)\n", "accuracy", accuracy, right, digits.test.size());
    if (!speeds.empty()) {
        std::printf("%-14s %.0f samples/s (median of %zu epochs)\n", "training", median(speeds),
                    speeds.size());
    }
    std::printf("%-14s %.0f samples/s\n", "classification", classified);
    if (accuracy >= kThreshold) return kLearned;
    std::fprintf(stderr, "%s: did not learn: test accuracy %.4f is below %.2f after %d epochs\n",
                 example.name.c_str(), accuracy, kThreshold, options.epochs);
    return kFailed;
}

Exit report(const Example& example, const std::exception& error, Exit code) {
    std::fprintf(stderr, "%s: %s\n", example.name.c_str(), error.what());
    return code;
}

}  // namespace

int run(const Example& example, int argc, char** argv) {
    if (std::any_of(argv + 1, argv + argc,
                    [](const char* flag) { return std::strcmp(flag, "--help") == 0; })) {
        print_help(example);
        return 0;
    }
    try {
        return learn(example, parse(example, argc, argv));
    } catch (const UsageError& error) {
        const Exit code = report(example, error, kUsage);
        std::fprintf(stderr, "Try '%s --help'.\n", example.name.c_str());
        return code;
    } catch (const NoDevice& error) {
        return report(example, error, kNoDevice);
    } catch (const std::exception& error) {
        return report(example, error, kFailed);
    }
}

double cross_entropy(const std::vector<float>& probabilities, const std::vector<int>& labels) {
    constexpr float kSmallest = 1e-12F;  // keeps the logarithm finite where a probability rounds to 0
    double sum = 0;
    for (std::size_t i = 0; i < labels.size(); ++i) {
        sum -=
            std::log(std::max(probabilities[i * kClasses + static_cast<std::size_t>(labels[i])], kSmallest));
    }
    return sum / static_cast<double>(labels.size());
}

std::vector<int> most_likely(const std::vector<float>& probabilities) {
    std::vector<int> answers;
    for (auto row = probabilities.begin(); row != probabilities.end(); row += kClasses) {
        answers.push_back(static_cast<int>(std::max_element(row, row + kClasses) - row));
    }
    return answers;
}
