// What all examples share: flags, the loop over epochs, the verdict. A program supplies the model.
#pragma once

#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "digits.hpp"

struct Options {
    int epochs;
    int batch = 32;
    unsigned seed = 1;
};

enum Exit { kLearned = 0, kFailed = 1, kUsage = 2, kNoDevice = 3 };

// Thrown by a model that finds no GPU, or no driver for it; the program ends with kNoDevice.
class NoDevice : public std::runtime_error {
    using std::runtime_error::runtime_error;
};

// A network that learns to tell the ten digits apart. Every batch holds exactly Options::batch images.
class Model {
public:
    virtual ~Model() = default;

    // What it runs on: names and versions, for people.
    virtual std::vector<std::pair<std::string, std::string>> platform() const = 0;
    // One step of stochastic gradient descent; returns the batch's mean cross entropy before the step.
    virtual double train(const Batch& batch) = 0;
    // The most likely digit of each image.
    virtual std::vector<int> classify(const Batch& batch) = 0;
};

struct Example {
    std::string name;
    std::string about;
    int epochs;  // how many it trains unless told otherwise
    std::function<std::unique_ptr<Model>(const Options&)> model;
};

// The whole program: reads flags, trains, classifies, reports on stdout; returns one of Exit.
int run(const Example& example, int argc, char** argv);

// For models: mean of -log p[label] over the batch, and the place of each image's largest value.
double cross_entropy(const std::vector<float>& probabilities, const std::vector<int>& labels);
std::vector<int> most_likely(const std::vector<float>& probabilities);
